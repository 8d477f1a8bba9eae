package nodeca

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"
)

// The lives of what is issued. NodeLife is the default; a node renews at half of it.
const (
	NodeLife   = 7 * 24 * time.Hour
	ServerLife = 30 * 24 * time.Hour
)

const trustDomain = "slipway"

// generationOID marks the extension that holds the generation, one INTEGER. It
// lies below 2.25, where no registration is needed, at a number drawn once.
// The enrolment has an extension beside it; certificates of before it was added have none.
var (
	generationOID = asn1.ObjectIdentifier{2, 25, 1731482213, 1}
	enrolmentOID  = asn1.ObjectIdentifier{2, 25, 1731482213, 2}
)

var nodeIDPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)

// Identity is whom a node certificate names. Generation starts at 1 and rises
// with each new key; an older one than the latest is a copy. Enrolment counts the
// enrolments of the node, so that the certificates of one installed system are
// told from those of the next. It is 0 in a certificate that does not say.
type Identity struct {
	NodeID     string
	Generation int64
	Enrolment  int64
}

// Certificate is an issued node certificate. SPKI is the SHA-256 of the public
// key's SubjectPublicKeyInfo: equal exactly when the key is the same.
type Certificate struct {
	PEM       []byte
	Serial    string // lower-case hex
	SPKI      [32]byte
	NotBefore time.Time
	NotAfter  time.Time
}

// SPKI is the SHA-256 of a key's SubjectPublicKeyInfo.
func SPKI(pub crypto.PublicKey) ([32]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		return [32]byte{}, errors.New("the public key is of no known kind")
	}
	return sha256.Sum256(der), nil
}

// ParseRequest reads a PEM certificate request, checks that the sender holds
// its key, and returns that key. Everything else that the request asks for is
// dropped. Accepted keys are ECDSA P-256 and Ed25519.
func ParseRequest(csrPEM []byte) (crypto.PublicKey, error) {
	b, _ := pem.Decode(csrPEM)
	if b == nil || b.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("a PEM certificate request is needed")
	}
	csr, err := x509.ParseCertificateRequest(b.Bytes)
	if err != nil {
		return nil, errors.New("the certificate request cannot be read")
	}
	if err := checkKey(csr.PublicKey); err != nil {
		return nil, err
	}
	if err := csr.CheckSignature(); err != nil {
		return nil, errors.New("the certificate request is not signed by its own key")
	}
	return csr.PublicKey, nil
}

func checkKey(pub crypto.PublicKey) error {
	switch k := pub.(type) {
	case *ecdsa.PublicKey:
		if k.Curve == elliptic.P256() {
			return nil
		}
	case ed25519.PublicKey:
		return nil
	}
	return errors.New("the key must be ECDSA P-256 or Ed25519")
}

// IssueNode signs a client certificate for a node.
func (c *CA) IssueNode(pub crypto.PublicKey, id Identity) (Certificate, error) {
	if !nodeIDPattern.MatchString(id.NodeID) || id.Generation < 1 || id.Enrolment < 0 {
		return Certificate{}, fmt.Errorf("node id %q or generation %d cannot stand in a certificate", id.NodeID, id.Generation)
	}
	if err := checkKey(pub); err != nil {
		return Certificate{}, err
	}
	spki, err := SPKI(pub)
	if err != nil {
		return Certificate{}, err
	}
	counters, err := id.extensions()
	if err != nil {
		return Certificate{}, err
	}
	tmpl := &x509.Certificate{
		Subject:         pkix.Name{CommonName: id.NodeID},
		URIs:            []*url.URL{{Scheme: "spiffe", Host: trustDomain, Path: "/node/" + id.NodeID}},
		ExtKeyUsage:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		ExtraExtensions: counters,
	}
	der, err := c.sign(tmpl, pub, c.life)
	if err != nil {
		return Certificate{}, err
	}
	return Certificate{
		PEM:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Serial: tmpl.SerialNumber.Text(16), SPKI: spki,
		NotBefore: tmpl.NotBefore, NotAfter: tmpl.NotAfter,
	}, nil
}

