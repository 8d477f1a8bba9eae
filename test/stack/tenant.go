package stack

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	"github.com/slipway-cloud/slipway/intent/allocation"
	"github.com/slipway-cloud/slipway/intent/tenancy"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// Tenant is a member of a project with one SSH key. The project may have nodes of one SKU.
type Tenant struct {
	Account string // the billing account
	Project string
	Member  tenancydb.Member
	Key     tenancydb.SSHKey
	Signer  ssh.Signer
	// Seed is the secret half of the key.
	Seed []byte
	sku  string
}

var tenantAdmin = db.Actor{Owner: lifecycle.OwnerAdmin, ID: "test"}

// NewTenant makes a tenant of a billing account of its own, and offers the SKU to all.
func NewTenant(ctx context.Context, store *db.Store, skuID, profileID string) (*Tenant, error) {
	out := &Tenant{sku: skuID}
	err := store.Tx(ctx, func(tx *db.Tx) error {
		account, err := tenancydb.CreateAccount(ctx, tx, db.NewID("account"), 1)
		if err != nil {
			return err
		}
		out.Account = account.ID
		p, err := tenancy.CreateProject(ctx, tx, tenancy.NewProject{AccountID: account.ID, Name: "project"}, tenantAdmin)
		if err != nil {
			return err
		}
		out.Project = p.ID
		if err := tenancydb.PutQuota(ctx, tx, p.ID, "", 10); err != nil {
			return err
		}
		_, err = tenancydb.PutOffer(ctx, tx, tenancydb.Offer{SKUID: skuID, ProfileID: profileID, Title: "one node", Isolation: "shared_network"})
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, out.join(ctx, store, "anna", lifecycle.RoleProjectOwner)
}

// AddMember makes another member of the tenant's project, with a key of its own.
func (t *Tenant) AddMember(ctx context.Context, store *db.Store, name string) (*Tenant, error) {
	out := &Tenant{Account: t.Account, Project: t.Project, sku: t.sku}
	return out, out.join(ctx, store, name, lifecycle.RoleProjectMember)
}

// join makes the member of the project, and its key.
func (t *Tenant) join(ctx context.Context, store *db.Store, name string, role lifecycle.ProjectRole) error {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return fmt.Errorf("make a tenant's key: %w", err)
	}
	t.Seed = private.Seed()
	if t.Signer, err = ssh.NewSignerFromKey(private); err != nil {
		return fmt.Errorf("use a tenant's key: %w", err)
	}
	key, err := tenancy.ParseSSHKey(string(ssh.MarshalAuthorizedKey(t.Signer.PublicKey())))
	if err != nil {
		return err
	}
	err = store.Tx(ctx, func(tx *db.Tx) error {
		m := tenancydb.NewMember{Subject: tenancy.SubjectPrefix + db.NewID("subject"), Name: name, Role: role}
		t.Member, err = tenancydb.AddMember(ctx, tx, t.Project, m)
		return err
	})
	if err != nil {
		return err
	}
	return store.ForProject(ctx, t.Project, func(tx *db.ProjectTx) error {
		t.Key, err = tenancydb.AddSSHKey(ctx, tx, tenancydb.SSHKey{
			MemberID: t.Member.ID, Name: name + "s laptop", Type: key.Type, PublicKey: key.PublicKey, Fingerprint: key.Fingerprint,
		})
		return err
	})
}

// Leave removes the member from the project with its key, and starts the jobs that take the key off
// nodes, as the API does.
func (t *Tenant) Leave(ctx context.Context, store *db.Store) error {
	err := store.ForProject(ctx, t.Project, func(tx *db.ProjectTx) error {
		return tenancydb.RemoveMember(ctx, tx, t.Member.ID, t.Member.Version)
	})
	if err != nil {
		return err
	}
	_, err = allocation.StartKeyJobs(ctx, store, t.Project, tenantAdmin, 1)
	return err
}

// waitsForNode is how long a tenant waits for a node, in seconds.
const waitsForNode = 600

// Allocate asks for a node as the API does. It waits for one; siteID "" stands for any site.
func (t *Tenant) Allocate(ctx context.Context, tx *db.Tx, siteID string) (allocation.Accepted, error) {
	return allocation.Create(ctx, tx, allocation.Request{ProjectID: t.Project, SKUID: t.sku, SiteID: siteID, WaitSeconds: waitsForNode, Actor: tenantAdmin})
}

// Run logs in as a connection says, to its pinned host key alone, and runs a command.
func (t *Tenant) Run(ctx context.Context, c *allocationdb.Connection, command string) (string, error) {
	host, _, _, _, err := ssh.ParseAuthorizedKey([]byte(c.HostKey))
	if err != nil {
		return "", fmt.Errorf("read the host key: %w", err)
	}
	client, err := t.dial(ctx, net.JoinHostPort(c.Host, strconv.Itoa(c.Port)), c.User, ssh.FixedHostKey(host))
	if err != nil {
		return "", err
	}
	defer func() { _ = client.Close() }()
	session, err := client.NewSession()
	if err != nil {
		return "", fmt.Errorf("open a session: %w", err)
	}
	out, err := session.Output(command)
	return strings.TrimSpace(string(out)), err
}

// IsAdmitted reports whether a node lets the tenant in with his own key, whatever host key it has.
// It returns an error when the node says neither.
func (t *Tenant) IsAdmitted(ctx context.Context, address, user string) (bool, error) {
	client, err := t.dial(ctx, address, user, ssh.InsecureIgnoreHostKey()) //nolint:gosec // to be let in by anybody is what is asked for
	switch {
	case err == nil:
		return true, client.Close()
	case strings.Contains(err.Error(), "unable to authenticate"):
		return false, nil
	}
	return false, err
}

// loginLimit is how long a login may take on a busy machine.
const loginLimit = time.Minute

func (t *Tenant) dial(ctx context.Context, address, user string, host ssh.HostKeyCallback) (*ssh.Client, error) {
	conf := &ssh.ClientConfig{User: user, Auth: []ssh.AuthMethod{ssh.PublicKeys(t.Signer)}, HostKeyCallback: host, Timeout: loginLimit}
	raw, err := (&net.Dialer{Timeout: conf.Timeout}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("reach the node: %w", err)
	}
	err = raw.SetDeadline(time.Now().Add(conf.Timeout))
	conn, channels, requests, herr := ssh.NewClientConn(raw, address, conf)
	if err = errors.Join(err, herr); err != nil {
		_ = raw.Close()
		return nil, fmt.Errorf("log in: %w", err)
	}
	return ssh.NewClient(conn, channels, requests), raw.SetDeadline(time.Time{})
}
