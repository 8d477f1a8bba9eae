package redfishsim

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// source gives tokens: repeatable with a seed, random without.
type source struct {
	mu  sync.Mutex
	rng *rand.ChaCha8 // nil = system randomness
}

func newSource(seed uint64) *source {
	if seed == 0 {
		return &source{}
	}
	var key [32]byte
	for i := range 8 {
		key[i] = byte(seed >> (8 * i))
	}
	return &source{rng: rand.NewChaCha8(key)}
}

func (s *source) hex(n int) string {
	b := make([]byte, n)
	if s.rng == nil {
		_, _ = crand.Read(b) // never fails, see crypto/rand
	} else {
		s.mu.Lock()
		_, _ = s.rng.Read(b)
		s.mu.Unlock()
	}
	return hex.EncodeToString(b)
}

// certificates serves a self-signed certificate and replaces it on demand, as a
// BMC does after a factory reset.
type certificates struct {
	rand      *source
	rotateNow func() bool // asked at each handshake

	mu  sync.Mutex
	cur *tls.Certificate
}

func newCertificates(r *source) (*certificates, error) {
	c := &certificates{rand: r}
	return c, c.rotate()
}

func (c *certificates) rotate() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	if err != nil {
		return err
	}
	serial, _ := new(big.Int).SetString(c.rand.hex(8), 16)
	t := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "simulated BMC"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(10, 0, 0),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, DNSNames: []string{"localhost"},
	}
	der, err := x509.CreateCertificate(crand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.cur = &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	c.mu.Unlock()
	return nil
}

func (c *certificates) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c.rotateNow() {
		if err := c.rotate(); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cur, nil
}

func (c *certificates) pem() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.cur.Certificate[0]})
}

func quiet() *log.Logger { return log.New(io.Discard, "", 0) }
