package signing_test

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/privileged"
	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/agent/taskkeys"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	evidencedb "github.com/slipway-cloud/slipway/db/evidence"
	"github.com/slipway-cloud/slipway/internal/signing"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/evidence"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/secrets"
)

func ring(t *testing.T, store *db.Store, keyFile string) *signing.Ring {
	t.Helper()
	sec, err := secrets.Open(t.Context(), store, secrets.Keeper{KeyFile: keyFile}, secrets.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sec.Close()) })
	return &signing.Ring{Store: store, Secrets: sec}
}

func TestManyProcessesShareOneKey(t *testing.T) {
	t.Parallel()
	store, keyFile := dbtest.Store(t), filepath.Join(t.TempDir(), "key")
	rings := []*signing.Ring{ring(t, store, keyFile), ring(t, store, keyFile), ring(t, store, keyFile)}
	got := make([]signing.Signature, len(rings))
	var all sync.WaitGroup
	for i, r := range rings {
		all.Go(func() {
			s, err := r.Sign(t.Context(), signing.Tasks, []byte("hello"))
			if err == nil {
				got[i] = s
			}
		})
	}
	all.Wait()
	keys, err := rings[0].Public(t.Context(), signing.Tasks)
	require.NoError(t, err)
	require.Len(t, keys, 1)
	for _, s := range got {
		require.Equal(t, keys[0].ID, s.KeyID)
		require.True(t, ed25519.Verify(keys[0].Public, []byte("hello"), s.Bytes))
	}
	other, err := rings[0].Sign(t.Context(), signing.Certificates, []byte("hello"))
	require.NoError(t, err)
	require.NotEqual(t, got[0].KeyID, other.KeyID, "a key for each purpose")
}

func TestARetiredKeyStillVerifies(t *testing.T) {
	t.Parallel()
	store, keyFile := dbtest.Store(t), filepath.Join(t.TempDir(), "key")
	r := ring(t, store, keyFile)
	first, err := r.Sign(t.Context(), signing.Certificates, []byte("one"))
	require.NoError(t, err)
	require.NoError(t, evidencedb.RetireSigningKey(t.Context(), store, first.KeyID))
	require.NoError(t, evidencedb.RetireSigningKey(t.Context(), store, first.KeyID), "repeatable")
	second, err := r.Sign(t.Context(), signing.Certificates, []byte("two"))
	require.NoError(t, err)
	require.NotEqual(t, first.KeyID, second.KeyID)
	keys, err := r.Public(t.Context(), signing.Certificates)
	require.NoError(t, err)
	require.Len(t, keys, 2)
	require.True(t, ed25519.Verify(keys[0].Public, []byte("one"), first.Bytes))
}

func TestCertificatesOfANodeAreOneChain(t *testing.T) {
	t.Parallel()
	store := dbtest.Store(t)
	r := ring(t, store, filepath.Join(t.TempDir(), "key"))
	node := dbtest.Node(t, store)
	certificate := func(run string, verified bool) evidence.Certificate {
		return evidence.Certificate{
			Subject: evidence.Subject{NodeID: node.ID, SiteID: node.SiteID, Hostname: node.Hostname}, Run: evidence.Run{ID: run, Kind: "decommission"},
			Devices: []lifecycle.DeviceResult{{Kind: "disk", Name: "nvme0n1", Method: lifecycle.SanitizePurge, Verified: verified}},
			Verdict: evidence.VerdictClean, Sequence: 99, // whatever the caller says
		}
	}
	var all sync.WaitGroup
	errs := make(chan error, 8)
	for i := range 8 {
		all.Go(func() {
			_, err := r.Certify(t.Context(), certificate("job_"+string(rune('a'+i)), i%2 == 0))
			errs <- err
		})
	}
	all.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	bad, err := r.Certify(t.Context(), certificate("job_z", false))
	require.NoError(t, err)
	require.Equal(t, "not_verified", bad.Verdict, "the verdict is computed, not copied")
	good, err := r.Certify(t.Context(), certificate("job_z", true))
	require.NoError(t, err)
	require.Equal(t, bad.Sequence+1, good.Sequence, "a later proof of the same run is a new link")
	again, err := r.Certify(t.Context(), certificate("job_z", true))
	require.NoError(t, err)
	require.Equal(t, good.ID, again.ID, "the same proof twice is one certificate")

	b, err := r.Bundle(t.Context(), node.ID)
	require.NoError(t, err)
	certs, problems := evidence.Verify(b, b.Keys)
	require.Empty(t, problems)
	require.Len(t, certs, 10)
	b.Certificates = b.Certificates[:9]
	_, problems = evidence.Verify(b, b.Keys)
	require.NotEmpty(t, problems)
	empty, err := r.Bundle(t.Context(), "node_none")
	require.NoError(t, err)
	_, problems = evidence.Verify(empty, empty.Keys)
	require.Empty(t, problems)
}

