package instance

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	instancedb "github.com/slipway-cloud/slipway/db/instance"
	"github.com/slipway-cloud/slipway/internal/cloudinit"
	"github.com/slipway-cloud/slipway/providers"
)

// credentials are what one server and its worker are given. They are stored as one secret.
type credentials struct {
	HostKey, HostPublic   string // of sshd
	LoginKey, LoginPublic string // of ours
	APIKey                string // of vLLM
	Token                 string // of the worker, used once
}

// secretName returns the name of the secret that holds the credentials of an instance.
func secretName(id string) string { return "instances/" + id + "/worker" }

func openCredentials(ctx context.Context, s providers.Secrets, id string) (credentials, error) {
	var c credentials
	raw, err := s.Resolve(ctx, providers.SecretRef(secretName(id)), providers.OwnUse())
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal([]byte(raw.Reveal()), &c); err != nil {
		return c, &providers.Error{Kind: providers.KindProtocol, Op: "secrets.instance", Message: "the credentials of the instance are not readable; terminate it"}
	}
	return c, nil
}

func newCredentials() (credentials, error) {
	var c credentials
	for _, pair := range [][2]*string{{&c.HostKey, &c.HostPublic}, {&c.LoginKey, &c.LoginPublic}} {
		private, public, err := cloudinit.NewHostKey()
		if err != nil {
			return c, err
		}
		*pair[0], *pair[1] = private.Reveal(), public
	}
	for _, v := range []*string{&c.APIKey, &c.Token} {
		b := make([]byte, 32)
		if _, err := rand.Read(b); err != nil {
			return c, err
		}
		*v = base64.RawURLEncoding.EncodeToString(b)
	}
	return c, nil
}

// hash returns how a token is stored.
func hash(token string) []byte {
	sum := sha256.Sum256([]byte(token))
	return sum[:]
}

// PrepareServer makes the credentials of a server once, pins its host key and gives it to the first
// boot. Each repetition finds what the first one made: a server that has started has its host key
// for good.
func (a *Activities) PrepareServer(ctx context.Context, ref contract.JobRef) (contract.InstanceFacts, error) {
	t, err := a.open(ctx, ref)
	if err != nil {
		return contract.InstanceFacts{}, err
	}
	c, err := openCredentials(ctx, a.Secrets, t.i.ID)
	if providers.IsKind(err, providers.KindNotFound) {
		if c, err = newCredentials(); err != nil {
			return contract.InstanceFacts{}, fault.Internal(ctx, err)
		}
		raw, marshalErr := json.Marshal(c)
		if marshalErr != nil {
			return contract.InstanceFacts{}, fault.Internal(ctx, marshalErr)
		}
		_, err = a.Secrets.Put(ctx, secretName(t.i.ID), providers.NewSecret(string(raw)))
	}
	if err != nil {
		return contract.InstanceFacts{}, fault.Secret(ctx, err)
	}
	if t.i.HostKey != c.HostPublic {
		if err := instancedb.StoreCredentials(ctx, a.Store, t.i.ID, c.HostPublic, hash(c.Token)); err != nil {
			return contract.InstanceFacts{}, fault.Internal(ctx, err)
		}
	}
	if err := t.p.Cloud.SetUserData(ctx, t.ref(), providers.NewSecret(userData(c))); err != nil {
		return contract.InstanceFacts{}, fault.Cloud(ctx, err)
	}
	return t.facts("the host key of the server is pinned"), nil
}

// userData is what the first boot of a server reads. Every process on the server can read it too,
// so that it has no token and no key of ours.
func userData(c credentials) string {
	var b strings.Builder
	b.WriteString("#cloud-config\nssh_deletekeys: true\nssh_genkeytypes: []\nssh_keys:\n  ed25519_private: |\n")
	for line := range strings.SplitSeq(strings.TrimSpace(c.HostKey), "\n") {
		fmt.Fprintf(&b, "    %s\n", line)
	}
	fmt.Fprintf(&b, "  ed25519_public: %s\nssh_pwauth: false\ndisable_root: false\nssh_authorized_keys:\n  - %s\nusers:\n  - name: root\n    ssh_authorized_keys:\n      - %s\n",
		c.HostPublic, c.LoginPublic, c.LoginPublic)
	return b.String()
}
