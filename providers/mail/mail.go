// Package mail sends notices by e-mail over SMTP.
package mail

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	gomail "github.com/wneessen/go-mail"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// Limit bounds the sending of one message.
const Limit = 30 * time.Second

// Sender sends messages by one SMTP server.
type Sender struct {
	Secrets providers.Secrets
	Host    string
	Port    int
	TLS     string // starttls, tls or none
	User    string // "" signs in as nobody
	// PasswordRef names the secret that holds the password of the user.
	PasswordRef string
	From        string
	Roots       *x509.CertPool // nil means the system's
}

// Message is one message to one recipient. ID is its Message-ID, the same at every attempt.
type Message struct {
	ID, To, Subject, Text string
	At                    time.Time
}

const op = "mail.send"

// Send sends one message. Its errors hold no answer of the server. KindInvalid means that no
// repetition will help.
func (s *Sender) Send(ctx context.Context, m Message) error {
	ctx, cancel := context.WithTimeout(ctx, Limit)
	defer cancel()
	msg := gomail.NewMsg()
	if err := errors.Join(msg.From(s.From), msg.To(m.To)); err != nil {
		return &providers.Error{Kind: providers.KindInvalid, Op: op, Message: "an address cannot be used", Err: err}
	}
	msg.SetMessageIDWithValue(m.ID)
	msg.SetDateWithValue(m.At)
	msg.SetGenHeader("Auto-Submitted", "auto-generated")
	msg.Subject(m.Subject)
	msg.SetBodyString(gomail.TypeTextPlain, m.Text)
	client, err := s.client(ctx)
	if err != nil {
		return err
	}
	if err := client.DialAndSendWithContext(ctx, msg); err != nil {
		return sendFailure(err)
	}
	return nil
}

func sendFailure(err error) error {
	var refused *gomail.SendError
	if errors.As(err, &refused) && !refused.IsTemp() && refused.ErrorCode() >= 500 {
		return &providers.Error{
			Kind: providers.KindInvalid, Op: op, Err: err,
			Message: fmt.Sprintf("the mail server refused the message with status %d", refused.ErrorCode()),
		}
	}
	return &providers.Error{Kind: providers.KindUnavailable, Op: op, Message: "the mail server did not take the message", Err: err}
}

func (s *Sender) client(ctx context.Context) (*gomail.Client, error) {
	options := []gomail.Option{
		gomail.WithPort(s.Port), gomail.WithTimeout(Limit),
		gomail.WithTLSConfig(&tls.Config{MinVersion: tls.VersionTLS12, ServerName: s.Host, RootCAs: s.Roots}),
	}
	switch s.TLS {
	case "tls":
		options = append(options, gomail.WithSSL())
	case "none":
		options = append(options, gomail.WithTLSPolicy(gomail.NoTLS))
	default:
		options = append(options, gomail.WithTLSPolicy(gomail.TLSMandatory))
	}
	if s.User != "" {
		password, err := s.Secrets.Resolve(ctx, providers.SecretRef(s.PasswordRef),
			providers.Use{Kind: spec.SecretSMTPPassword, Address: net.JoinHostPort(s.Host, strconv.Itoa(s.Port))})
		if err != nil {
			return nil, err
		}
		options = append(options, gomail.WithUsername(s.User), gomail.WithPassword(password.Reveal()), gomail.WithSMTPAuth(gomail.SMTPAuthPlain))
	}
	client, err := gomail.NewClient(s.Host, options...)
	if err != nil {
		return nil, &providers.Error{Kind: providers.KindInvalid, Op: op, Message: "the settings of the mail server cannot be used", Err: err}
	}
	return client, nil
}
