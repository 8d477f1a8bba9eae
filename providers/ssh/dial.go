package ssh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/slipway-cloud/slipway/providers"
)

const opDial = "ssh.dial"

// login is what one handshake uses and what became of it.
type login struct {
	config   *ssh.ClientConfig
	pin      ssh.PublicKey
	offered  bool   // a credential was about to be sent
	mismatch string // fingerprint of the key that was not the pinned one
}

// dial connects and authenticates within t.HandshakeTimeout (and ctx). The
// connection is closed when the time is up, because ssh.ClientConfig.Timeout
// covers the TCP connect only and a silent server would hold the handshake for
// ever.
func dial(ctx context.Context, t providers.SSHTarget) (*ssh.Client, error) {
	signer, err := parseCredential(t.PrivateKeyPEM, t.CertificateAuthorized)
	if err != nil {
		return nil, err
	}
	return connect(ctx, t, signer)
}

// connect is dial with these keys, which are tried in this order.
func connect(ctx context.Context, t providers.SSHTarget, signers ...ssh.Signer) (*ssh.Client, error) {
	l, err := newLogin(t, signers)
	if err != nil {
		return nil, err
	}
	return l.handshake(ctx, t)
}

// handshake connects and authenticates.
func (l *login) handshake(ctx context.Context, t providers.SSHTarget) (*ssh.Client, error) {
	timeout := t.HandshakeTimeout
	if timeout <= 0 {
		timeout = defaultHandshakeTimeout
	}
	hctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	conn, err := openConn(hctx, t, timeout)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(hctx, func() { _ = conn.Close() })
	c, chans, reqs, err := ssh.NewClientConn(conn, t.Address, l.config)
	inTime := stop()
	if err != nil {
		_ = conn.Close()
		return nil, l.classify(t.Address, inTime, err)
	}
	if !inTime {
		_ = conn.Close()
		return nil, failure(providers.KindUnreachable, opDial, hctx.Err(), "the SSH handshake with %s did not finish in time", t.Address)
	}
	return ssh.NewClient(c, chans, reqs), nil
}

// openConn connects to the node, through its jump host where there is one.
func openConn(ctx context.Context, t providers.SSHTarget, timeout time.Duration) (net.Conn, error) {
	if t.Jump != nil {
		return openJumped(ctx, t)
	}
	conn, err := providers.NewDialer(t.Rule, timeout).DialContext(ctx, "tcp", t.Address)
	if providers.IsRefusedAddress(err) {
		return nil, failure(providers.KindInvalid, opDial, err, "%s may not be connected to: %v", t.Address, err)
	}
	if err != nil {
		return nil, failure(providers.KindUnreachable, opDial, err, "cannot connect to %s", t.Address)
	}
	return conn, nil
}

// openJumped connects to the node from its jump host. The agent is not forwarded: the jump host
// sees only the encrypted connection.
func openJumped(ctx context.Context, t providers.SSHTarget) (net.Conn, error) {
	if t.Jump.Jump != nil {
		return nil, failure(providers.KindInvalid, opDial, nil, "a jump host cannot have a jump host")
	}
	address, err := netip.ParseAddrPort(t.Address)
	if err != nil {
		return nil, failure(providers.KindInvalid, opDial, nil, "the address of a node behind a jump host must be an IP address and a port")
	}
	if err := t.Rule.Check(address); err != nil {
		return nil, failure(providers.KindInvalid, opDial, err, "%s may not be connected to: %v", t.Address, err)
	}
	jump, err := dial(ctx, *t.Jump)
	if err != nil {
		return nil, err
	}
	conn, err := jump.DialContext(ctx, "tcp", t.Address)
	if err != nil {
		_ = jump.Close()
		return nil, failure(providers.KindUnreachable, opDial, err, "the jump host %s cannot connect to %s", t.Jump.Address, t.Address)
	}
	return jumpedConn{conn, jump}, nil
}

// jumpedConn is a connection that ends together with the one to its jump host.
type jumpedConn struct {
	net.Conn
	jump *ssh.Client
}

// Close closes the connection to the jump host: closing the tunnel alone would wait for the peer.
func (c jumpedConn) Close() error { return c.jump.Close() }

