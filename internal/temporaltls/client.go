package temporaltls

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
)

// ClientOptions names the files of a client. Empty: the system's authorities, no certificate, the
// name of the address.
type ClientOptions struct {
	CAFile, CertFile, KeyFile, ServerName string
}

// Client returns the configuration of a client. It reads the client certificate again for each
// connection, so that a renewed one is used without a restart; while the files cannot be read the
// one before stays in use.
func Client(o ClientOptions) (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: o.ServerName}
	if o.CAFile != "" {
		pem, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("temporal.tls.ca_file: %w", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errors.New("temporal.tls.ca_file holds no PEM certificate")
		}
	}
	if o.CertFile == "" {
		return t, nil
	}
	last, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("temporal.tls.cert_file and key_file: %w", err)
	}
	var mu sync.Mutex
	t.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		mu.Lock()
		defer mu.Unlock()
		if pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile); err == nil {
			last = pair
		}
		used := last
		return &used, nil
	}
	return t, nil
}
