package server_test

import (
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/internal/config"
	"github.com/slipway-cloud/slipway/internal/server"
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
			all.Go(func() { _, err := server.Migrate(t.Context(), cfg, false); assert.NoError(t, err, name) })
		}
		all.Wait()
		first, err := open()
		require.NoError(t, err)
		_, err = server.Migrate(t.Context(), cfg, true)
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
	_, err := server.Migrate(t.Context(), cfg, false)
	require.ErrorContains(t, err, "--new-node-ca")
	_, err = server.Migrate(t.Context(), cfg, true)
	require.NoError(t, err)
}

type testLog struct{ t *testing.T }

func (l testLog) Write(p []byte) (int, error) { l.t.Log(string(p)); return len(p), nil }