// IssueServer makes a key and certificate, valid for ServerLife, under which
// the agent API answers at hosts (names or addresses).
func (c *CA) IssueServer(hosts []string) (tls.Certificate, error) {
	if len(hosts) == 0 {
		return tls.Certificate{}, errors.New("name at least one host or address of the agent API")
	}
	tmpl := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "Slipway agent API"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			tmpl.IPAddresses = append(tmpl.IPAddresses, ip)
		} else {
			tmpl.DNSNames = append(tmpl.DNSNames, h)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make a server key: %w", err)
	}
	der, err := c.sign(tmpl, key.Public(), ServerLife)
	if err != nil {
		return tls.Certificate{}, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("read back the server certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

// ServerCertificates gives a TLS server its certificate and replaces it by a
// new one at two thirds of its life, so that a process may run for ever.
func (c *CA) ServerCertificates(hosts []string) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	var mu sync.Mutex
	var cur *tls.Certificate
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		mu.Lock()
		defer mu.Unlock()
		if cur == nil || c.now().After(cur.Leaf.NotAfter.Add(-ServerLife/3)) {
			fresh, err := c.IssueServer(hosts)
			if err != nil {
				return nil, err
			}
			cur = &fresh
		}
		return cur, nil
	}
}

func (c *CA) sign(tmpl *x509.Certificate, pub crypto.PublicKey, life time.Duration) ([]byte, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	now := c.now().Truncate(time.Second) // a certificate holds no fractions, and its start is compared with that of others
	tmpl.SerialNumber = serial
	tmpl.NotBefore, tmpl.NotAfter = now.Add(-SkewAllowance), now.Add(life)
	tmpl.KeyUsage = x509.KeyUsageDigitalSignature
	tmpl.BasicConstraintsValid = true
	der, err := x509.CreateCertificate(rand.Reader, tmpl, c.cert, pub, c.key)
	if err != nil {
		return nil, fmt.Errorf("sign a certificate: %w", err)
	}
	return der, nil
}

// IdentityOf reads whom a node certificate names. It does not verify the
// certificate; TLS has done that.
func IdentityOf(cert *x509.Certificate) (Identity, error) {
	bad := errors.New("the certificate names no Slipway node")
	if len(cert.URIs) != 1 {
		return Identity{}, bad
	}
	u := cert.URIs[0]
	id, ok := strings.CutPrefix(u.Path, "/node/")
	if u.Scheme != "spiffe" || u.Host != trustDomain || !ok || !nodeIDPattern.MatchString(id) || u.RawQuery != "" || u.Fragment != "" {
		return Identity{}, bad
	}
	out := Identity{NodeID: id}
	for _, e := range cert.Extensions {
		into := &out.Generation
		if e.Id.Equal(enrolmentOID) {
			into = &out.Enrolment
		} else if !e.Id.Equal(generationOID) {
			continue
		}
		if rest, err := asn1.Unmarshal(e.Value, into); err != nil || len(rest) != 0 || *into < 1 {
			return Identity{}, bad
		}
	}
	if out.Generation < 1 {
		return Identity{}, bad
	}
	return out, nil
}

// extensions returns the certificate extensions that hold the counters.
func (id Identity) extensions() ([]pkix.Extension, error) {
	var out []pkix.Extension
	for _, c := range []struct {
		oid   asn1.ObjectIdentifier
		value int64
	}{{generationOID, id.Generation}, {enrolmentOID, id.Enrolment}} {
		if c.value == 0 {
			continue
		}
		raw, err := asn1.Marshal(c.value)
		if err != nil {
			return nil, fmt.Errorf("encode the generation: %w", err)
		}
		out = append(out, pkix.Extension{Id: c.oid, Value: raw})
	}
	return out, nil
}

// VerifyNode checks that the CA issued the certificate to a node, also where it
// has expired since: the chain is verified at a time at which the certificate was
// valid. It refuses one that is not valid yet, and every one once the CA itself
// has expired. Whether an expired one still counts is the caller's to decide.
func (c *CA) VerifyNode(cert *x509.Certificate, now time.Time) error {
	if now.After(c.cert.NotAfter) {
		return errors.New("the node CA has expired")
	}
	if now.After(cert.NotAfter) {
		now = cert.NotAfter
	}
	_, err := cert.Verify(x509.VerifyOptions{Roots: c.Pool(), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		return fmt.Errorf("the certificate is not one that the node CA issued to a node: %w", err)
	}
	return nil
}
