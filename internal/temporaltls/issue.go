// Package temporaltls makes the certificates of mutual TLS between Temporal and its clients on one
// host, and loads the client's.
package temporaltls

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"
)

// The files of a folder.
const (
	CAFile   = "ca.crt"
	CertFile = "tls.crt"
	KeyFile  = "tls.key"
	caKey    = "ca.key"
)

const (
	caLife   = 20 * 365 * 24 * time.Hour
	leafLife = 2 * 365 * 24 * time.Hour
	// renewBefore is how long before its end a certificate is replaced.
	renewBefore = leafLife / 2
	// clockTolerance is how far the clocks of hosts may differ.
	clockTolerance = time.Hour
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Ensure makes what is missing below dir, and replaces certificates of which less than a year is
// left or which the authority did not sign: ca holds the authority, server the certificate of
// Temporal for the given names, client that of its clients. It is safe to repeat. The authority is
// never replaced. The keys in server and client can be read by every user, because containers run
// as users of their own: mount each folder only where it belongs.
func Ensure(dir string, names []string, now time.Time) error {
	a, err := openAuthority(filepath.Join(dir, "ca"), now)
	if err != nil {
		return err
	}
	// Temporal's own worker is a client of its frontend, with the certificate of the server.
	both := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	return errors.Join(
		a.ensureLeaf(filepath.Join(dir, "server"), names, both, now),
		a.ensureLeaf(filepath.Join(dir, "client"), nil, both[1:], now),
	)
}

func openAuthority(dir string, now time.Time) (*authority, error) {
	certPath, keyPath := filepath.Join(dir, CAFile), filepath.Join(dir, caKey)
	pair, err := tls.LoadX509KeyPair(certPath, keyPath)
	if err == nil {
		key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
		if !ok || !pair.Leaf.IsCA {
			return nil, fmt.Errorf("%s holds no authority that this program made; move the folder away to make a new one", dir)
		}
		return &authority{pair.Leaf, key}, nil
	}
	for _, path := range []string{certPath, keyPath} {
		if _, serr := os.Stat(path); !errors.Is(serr, fs.ErrNotExist) {
			return nil, fmt.Errorf("the authority in %s cannot be read; restore both files, or move them away to make a new one: %w", dir, err)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "Slipway's authority for Temporal"}, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: now.Add(-clockTolerance), NotAfter: now.Add(caLife),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make an authority: %w", err)
	}
	a := &authority{key: key}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	return a, write(dir, 0o600, der, key, CAFile, caKey)
}

func (a *authority) ensureLeaf(dir string, names []string, usage []x509.ExtKeyUsage, now time.Time) error {
	if pair, err := tls.LoadX509KeyPair(filepath.Join(dir, CertFile), filepath.Join(dir, KeyFile)); err == nil &&
		pair.Leaf.CheckSignatureFrom(a.cert) == nil && now.Add(renewBefore).Before(pair.Leaf.NotAfter) && covers(pair.Leaf, names) {
		return nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make a key: %w", err)
	}
	template := &x509.Certificate{
		Subject:  pkix.Name{CommonName: "slipway " + filepath.Base(dir)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: usage, NotBefore: now.Add(-clockTolerance), NotAfter: now.Add(leafLife),
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return fmt.Errorf("make a certificate: %w", err)
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
	return errors.Join(replace(filepath.Join(dir, CAFile), ca, 0o644), write(dir, 0o644, der, key, CertFile, KeyFile))
}

func covers(leaf *x509.Certificate, names []string) bool {
	for _, name := range names {
		if leaf.VerifyHostname(name) != nil {
			return false
		}
	}
	return true
}

// write stores a certificate and its key. The key comes first: a certificate without its key is
// made again by the next run.
func write(dir string, keyMode fs.FileMode, der []byte, key *ecdsa.PrivateKey, certFile, keyFile string) error {
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode a key: %w", err)
	}
	if err := replace(filepath.Join(dir, keyFile), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}), keyMode); err != nil {
		return err
	}
	return replace(filepath.Join(dir, certFile), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644)
}

// replace puts content at path in one step.
func replace(path string, content []byte, mode fs.FileMode) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return fmt.Errorf("the folder of %s must exist and be writable: %w", path, err)
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(content)
	return errors.Join(err, tmp.Chmod(mode), tmp.Sync(), tmp.Close(), os.Rename(tmp.Name(), path))
}