// node is a keys file as a node's privileged half has it.
func node(t *testing.T) *privileged.KeyFile {
	t.Helper()
	return &privileged.KeyFile{Path: filepath.Join(t.TempDir(), "keys.json")}
}

// believes says whether a signature is one of a key that the node believes now.
func believes(t *testing.T, n *privileged.KeyFile, s signing.Signature, message []byte) bool {
	t.Helper()
	keys, err := n.Load()
	require.NoError(t, err)
	for _, k := range taskkeys.Valid(keys, time.Now()) {
		if k.KeyID == s.KeyID {
			return ed25519.Verify(k.Public, message, s.Bytes)
		}
	}
	return false
}

func TestARotationReachesNodesThatWereThereBefore(t *testing.T) {
	t.Parallel()
	store, conn := database(t)
	keyFile := filepath.Join(t.TempDir(), "key")
	r, other := ring(t, store, keyFile), ring(t, store, keyFile)
	message := []byte("a task")
	learn := func(n *privileged.KeyFile) {
		keys, err := other.TaskKeys(t.Context()) // as another process hands them out
		require.NoError(t, err)
		raw, err := json.Marshal(keys)
		require.NoError(t, err)
		var heard []protocol.TaskKey
		require.NoError(t, json.Unmarshal(raw, &heard))
		require.NoError(t, n.Adopt(heard))
	}
	sign := func() signing.Signature {
		s, err := r.Sign(t.Context(), signing.Tasks, message)
		require.NoError(t, err)
		return s
	}
	first := sign()
	n, away := node(t), node(t)
	learn(n)
	learn(away)
	require.True(t, believes(t, n, first, message))

	next, err := r.Rotate(t.Context(), signing.Tasks, time.Hour)
	require.NoError(t, err)
	require.NotEqual(t, first.KeyID, next.ID)
	require.Equal(t, first.KeyID, sign().KeyID, "the old key signs while nodes learn of the new one")
	learn(n)
	require.True(t, believes(t, n, first, message), "what is queued is still done")
	_, err = other.Rotate(t.Context(), signing.Tasks, time.Hour)
	require.ErrorIs(t, err, signing.ErrRotating, "repeated, it does not rotate again")

	run(t, conn, "UPDATE signing_keys SET created_at = created_at - interval '50 minutes', retired_at = retired_at - interval '50 minutes'")
	second := sign()
	require.Equal(t, next.ID, second.KeyID, "from the half of the overlap the new key signs")
	require.True(t, believes(t, n, second, message))
	require.True(t, believes(t, n, first, message), "and the old one counts until its end")
	require.False(t, believes(t, away, second, message), "who has not heard of it")

	stolen, err := r.Rotate(t.Context(), signing.Tasks, 0)
	require.NoError(t, err)
	third := sign()
	require.Equal(t, stolen.ID, third.KeyID, "without overlap the new key signs at once")
	learn(n)
	learn(away)
	for _, one := range []*privileged.KeyFile{n, away} {
		require.True(t, believes(t, one, third, message))
		require.False(t, believes(t, one, second, message))
		require.False(t, believes(t, one, first, message), "nothing older counts")
	}
	keys, err := r.TaskKeys(t.Context())
	require.NoError(t, err)
	run(t, conn, "DELETE FROM secret_versions WHERE name = 'slipway/signing/"+keys[0].KeyID+"'")
	left, err := ring(t, store, keyFile).TaskKeys(t.Context())
	require.NoError(t, err)
	keys[1].Link = nil
	require.Equal(t, keys[1:], left, "without the private half of an old key the list begins after it")
}

