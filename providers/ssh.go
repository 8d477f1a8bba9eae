package providers

import (
	"context"
	"time"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// SSHTarget is one node and how to log in to it.
type SSHTarget struct {
	Address string // host:port
	// Rule bounds the addresses that may be connected to; the zero value refuses all.
	Rule spec.AddressRule
	User string
	// HostKey is the pinned public key in authorized_keys form, from the
	// node record.
	HostKey string
	// PrivateKeyPEM is the login key, CertificateAuthorized an optional user
	// certificate in authorized_keys form.
	PrivateKeyPEM         Secret
	CertificateAuthorized string
	HandshakeTimeout      time.Duration // 0 = 10 s
	// Jump is the host through which the node is reached, with a pin and a credential of its own;
	// nil for none. A node behind it needs an IP address: the jump host must not choose what a name
	// means.
	Jump *SSHTarget
}

// Credentials returns the private keys of the target and of its jump host.
func (t SSHTarget) Credentials() []Secret {
	if t.Jump == nil {
		return []Secret{t.PrivateKeyPEM}
	}
	return append(t.Jump.Credentials(), t.PrivateKeyPEM)
}

// SSHCommand is one bounded remote command. Argv is a fixed template: it is
// quoted word by word and never built from API input.
type SSHCommand struct {
	Argv  []string
	Stdin []byte
	// Secrets are the secret parts of Stdin: the result and errors repeat none of them.
	Secrets   []Secret
	Timeout   time.Duration // ends the remote processes too; 0 = 30 s
	MaxOutput int           // bytes kept of stdout and of stderr each; 0 = 64 KiB
	// OpID, when set, makes the command run at most once per node: a wrapper
	// keeps its exit status and output under /var/lib/slipway/ops/OpID and a
	// repeated run reads those instead.
	OpID string
}

// SSHResult is how a command ended. ExitCode 124 means the deadline.
type SSHResult struct {
	ExitCode  int
	Stdout    []byte
	Stderr    []byte
	Truncated bool
}

// SSHRunner runs commands on nodes. A lost connection is KindUncertain, never
// "failed"; a wrong host key is KindPinMismatch and is refused before any
// credential is offered.
type SSHRunner interface {
	RunSSH(ctx context.Context, t SSHTarget, c SSHCommand) (SSHResult, error)
}

// HostProbe finds out from outside whether the SSH server of a node answers.
type HostProbe interface {
	// VerifyHost connects to t.Address, has the server prove that it has the private key of
	// t.HostKey, and ends the connection before any login: User and credentials of t are not used.
	//
	// Errors: KindPinMismatch for another host key, KindUnreachable, KindProtocol for a server with
	// which no connection can be made, and KindInvalid for a target with which nothing was tried:
	// t.Rule refuses its address, its pin cannot be read, or it has a jump host.
	VerifyHost(ctx context.Context, t SSHTarget) error
}

// KeyProbe finds out from outside who may log in to a node by SSH. The node's host key is pinned as
// for SSHRunner.
type KeyProbe interface {
	// OfferKey reports whether the node would let t.User log in with this public key, one line in
	// authorized_keys form. It needs no private key and signs nothing: the node says by itself
	// whether it would take a signature. t.PrivateKeyPEM is not used. An error says nothing about
	// the key: a connection that broke is no refusal. A node that would take any key is
	// KindProtocol.
	OfferKey(ctx context.Context, t SSHTarget, publicKey string) (accepted bool, err error)
	// Login logs in as t.User with t.PrivateKeyPEM, runs `id -u` and returns the uid that it says.
	Login(ctx context.Context, t SSHTarget) (uid int, err error)
}
