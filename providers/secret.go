package providers

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// Secret is a value that must not leave the process by accident: it prints, logs and marshals as
// [secret]. Reveal is the one way out. The value is behind a pointer because package fmt calls no
// method of what stands in an unexported field; there it prints an address.
type Secret struct{ value *string }

// NewSecret wraps a value.
func NewSecret(v string) Secret { return Secret{&v} }

// Reveal returns the value; call it only where it is sent.
func (s Secret) Reveal() string {
	if s.value == nil {
		return ""
	}
	return *s.value
}

// IsZero reports whether there is no value.
func (s Secret) IsZero() bool { return s.Reveal() == "" }

func (Secret) String() string { return Hidden }

// Format keeps the value out of every verb of package fmt.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, Hidden) }

// LogValue keeps the value out of structured logs.
func (Secret) LogValue() slog.Value { return slog.StringValue(Hidden) }

// MarshalJSON keeps the value out of payloads and histories.
func (Secret) MarshalJSON() ([]byte, error) { return json.Marshal(Hidden) }

// MarshalText keeps the value out of YAML, XML and keys of JSON objects.
func (Secret) MarshalText() ([]byte, error) { return []byte(Hidden), nil }

// GobEncode keeps the value out of gob streams.
func (Secret) GobEncode() ([]byte, error) { return []byte(Hidden), nil }

// SecretRef names a secret and optionally a version: "bmc/rack1-u3" or
// "bmc/rack1-u3@2". Without a version the newest enabled one is meant.
type SecretRef string

// Use is the one thing that a secret is resolved for.
type Use struct {
	Kind spec.SecretKind
	// Site and Node are ids, "" where the target belongs to none.
	Site, Node string
	// Address is where the value is sent: a URL, host or host:port; "" where it is sent nowhere.
	Address string
}

// OwnUse returns the use of what Slipway stores for itself, such as its keys and sealed user-data.
func OwnUse() Use { return Use{Kind: spec.SecretInternal} }

// Secrets resolves references. The value of a BMC login is JSON:
// {"username": "...", "password": "..."}.
type Secrets interface {
	// Resolve reads one secret for a use. It returns KindNotFound when there is no such secret, and
	// KindInvalid, before it opens the value, when the secret was not stored for this use or the
	// address is not one that the site allows.
	Resolve(ctx context.Context, ref SecretRef, use Use) (Secret, error)
	// AddressRule checks ref, use and address as Resolve does, and returns the rule that every
	// connection for this use must keep, because a name may resolve to another address later. An
	// empty ref checks the address alone: for a connection without a login.
	AddressRule(ctx context.Context, ref SecretRef, use Use) (spec.AddressRule, error)
	// Put stores a new version and returns a reference that names it.
	// Putting the value that is already newest returns that version.
	Put(ctx context.Context, name string, value Secret) (SecretRef, error)
	// Seal seals a value as Put does, and stores nothing: the caller stores it together with other
	// rows.
	Seal(ctx context.Context, name string, value Secret) (SealedSecret, error)
	// Delete removes every version of a name; absent is success.
	Delete(ctx context.Context, name string) error
}

// SealedSecret is a value that is ready to be stored as a version of a name.
type SealedSecret struct {
	Name string
	// Newest is the newest version of the name, 0 for none. IsStored says that it has the value
	// already; nothing was sealed then. Otherwise the value opens only as a later version.
	Newest   int
	IsStored bool
	// KeeperURL, Ciphertext and Fingerprint are the columns of the version.
	KeeperURL               string
	Ciphertext, Fingerprint []byte
}

// Login is a user name and password kept as one secret, JSON
// {"username": "...", "password": "..."}.
type Login struct {
	Username string
	Password Secret
}

// ResolveLogin resolves a reference to a login for a use.
func ResolveLogin(ctx context.Context, s Secrets, ref SecretRef, use Use) (Login, error) {
	raw, err := s.Resolve(ctx, ref, use)
	if err != nil {
		return Login{}, err
	}
	login, ok := ParseLogin(raw)
	if !ok {
		return Login{}, &Error{
			Kind: KindInvalid, Op: "secrets.login",
			Message: "secret " + string(ref) + ` is not a login; store {"username": "...", "password": "..."}`,
		}
	}
	return login, nil
}

// ParseLogin reads the value of a secret that is a login. It returns false for any other value.
func ParseLogin(value Secret) (Login, bool) {
	var v struct{ Username, Password string }
	if err := json.Unmarshal([]byte(value.Reveal()), &v); err != nil || v.Username == "" {
		return Login{}, false
	}
	return Login{v.Username, NewSecret(v.Password)}, true
}
