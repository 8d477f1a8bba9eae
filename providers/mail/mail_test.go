package mail

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"net/mail"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

type password struct {
	providers.Secrets
	use providers.Use
}

func (p *password) Resolve(_ context.Context, _ providers.SecretRef, use providers.Use) (providers.Secret, error) {
	p.use = use
	return providers.NewSecret("pass-4711"), nil
}

// backend is a mail server that keeps what it gets.
type backend struct {
	received chan string
	refuse   error
}

func (b *backend) NewSession(*smtp.Conn) (smtp.Session, error) { return &session{b, false}, nil }

type session struct {
	*backend
	signedIn bool
}

func (s *session) AuthMechanisms() []string { return []string{sasl.Plain} }

func (s *session) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, pass string) error {
		if s.signedIn = user == "slipway" && pass == "pass-4711"; !s.signedIn {
			return smtp.ErrAuthFailed
		}
		return nil
	}), nil
}

func (s *session) Mail(string, *smtp.MailOptions) error {
	if !s.signedIn {
		return smtp.ErrAuthRequired
	}
	return nil
}

func (s *session) Rcpt(string, *smtp.RcptOptions) error { return s.refuse }
func (s *session) Reset()                               {}
func (s *session) Logout() error                        { return nil }

func (s *session) Data(r io.Reader) error {
	text, err := io.ReadAll(r)
	s.received <- string(text)
	return err
}

func newServer(t *testing.T, refuse error) (*backend, *Sender, *password) {
	t.Helper()
	certified := httptest.NewTLSServer(nil) // only for its certificate
	defer certified.Close()
	b := &backend{make(chan string, 1), refuse}
	server := smtp.NewServer(b)
	server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: certified.TLS.Certificates}
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a test's socket
	require.NoError(t, err)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	roots := x509.NewCertPool()
	roots.AddCert(certified.Certificate())
	secrets := &password{}
	return b, &Sender{
		Secrets: secrets, Host: "127.0.0.1", Port: listener.Addr().(*net.TCPAddr).Port, TLS: "starttls", User: "slipway", PasswordRef: "smtp/password",
		From: "Slipway <slipway@example.com>", Roots: roots,
	}, secrets
}

func newMessage() Message {
	return Message{ID: "ntc_1.abc@slipway.example", To: "owner@example.com", Subject: "Notice\r\nBcc: all@example.com", Text: "Line ü", At: time.Now()}
}

func TestSend_ReachesARealServer(t *testing.T) {
	t.Parallel()
	b, s, secrets := newServer(t, nil)
	require.NoError(t, s.Send(t.Context(), newMessage()))
	got, err := mail.ReadMessage(strings.NewReader(<-b.received))
	require.NoError(t, err)
	require.Equal(t, "<ntc_1.abc@slipway.example>", got.Header.Get("Message-Id"))
	require.Equal(t, "auto-generated", got.Header.Get("Auto-Submitted"))
	require.Empty(t, got.Header.Get("Bcc"), "a text makes no header of its own")
	require.Equal(t, spec.SecretSMTPPassword, secrets.use.Kind)
}

func TestSend_RefusalsAndOutages(t *testing.T) {
	t.Parallel()
	_, s, _ := newServer(t, &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 1, 1}, Message: "no such user pass-4711"})
	err := s.Send(t.Context(), newMessage())
	require.Equal(t, providers.KindInvalid, providers.KindOf(err), "%v", err)
	require.NotContains(t, err.Error(), "4711", "what the server says stays in the log")
	_, s, _ = newServer(t, &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 3, 0}, Message: "later"})
	require.Equal(t, providers.KindUnavailable, providers.KindOf(s.Send(t.Context(), newMessage())))
	s.Roots = x509.NewCertPool()
	require.Equal(t, providers.KindUnavailable, providers.KindOf(s.Send(t.Context(), newMessage())), "no password over an unproven connection")
	s.Port = 1
	require.True(t, errors.As(s.Send(t.Context(), newMessage()), new(*providers.Error)))
}
