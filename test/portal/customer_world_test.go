package portal_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/slipway-cloud/slipway/assembly/devserver/identity"
	"github.com/slipway-cloud/slipway/test/portal/browser"
	"github.com/slipway-cloud/slipway/test/stack"
)

// The price of a node of the customers' world: 19.93 USD an hour.
const customersRate = 1993

// customer is a user of the identity provider who is invited to own a project.
type customer struct {
	identity.User
	account, project string
}

// newCustomersWorld is a world with customers, an active node that they can order, and its price.
func newCustomersWorld(t *testing.T) (w *world, ada, bob *customer) {
	t.Helper()
	w = newWorld(t, stack.Options{Count: 1, WithIdentity: true})
	m := w.Sims.Fleet.All()[0]
	w.mustCall(t, http.MethodPost, "/api/v1/admin/onboarding-batches", object{
		"name": "rack 1", "site_id": w.Site.ID, "profile_id": w.Profile.ID, "sku_id": w.SKU.ID,
		"items": []object{{"hostname": hostOf(m), "bmc": object{"address": m.Spec().BMCAddress, "credential_ref": stack.BMCSecret(m.Spec().ID)}}},
	})
	w.mustCall(t, http.MethodPut, "/api/v1/admin/catalogue/"+w.SKU.ID, object{"profile_id": w.Profile.ID, "title": "Eight H100", "isolation": "shared_network"})
	price := object{"sku_id": w.SKU.ID, "currency": "USD", "rate_minor_per_hour": customersRate}
	price["plan_hash"] = w.mustCall(t, http.MethodPost, "/api/v1/admin/prices/plan", price)["plan_hash"]
	w.mustCall(t, http.MethodPost, "/api/v1/admin/prices", price)
	ada, bob = w.newCustomer(t, identity.Ada, "training"), w.newCustomer(t, identity.Bob, "serving")
	w.awaitStatus(t, hostOf(m), "active")
	return w, ada, bob
}

// newCustomer makes a billing account with a balance of 50.00 USD, and a project that a user is
// invited to own.
func (w *world) newCustomer(t *testing.T, name, project string) *customer {
	t.Helper()
	user, err := w.Identity.User(name)
	require.NoError(t, err)
	c := &customer{User: user}
	c.account, _ = w.mustCall(t, http.MethodPost, "/api/v1/admin/billing-accounts", object{"name": project})["id"].(string)
	c.project, _ = w.mustCall(t, http.MethodPost, "/api/v1/admin/projects", object{"name": project, "billing_account_id": c.account, "owner_email": user.Email})["id"].(string)
	w.mustCall(t, http.MethodPut, "/api/v1/admin/projects/"+c.project+"/quotas/total", object{"max_nodes": 2, "reason": "as agreed"})
	w.mustCall(t, http.MethodPost, "/api/v1/admin/adjustments", object{"billing_account_id": c.account, "project_id": c.project, "amount_minor": adjusted, "reason": "a welcome"})
	return c
}

// signInAs opens a path and signs in at the identity provider.
func (w *world) signInAs(p *browser.Page, c *customer, path string) {
	p.Allow(401, "/portal/session")
	p.Go(path)
	p.Click("link", "Sign in with your organisation")
	p.Fill("User name", c.Name)
	p.Fill("Password", c.Password)
	p.Click("button", "Sign in")
}

// keyPair is an SSH key of a customer: the line of its .pub file, and the file of its secret half.
type keyPair struct{ line, file string }

func newKeyPair(t *testing.T) keyPair {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	block, err := ssh.MarshalPrivateKey(private, "")
	require.NoError(t, err)
	public, err := ssh.NewPublicKey(private.Public())
	require.NoError(t, err)
	k := keyPair{strings.TrimSpace(string(ssh.MarshalAuthorizedKey(public))), filepath.Join(t.TempDir(), "id_ed25519")}
	require.NoError(t, os.WriteFile(k.file, pem.EncodeToMemory(block), 0o600))
	return k
}

// logIn runs a command on a node with OpenSSH's client, by the line that the page of the allocation
// offers to copy and the host key that it shows.
func logIn(t *testing.T, line, knownHost string, key keyPair, command string) string {
	t.Helper()
	words := strings.Fields(line)
	require.Equal(t, "ssh", words[0], line)
	client, err := exec.LookPath("ssh")
	require.NoError(t, err, "OpenSSH's client; install openssh-client")
	known := filepath.Join(t.TempDir(), "known_hosts")
	require.NoError(t, os.WriteFile(known, []byte(knownHost+"\n"), 0o600))
	args := []string{"-F", "none", "-i", key.file, "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=yes", "-o", "UserKnownHostsFile=" + known, "-o", "LogLevel=ERROR"}
	out, err := exec.CommandContext(t.Context(), client, append(append(args, words[1:]...), command)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return strings.TrimSpace(string(out))
}