func TestManyProcessesRotateOnce(t *testing.T) {
	t.Parallel()
	store, conn := database(t)
	keyFile := filepath.Join(t.TempDir(), "key")
	first, err := ring(t, store, keyFile).Sign(t.Context(), signing.Tasks, []byte("x"))
	require.NoError(t, err)
	errs := make(chan error, 4)
	for range 4 {
		r := ring(t, store, keyFile)
		go func() { _, err := r.Rotate(t.Context(), signing.Tasks, time.Hour); errs <- err }()
	}
	done := 0
	for range 4 {
		if err := <-errs; err == nil {
			done++
		} else {
			require.ErrorIs(t, err, signing.ErrRotating)
		}
	}
	require.Equal(t, 1, done)
	keys, err := ring(t, store, keyFile).TaskKeys(t.Context())
	require.NoError(t, err)
	require.Len(t, keys, 2)
	require.Equal(t, first.KeyID, keys[0].KeyID)
	var secrets int
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM secret_versions WHERE name LIKE 'slipway/signing/%'").Scan(&secrets))
	require.Equal(t, 2, secrets, "who came second leaves no secret behind")
}

// broken is a secret store whose process ends right after something was sealed.
type broken struct {
	providers.Secrets
}

var errEnded = errors.New("the process ended")

func (b broken) Put(ctx context.Context, name string, v providers.Secret) (providers.SecretRef, error) {
	if _, err := b.Secrets.Put(ctx, name, v); err != nil {
		return "", err
	}
	return "", errEnded
}

func TestARotationThatIsBrokenOffChangesNothing(t *testing.T) {
	t.Parallel()
	store, keyFile := dbtest.Store(t), filepath.Join(t.TempDir(), "key")
	r := ring(t, store, keyFile)
	before, err := r.TaskKeys(t.Context())
	require.NoError(t, err)
	_, err = (&signing.Ring{Store: store, Secrets: broken{r.Secrets}}).Rotate(t.Context(), signing.Tasks, time.Hour)
	require.ErrorIs(t, err, errEnded)
	after, err := r.TaskKeys(t.Context())
	require.NoError(t, err)
	require.Equal(t, before, after)
	_, err = r.Rotate(t.Context(), signing.Tasks, time.Hour)
	require.NoError(t, err, "and it may be done again")
}

func TestGenerationsDoNotFollowTheClock(t *testing.T) {
	t.Parallel()
	store, conn := database(t)
	keyFile := filepath.Join(t.TempDir(), "key")
	r := ring(t, store, keyFile)
	before, err := r.TaskKeys(t.Context())
	require.NoError(t, err)
	run(t, conn, "UPDATE signing_keys SET created_at = now() + interval '1 day'") // the clock was wrong
	_, err = r.Rotate(t.Context(), signing.Tasks, 0)
	require.NoError(t, err)
	after, err := r.TaskKeys(t.Context())
	require.NoError(t, err)
	require.Len(t, after, 2)
	require.Equal(t, before[0].KeyID, after[0].KeyID)
	s, err := r.Sign(t.Context(), signing.Tasks, []byte("x"))
	require.NoError(t, err)
	require.Equal(t, after[1].KeyID, s.KeyID)
}

func database(t *testing.T) (*db.Store, *pgx.Conn) {
	t.Helper()
	dsn := dbtest.Database(t)
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close(context.Background())) })
	return dbtest.Open(t, dsn), conn
}

func run(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	_, err := conn.Exec(t.Context(), sql)
	require.NoError(t, err)
}
