package server_test

import (
	"crypto/rand"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/assembly/server"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/internal/config"
	"github.com/slipway-cloud/slipway/internal/signing"
	"github.com/slipway-cloud/slipway/providers"
)

func TestNodeCA_CreatedOnceByMigrate(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	dir := t.TempDir()
	for name, where := range map[string]config.Agent{
		"secret": {CARef: "slipway/node-ca"}, "folder": {CADir: filepath.Join(dir, "ca")},
	} {
		cfg := config.Default()
		cfg.Database.URL, cfg.Secrets.KeyFile = dsn, filepath.Join(dir, "key")
		cfg.Database.OwnerURL = dbtest.OwnerDSN(t, dsn)
		cfg.Agent.CARef, cfg.Agent.CADir, cfg.Agent.CertTTL = where.CARef, where.CADir, time.Hour
		open := func() (string, error) {
			app, err := server.Open(t.Context(), cfg, testLog{t})
			if err != nil {
				return "", err
			}
			defer app.Close()
			return string(app.CA.CertPEM()), nil
		}
		for range 2 {
			_, err := open()
			require.ErrorContains(t, err, "run slipwayd migrate", name)
		}
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { _, err := server.Migrate(t.Context(), cfg, server.NewCA{}); assert.NoError(t, err, name) })
		}
		all.Wait()
		first, err := open()
		require.NoError(t, err)
		_, err = server.Migrate(t.Context(), cfg, server.NewCA{Replace: true})
		require.NoError(t, err)
		again, err := open()
		require.NoError(t, err)
		require.Equal(t, first, again, "one that is there stays, whatever is asked for")
	}
}

func TestNodeCA_NotReplacedUnderAgents(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	store := dbtest.Open(t, dsn)
	n := dbtest.Node(t, store)
	require.NoError(t, store.Tx(t.Context(), func(tx *db.Tx) error {
		return tx.SaveAgentIdentity(t.Context(), db.AgentCertificate{NodeID: n.ID, Generation: 1, Serial: "1", KeyHash: make([]byte, 32), CertPEM: "PEM",
			NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour)})
	}))
	cfg := config.Default()
	cfg.Database.URL, cfg.Database.OwnerURL = dsn, dbtest.OwnerDSN(t, dsn)
	cfg.Agent.CADir = filepath.Join(t.TempDir(), "ca")
	_, err := server.Migrate(t.Context(), cfg, server.NewCA{})
	require.ErrorContains(t, err, "--new-node-ca")
	_, err = server.Migrate(t.Context(), cfg, server.NewCA{Replace: true})
	require.NoError(t, err)
}

// TestNodeCA_KeeperKeyLost has the key file replaced that sealed the CA: only the word that nobody
// has the old key makes another CA. Every agent's identity is locked by it, and the control plane
// starts.
func TestNodeCA_KeeperKeyLost(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	store := dbtest.Open(t, dsn)
	n := dbtest.Node(t, store)
	cfg := config.Default()
	cfg.Database.URL, cfg.Database.OwnerURL = dsn, dbtest.OwnerDSN(t, dsn)
	cfg.Secrets.KeyFile, cfg.Agent.CARef, cfg.Agent.CertTTL = filepath.Join(t.TempDir(), "key"), "slipway/node-ca", time.Hour
	open := func() (ca string, err error) {
		app, err := server.Open(t.Context(), cfg, testLog{t})
		if err != nil {
			return "", err
		}
		defer app.Close()
		if _, err = app.Secrets.Put(t.Context(), "bmc/login", providers.NewSecret(rand.Text())); err != nil {
			return "", err
		}
		return string(app.CA.CertPEM()), nil
	}
	_, err := server.Migrate(t.Context(), cfg, server.NewCA{})
	require.NoError(t, err)
	before, err := open()
	require.NoError(t, err)
	first, err := server.Open(t.Context(), cfg, testLog{t})
	require.NoError(t, err)
	_, err = (&signing.Ring{Store: first.Store, Secrets: first.Secrets}).Sign(t.Context(), signing.Tasks, []byte("task"))
	require.NoError(t, err)
	first.Close()
	require.NoError(t, store.Tx(t.Context(), func(tx *db.Tx) error {
		return tx.SaveAgentIdentity(t.Context(), db.AgentCertificate{NodeID: n.ID, Generation: 1, Serial: "1", KeyHash: make([]byte, 32), CertPEM: "PEM",
			NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour)})
	}))
	locked := func() string {
		id, err := store.AgentIdentity(t.Context(), n.ID)
		require.NoError(t, err)
		return id.LockedReason
	}
	_, err = server.Migrate(t.Context(), cfg, server.NewCA{Replace: true, KeeperKeyLost: true})
	require.NoError(t, err)
	same, err := open()
	require.NoError(t, err)
	require.Equal(t, before, same, "one that opens stays, whatever is asked for")

	old := cfg.Secrets.KeyFile
	cfg.Secrets.KeyFile = filepath.Join(t.TempDir(), "key")
	for _, o := range []server.NewCA{{}, {Replace: true}} {
		_, err = server.Migrate(t.Context(), cfg, o)
		require.ErrorContains(t, err, "--keeper-key-lost", "it may only be the wrong key file")
	}
	require.Empty(t, locked())
	pinned := cfg
	pinned.Agent.CARef += "@1"
	_, err = server.Migrate(t.Context(), pinned, server.NewCA{Replace: true, KeeperKeyLost: true})
	require.ErrorContains(t, err, "previous keepers", "a version that is named is not replaced")
	require.Empty(t, locked())

	_, err = server.Migrate(t.Context(), cfg, server.NewCA{Replace: true, KeeperKeyLost: true})
	require.NoError(t, err)
	require.Contains(t, locked(), "needs a new token")
	rows, err := store.ResourceTimeline(t.Context(), "node_ca", "node_ca", 0, 10)
	require.NoError(t, err)
	require.Len(t, rows, 1)
	after, err := open()
	require.NoError(t, err, "the control plane starts, and secrets can be put again")
	require.NotEqual(t, before, after)
	app, err := server.Open(t.Context(), cfg, testLog{t})
	require.NoError(t, err)
	t.Cleanup(app.Close)
	ring := &signing.Ring{Store: app.Store, Secrets: app.Secrets}
	_, err = ring.Sign(t.Context(), signing.Tasks, []byte("task"))
	require.Error(t, err, "the old signing key is lost too")
	_, err = ring.Rotate(t.Context(), signing.Tasks, 0)
	require.NoError(t, err)
	_, err = ring.Sign(t.Context(), signing.Tasks, []byte("task"))
	require.NoError(t, err)

	// The old key came to light after all: what it sealed opens again, and the new CA stays.
	cfg.Secrets.PreviousKeyFile = old
	last, err := open()
	require.NoError(t, err)
	require.Equal(t, after, last)
}

type testLog struct{ t *testing.T }

func (l testLog) Write(p []byte) (int, error) { l.t.Log(string(p)); return len(p), nil }
