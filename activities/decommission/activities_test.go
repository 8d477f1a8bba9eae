package decommission_test

import (
	"crypto/sha256"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/activities/decommission"
	"github.com/slipway-cloud/slipway/activities/userdata"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

func TestAnAgentIsAliveSilentOrNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.Equal(t, contract.AgentNone, must(w, w.acts.LookAtLeaving, w.ref).Agent)
	w.enrol()
	f := must(w, w.acts.LookAtLeaving, w.ref)
	require.Equal(t, contract.AgentSilent, f.Agent)
	require.Contains(t, f.Note, "never")
	w.beat("boot-1", time.Hour, nil)
	require.Contains(t, must(w, w.acts.LookAtLeaving, w.ref).Note, "no heartbeat since")
	w.beat("boot-1", 0, nil)
	f = must(w, w.acts.LookAtLeaving, w.ref)
	require.Equal(t, contract.AgentAlive, f.Agent)
	require.Equal(t, "boot-1", f.BootID)
	require.NoError(t, w.store.LockAgentIdentity(t.Context(), w.ref.NodeID, "stolen"))
	require.Equal(t, contract.AgentNone, must(w, w.acts.LookAtLeaving, w.ref).Agent)
}

// TestAMoveIsMadeOnce and only by those who may.
func TestAMoveIsMadeOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	in := decommission.MoveIn{JobRef: w.ref, To: lifecycle.NodeQuarantined, Owner: lifecycle.OwnerDecommission, Note: "tested"}
	for range 2 {
		must(w, w.acts.MoveLeaving, in)
	}
	_, total, err := w.store.NodeHistory(t.Context(), w.ref.NodeID, 50, 0)
	require.NoError(t, err)
	require.EqualValues(t, 4, total, "made, enrolling, active, quarantined")
	in.To = lifecycle.NodeRetired
	require.Contains(t, fails(w, lifecycle.FailStateDisagreement, w.acts.MoveLeaving, in), "no such transition")
}

// TestAFreshBootIsAnotherThanTheScrubs.
func TestAFreshBootIsAnotherThanTheScrubs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.enrol()
	w.beat("boot-1", 0, nil)
	in := decommission.FreshBootIn{JobRef: w.ref, NotBootID: "boot-1", Poll: spec.Duration(10 * time.Millisecond)}
	go func() {
		time.AfterFunc(100*time.Millisecond, func() {
			_ = w.store.RecordHeartbeats(t.Context(), []db.Heartbeat{{NodeID: w.ref.NodeID, BootID: "boot-2", Generation: 1, ReceivedAt: time.Now()}})
		})
	}()
	require.Equal(t, "boot-2", must(w, w.acts.WaitForFreshBoot, in).BootID)
}

func TestAnIdentityIsShutOutForGood(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.True(t, must(w, w.acts.RevokeIdentity, w.ref).Done, "one that never was is none")
	w.enrol()
	require.False(t, must(w, w.acts.CheckIdentityRevoked, w.ref).Done)
	for range 2 {
		require.True(t, must(w, w.acts.RevokeIdentity, w.ref).Done)
	}
	id, err := w.store.AgentIdentity(t.Context(), w.ref.NodeID)
	require.NoError(t, err)
	require.NotNil(t, id.LockedAt)
	hash := sha256.Sum256([]byte("token"))
	token, err := w.store.EnrollmentToken(t.Context(), hash[:])
	require.NoError(t, err)
	require.NotNil(t, token.RevokedAt)
}

