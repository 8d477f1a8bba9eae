package ssh

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/slipway-cloud/slipway/providers"
)

const (
	opVerify = "ssh.verify_host"
	opOffer  = "ssh.offer_key"
	opLogin  = "ssh.login"
)

var (
	_ providers.KeyProbe  = (*Runner)(nil)
	_ providers.HostProbe = (*Runner)(nil)
)

// errVerified ends a connection whose server has proven that it has the pinned host key.
var errVerified = errors.New("the host key is verified; nothing else is asked")

// VerifyHost implements providers.HostProbe. The key exchange, which the server has signed with its
// host key, comes before the client names a user.
func (r *Runner) VerifyHost(ctx context.Context, t providers.SSHTarget) error {
	if t.Jump != nil {
		return failure(providers.KindInvalid, opVerify, nil, "a node behind a jump host is not probed: what fails there may be the jump host")
	}
	t.User = "nobody" // it is never sent
	l, err := newLogin(t, nil)
	if err != nil {
		return err
	}
	verified := false
	l.config.HostKeyCallback = func(host string, from net.Addr, key ssh.PublicKey) error {
		if err := l.checkHostKey(host, from, key); err != nil {
			return err
		}
		verified = true
		return errVerified
	}
	client, err := l.handshake(ctx, t)
	if client != nil {
		_ = client.Close()
	}
	if verified {
		return nil
	}
	return err
}

// errNothingSigned ends a login in which the node has accepted an offered key.
var errNothingSigned = errors.New("the key is offered only; nothing is signed")

// offeredKey is a public key without a private one. RFC 4252 section 7 lets a client ask whether a
// key would be accepted before it signs. A key that is asked for its signature was accepted; the
// next one in the list is asked for its public key only after the node has refused this one.
type offeredKey struct {
	public          ssh.PublicKey
	asked, accepted bool
}

func (k *offeredKey) PublicKey() ssh.PublicKey {
	k.asked = true
	return k.public
}

func (k *offeredKey) Sign(io.Reader, []byte) (*ssh.Signature, error) {
	k.accepted = true
	return nil, errNothingSigned
}

func (k *offeredKey) SignWithAlgorithm(r io.Reader, data []byte, _ string) (*ssh.Signature, error) {
	return k.Sign(r, data)
}

// OfferKey implements providers.KeyProbe. Three keys are offered: a random one, which nobody could
// have authorized, the key in question, and the random one again. A node that accepts the random
// one accepts anything, and what it says of the other is worth nothing. Only a node that goes on to
// the third has refused the second, so that a connection that breaks is no refusal.
func (r *Runner) OfferKey(ctx context.Context, t providers.SSHTarget, publicKey string) (bool, error) {
	key, _, options, rest, err := ssh.ParseAuthorizedKey([]byte(publicKey))
	if err != nil || len(options) > 0 || len(strings.TrimSpace(string(rest))) > 0 {
		return false, failure(providers.KindInvalid, opOffer, nil, "the key to be offered is not one public key without options")
	}
	random, err := randomKey()
	if err != nil {
		return false, failure(providers.KindInvalid, opOffer, err, "no key could be made for the comparison")
	}
	before, offered, after := &offeredKey{public: random}, &offeredKey{public: key}, &offeredKey{public: random}
	client, err := connect(ctx, t, before, offered, after)
	switch {
	case err == nil:
		_ = client.Close()
		return false, failure(providers.KindProtocol, opOffer, nil, "%s lets user %q in without any key", t.Address, t.User)
	case before.accepted, after.accepted:
		return false, failure(providers.KindProtocol, opOffer, nil, "%s accepts a key of user %q that was made a moment ago; it would accept any", t.Address, t.User)
	case offered.accepted:
		return true, nil
	case after.asked:
		return false, nil
	case providers.IsKind(err, providers.KindUnauthorized):
		return false, failure(providers.KindProtocol, opOffer, err, "%s ended the connection before it had answered for the offered key", t.Address)
	}
	return false, err
}

func randomKey() (ssh.PublicKey, error) {
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	return ssh.NewPublicKey(public)
}

// Login implements providers.KeyProbe.
func (r *Runner) Login(ctx context.Context, t providers.SSHTarget) (int, error) {
	res, err := r.RunSSH(ctx, t, providers.SSHCommand{Argv: []string{"id", "-u"}, MaxOutput: 1 << 10})
	if err != nil {
		return 0, err
	}
	uid, perr := strconv.Atoi(strings.TrimSpace(string(res.Stdout)))
	if res.ExitCode != 0 || perr != nil || uid < 0 {
		return 0, failure(providers.KindProtocol, opLogin, nil, "user %q logged in to %s, and `id -u` there ended with status %d and no uid", t.User, t.Address, res.ExitCode)
	}
	return uid, nil
}
