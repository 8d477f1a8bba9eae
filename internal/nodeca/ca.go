package nodeca

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

// FileName is the one file of a CA directory. Key and certificate share it, so
// that a crash can never leave one without the other.
const FileName = "node-ca.pem"

const caLife = 10 * 365 * 24 * time.Hour

// SkewAllowance is how far a certificate's start lies in the past, for nodes
// whose clock is behind.
const SkewAllowance = 5 * time.Minute

// CA signs. It is safe for concurrent use.
type CA struct {
	cert    *x509.Certificate
	certPEM []byte
	keyPEM  []byte
	key     *ecdsa.PrivateKey
	now     func() time.Time
	life    time.Duration // of what it issues to nodes
}

// Option changes how a CA works.
type Option func(*CA)

// WithClock replaces the clock, for tests of expiry.
func WithClock(now func() time.Time) Option { return func(c *CA) { c.now = now } }

// WithNodeLife sets the life of node certificates; the default is NodeLife.
func WithNodeLife(d time.Duration) Option { return func(c *CA) { c.life = d } }

// Create makes a new CA in memory, valid for ten years.
func Create(opts ...Option) (*CA, error) {
	c := apply(opts)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the node CA's key: %w", err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	now := c.now()
	tmpl := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "Slipway node CA"},
		NotBefore:    now.Add(-SkewAllowance), NotAfter: now.Add(caLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make the node CA's certificate: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode the node CA's key: %w", err)
	}
	return c.fill(
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
}

// Open loads the CA of a directory and creates it when there is none. Of
// several processes that create at once, one wins and all load the same CA.
// Errors: an unreadable or damaged file, or one that others may read.
func Open(dir string, opts ...Option) (*CA, error) {
	path := filepath.Join(dir, FileName)
	c, err := load(path, opts)
	if !errors.Is(err, fs.ErrNotExist) {
		return c, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the node CA's directory: %w", err)
	}
	fresh, err := Create(opts...)
	if err != nil {
		return nil, err
	}
	if err := writeOnce(path, append(bytes.Clone(fresh.certPEM), fresh.keyPEM...)); err != nil {
		return nil, err
	}
	return load(path, opts)
}

// Load loads the CA of a directory. fs.ErrNotExist: there is none.
func Load(dir string, opts ...Option) (*CA, error) {
	return load(filepath.Join(dir, FileName), opts)
}

// FromPEM loads a CA from its certificate and key, for example out of the
// secret store.
func FromPEM(cert, key []byte, opts ...Option) (*CA, error) { return apply(opts).fill(cert, key) }

// CertPEM is the certificate that agents are given to know the agent API by.
func (c *CA) CertPEM() []byte { return bytes.Clone(c.certPEM) }

// KeyPEM is the CA's private key, for storing it elsewhere. It is the most
// secret value of the node side.
func (c *CA) KeyPEM() []byte { return bytes.Clone(c.keyPEM) }

// Pool holds the CA's certificate alone.
func (c *CA) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(c.cert)
	return p
}

// NotAfter is when the CA itself ends.
func (c *CA) NotAfter() time.Time { return c.cert.NotAfter }

func apply(opts []Option) *CA {
	c := &CA{now: time.Now, life: NodeLife}
	for _, o := range opts {
		o(c)
	}
	return c
}

func (c *CA) fill(certPEM, keyPEM []byte) (*CA, error) {
	cb, _ := pem.Decode(certPEM)
	kb, _ := pem.Decode(keyPEM)
	if cb == nil || kb == nil {
		return nil, errors.New("the node CA needs a PEM certificate and a PEM private key")
	}
	cert, err := x509.ParseCertificate(cb.Bytes)
	if err != nil {
		return nil, errors.New("the node CA's certificate cannot be read")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(kb.Bytes)
	if err != nil {
		return nil, errors.New("the node CA's key cannot be read; it must be PKCS #8")
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("the node CA's key must be an ECDSA key")
	}
	if !cert.IsCA || !key.PublicKey.Equal(cert.PublicKey) {
		return nil, errors.New("the node CA's certificate is no CA or does not belong to its key")
	}
	c.cert, c.key = cert, key
	c.certPEM, c.keyPEM = pem.EncodeToMemory(cb), pem.EncodeToMemory(kb)
	return c, nil
}

func load(path string, opts []Option) (*CA, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read the node CA: %w", err)
	}
	if st.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("others may read %s, which holds the node CA's key; run: chmod 600 %s", path, path)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the node CA: %w", err)
	}
	_, keyPart := pem.Decode(raw)
	return apply(opts).fill(raw, keyPart)
}

// writeOnce makes the file with its whole content or leaves the one that is
// there: a link fails when its name is taken, a rename would not.
func writeOnce(path string, content []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".node-ca-*")
	if err != nil {
		return fmt.Errorf("write the node CA: %w", err)
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	_, err = tmp.Write(content)
	if err == nil {
		err = tmp.Sync()
	}
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Link(tmp.Name(), path)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("write the node CA: %w", err)
	}
	return nil
}

func newSerial() (*big.Int, error) {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("draw a serial number: %w", err)
	}
	return n.Add(n, big.NewInt(1)), nil
}
