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

// The lives of what is issued. A node renews at two thirds of NodeLife.
const (
	NodeLife   = 24 * time.Hour
	ServerLife = 30 * 24 * time.Hour
)

const trustDomain = "slipway"

// generationOID marks the extension that holds the generation, one INTEGER. It
// lies below 2.25, where no registration is needed, at a number drawn once.
var generationOID = asn1.ObjectIdentifier{2, 25, 1731482213, 1}

var nodeIDPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)

// Identity is whom a node certificate names. Generation starts at 1 and rises
// by one with each new key; an older one than the latest is a copy.
type Identity struct {
	NodeID     string
	Generation int64
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

// IssueNode signs a client certificate, valid for NodeLife, for a node.
func (c *CA) IssueNode(pub crypto.PublicKey, id Identity) (Certificate, error) {
	if !nodeIDPattern.MatchString(id.NodeID) || id.Generation < 1 {
		return Certificate{}, fmt.Errorf("node id %q or generation %d cannot stand in a certificate", id.NodeID, id.Generation)
	}
	if err := checkKey(pub); err != nil {
		return Certificate{}, err
	}
	spki, err := SPKI(pub)
	if err != nil {
		return Certificate{}, err
	}
	gen, err := asn1.Marshal(id.Generation)
	if err != nil {
		return Certificate{}, fmt.Errorf("encode the generation: %w", err)
	}
	tmpl := &x509.Certificate{
		Subject:         pkix.Name{CommonName: id.NodeID},
		URIs:            []*url.URL{{Scheme: "spiffe", Host: trustDomain, Path: "/node/" + id.NodeID}},
		ExtKeyUsage:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		ExtraExtensions: []pkix.Extension{{Id: generationOID, Value: gen}},
	}
	der, err := c.sign(tmpl, pub, NodeLife)
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
	now := c.now()
	tmpl.SerialNumber = serial
	tmpl.NotBefore, tmpl.NotAfter = now.Add(-skewAllowance), now.Add(life)
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
	for _, e := range cert.Extensions {
		if !e.Id.Equal(generationOID) {
			continue
		}
		var gen int64
		if rest, err := asn1.Unmarshal(e.Value, &gen); err != nil || len(rest) != 0 || gen < 1 {
			return Identity{}, bad
		}
		return Identity{NodeID: id, Generation: gen}, nil
	}
	return Identity{}, bad
}