func newLogin(t providers.SSHTarget, signers []ssh.Signer) (*login, error) {
	host, port, err := net.SplitHostPort(t.Address)
	if err != nil || host == "" || port == "" {
		return nil, failure(providers.KindInvalid, opDial, nil, "the node's SSH address must be host:port")
	}
	if t.User == "" {
		return nil, failure(providers.KindInvalid, opDial, nil, "no login user is set for %s", t.Address)
	}
	pin, err := parsePin(t.HostKey)
	if err != nil {
		return nil, err
	}
	l := &login{pin: pin}
	l.config = &ssh.ClientConfig{
		User: t.User,
		Auth: []ssh.AuthMethod{ssh.PublicKeysCallback(func() ([]ssh.Signer, error) {
			l.offered = true
			return signers, nil
		})},
		HostKeyAlgorithms: pinAlgorithms(pin),
		HostKeyCallback:   l.checkHostKey,
		ClientVersion:     "SSH-2.0-slipway",
	}
	return l, nil
}

var errPin = errors.New("host key differs from the pinned one")

func (l *login) checkHostKey(_ string, _ net.Addr, key ssh.PublicKey) error {
	if bytes.Equal(key.Marshal(), l.pin.Marshal()) {
		return nil
	}
	l.mismatch = ssh.FingerprintSHA256(key)
	return errPin
}

// classify turns a failed handshake into a provider error. A login counts as
// rejected only when the host key was accepted, a credential was offered and
// the connection did not simply break.
func (l *login) classify(addr string, inTime bool, err error) error {
	var algorithms *ssh.AlgorithmNegotiationError
	var netErr net.Error
	switch {
	case l.mismatch != "":
		return failure(providers.KindPinMismatch, opDial, err,
			"%s showed host key %s, but %s is recorded for this node; find out why before approving the new one",
			addr, l.mismatch, ssh.FingerprintSHA256(l.pin))
	case !inTime:
		return failure(providers.KindUnreachable, opDial, err, "the SSH handshake with %s did not finish in time", addr)
	case errors.As(err, &algorithms) && algorithms.What == "host key":
		return failure(providers.KindPinMismatch, opDial, err,
			"%s has no host key of the recorded type %s; find out why before approving another one", addr, l.pin.Type())
	case errors.As(err, &algorithms):
		return failure(providers.KindProtocol, opDial, err, "%s and Slipway have no common SSH %s algorithm", addr, algorithms.What)
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed), errors.As(err, &netErr):
		return failure(providers.KindUnreachable, opDial, err, "%s broke off the SSH handshake", addr)
	case l.offered:
		return failure(providers.KindUnauthorized, opDial, err, "%s rejected the login of user %q", addr, l.config.User)
	default:
		return failure(providers.KindProtocol, opDial, err, "the SSH handshake with %s failed", addr)
	}
}

// parsePin reads the recorded host key. A certificate is no pin.
func parsePin(authorized string) (ssh.PublicKey, error) {
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(authorized))
	if err != nil {
		return nil, failure(providers.KindInvalid, opDial, err,
			"the recorded host key cannot be read; it must be one line such as \"ssh-ed25519 AAAA...\"")
	}
	if _, isCert := key.(*ssh.Certificate); isCert {
		return nil, failure(providers.KindInvalid, opDial, nil,
			"the recorded host key is a certificate; record the plain key of the node")
	}
	return key, nil
}

// pinAlgorithms restricts the handshake to the pinned key, so that neither a
// host certificate nor another of the server's keys is negotiated. An RSA key
// signs with SHA-2 only.
func pinAlgorithms(pin ssh.PublicKey) []string {
	if pin.Type() == ssh.KeyAlgoRSA {
		return []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
	}
	return []string{pin.Type()}
}

// parseCredential reads the login key and, when there is one, its user
// certificate. The causes are dropped: a parser's words could repeat the key.
func parseCredential(pem providers.Secret, certificate string) (ssh.Signer, error) {
	signer, err := ssh.ParsePrivateKey([]byte(pem.Reveal()))
	if err != nil {
		return nil, failure(providers.KindInvalid, opDial, nil,
			"the login key cannot be read; it must be an unencrypted private key in PEM form")
	}
	if certificate == "" {
		return signer, nil
	}
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(certificate))
	if err != nil {
		return nil, failure(providers.KindInvalid, opDial, nil, "the login certificate cannot be read")
	}
	cert, isCert := key.(*ssh.Certificate)
	if !isCert || cert.CertType != ssh.UserCert {
		return nil, failure(providers.KindInvalid, opDial, nil, "the login certificate is not an SSH user certificate")
	}
	certSigner, err := ssh.NewCertSigner(cert, signer)
	if err != nil {
		return nil, failure(providers.KindInvalid, opDial, nil, "the login certificate belongs to another key")
	}
	return certSigner, nil
}

// failure builds the provider error; cause may be nil.
func failure(kind providers.Kind, op string, cause error, format string, args ...any) error {
	return &providers.Error{Kind: kind, Op: op, Message: fmt.Sprintf(format, args...), Err: cause}
}