// TestSecretsGoButThoseThatOthersNeed.
func TestSecretsGoButThoseThatOthersNeed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ref   string
		share func(*world)
		gone  bool
		says  string
	}{
		"its own":         {"bmc/login@1", nil, true, "deleted"},
		"another BMC's":   {"bmc/login", func(w *world) { w.bmc(nil, "bmc/login@1") }, false, "used by BMC bmc_"},
		"the site's":      {"bmc/login", func(w *world) { dbtest.Site(w, w.store, func(p *dbtest.Params) { p.Site.SSHKeyRef = "bmc/login" }) }, false, "used by site"},
		"Slipway made it": {"bmc/rotated/bmc_1/rot_1", nil, false, "nobody else has it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			bmc := w.bmc(&w.ref.NodeID, c.ref)
			if c.share != nil {
				c.share(w)
			}
			secret, _, _ := strings.Cut(c.ref, "@")
			w.put(secret)
			w.put(userdata.Name(w.ref.JobID, 2))
			require.NoError(t, w.store.SetNodeHostKey(t.Context(), w.ref.NodeID, "ssh-ed25519 AAAA"))
			plan := must(w, w.acts.PlanLeaving, decommission.LeavingLook{In: w.ref})
			require.Equal(t, c.gone, len(plan.Deletes) == 1, "a plan says so first")
			for range 2 {
				f := must(w, w.acts.CleanSecrets, w.ref)
				require.True(t, f.Done)
				if bmc != "" {
					require.Contains(t, f.Note, c.says)
				}
				bmc = ""
				c.says = "deleted"
			}
			require.Equal(t, !c.gone, w.stored(secret))
			require.False(t, w.stored(userdata.Name(w.ref.JobID, 2)))
			_, err := w.store.BMCOfNode(t.Context(), w.ref.NodeID)
			require.ErrorIs(t, err, db.ErrNotFound, "the server can be onboarded as a new node")
			n, err := w.store.Node(t.Context(), w.ref.NodeID)
			require.NoError(t, err)
			require.Empty(t, n.SSHHostKey)
		})
	}
}

func (w *world) bmc(node *string, ref string) string {
	w.Helper()
	b, err := w.store.CreateBMC(w.Context(), db.NewBMC{NodeID: node, Address: "https://192.0.2.1", Protocol: "redfish", CredentialRef: ref})
	require.NoError(w, err)
	return b.ID
}

// TestTasksAreSettled: what was begun is waited for, but no erasure.
func TestTasksAreSettled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.enrol()
	w.beat("boot-1", 0, nil)
	in := decommission.SettleIn{JobRef: w.ref, Until: time.Now().Add(50 * time.Millisecond), Poll: spec.Duration(10 * time.Millisecond)}
	require.True(t, must(w, w.acts.SettleTasks, in).Done)
	enqueue := func(kind lifecycle.TaskKind, args any) {
		raw, err := json.Marshal(args)
		require.NoError(t, err)
		w.tx(func(tx *db.Tx) error {
			_, _, err := tx.EnqueueTask(t.Context(), db.NewTask{NodeID: w.ref.NodeID, JobID: w.ref.JobID, Kind: kind, Args: raw, Key: string(kind),
				Actor: db.Actor{Owner: lifecycle.OwnerJob, ID: "test"}})
			return err
		})
	}
	enqueue(lifecycle.TaskKindScrub, spec.ScrubArgs{RunID: "r"})
	f := must(w, w.acts.SettleTasks, in)
	require.False(t, f.Done)
	require.Contains(t, f.Note, "queued")
	require.True(t, must(w, w.acts.ErasureBegun, w.ref).Done)
	claimed, err := w.store.ClaimTask(t.Context(), db.TaskClaim{NodeID: w.ref.NodeID, BootID: "boot-1", Generation: 1, Lease: time.Minute})
	require.NoError(t, err)
	require.NotNil(t, claimed.Task)
	require.True(t, must(w, w.acts.SettleTasks, in).Done, "an erasure that was begun may take half a day")
	require.Contains(t, must(w, w.acts.ErasureBegun, w.ref).Note, "begun on the node")
}

// TestATenantsAccount has a name that every node takes.
func TestATenantsAccount(t *testing.T) {
	t.Parallel()
	name := lifecycle.TenantAccount("alloc_0199AB12-3456-7890-abcd-ef0123456789")
	raw, err := json.Marshal(spec.RevokeUserArgs{User: name})
	require.NoError(t, err)
	_, err = lifecycle.TaskKindRevokeUser.CheckArgs(1, raw)
	require.NoError(t, err)
	require.NotEqual(t, name, lifecycle.TenantAccount("alloc_0199AB12-3456-7890-abcd-ef0123456780"))
}
