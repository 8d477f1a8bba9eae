package db_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// begin starts a mode's job on a node.
func begin(t testing.TB, s *db.Store, id string, mode lifecycle.DecommissionMode) (db.Job, error) {
	t.Helper()
	input, err := json.Marshal(map[string]any{"mode": mode, "node_id": id})
	require.NoError(t, err)
	var j db.Job
	err = s.Tx(t.Context(), func(tx *db.Tx) error {
		n, err := tx.Node(t.Context(), id)
		if err != nil {
			return err
		}
		j, _, err = tx.StartNodeJob(t.Context(), db.NodeJob{Mode: mode, Node: n, Job: db.NewJob{Kind: "node_operation", Input: input, Actor: pxeAdmin}})
		return err
	})
	return j, err
}

func cancelled(t testing.TB, s *db.Store, id string) {
	t.Helper()
	require.NoError(t, s.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := tx.TransitionJob(t.Context(), id, lifecycle.JobCancel, nil, db.Actor{Owner: lifecycle.OwnerSystem, ID: "test"})
		return err
	}))
}

func do[T any](t testing.TB, s *db.Store, act func(context.Context, *db.Tx) (T, error)) (out T, err error) {
	t.Helper()
	err = s.Tx(t.Context(), func(tx *db.Tx) error {
		var err error
		out, err = act(t.Context(), tx)
		return err
	})
	return out, err
}

func conflict(t testing.TB, err error, what, existing string) {
	t.Helper()
	var c *db.ConflictError
	require.True(t, errors.As(err, &c), "%v", err)
	require.Equal(t, what, c.What, c.Message)
	if existing != "" {
		require.Equal(t, existing, c.Existing)
	}
}

func stuck(t testing.TB, s *db.Store, id string) []db.Attention {
	t.Helper()
	rows, err := s.Attention(t.Context(), db.AttentionFilter{Kind: db.AttentionNodeStuck}, db.AttentionPlace{}, 100)
	require.NoError(t, err)
	var out []db.Attention
	for _, r := range rows {
		if r.NodeID == id {
			out = append(out, r)
		}
	}
	return out
}

// TestTheStateOfAPXENodeComesWithItsJob: in one transaction, for its own
// lifecycle only; a cancelled job leaves the node, which stands in attention
// until the next begins.
func TestTheStateOfAPXENodeComesWithItsJob(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	n := dbtest.PXENode(t, s, mac(901), lifecycle.NodeActive)
	_, err := begin(t, s, n.ID, lifecycle.ModeRetire)
	require.ErrorIs(t, err, lifecycle.ErrIllegalTransition, "a mode of the other lifecycle")
	maas := dbtest.Node(t, s, dbtest.Active())
	_, err = begin(t, s, maas.ID, lifecycle.ModeDeprovision)
	require.ErrorIs(t, err, lifecycle.ErrIllegalTransition)

	first, err := begin(t, s, n.ID, lifecycle.ModeDeprovision)
	require.NoError(t, err)
	require.Nil(t, first.SiteID)
	now, err := s.Node(t.Context(), n.ID)
	require.NoError(t, err)
	require.Equal(t, lifecycle.NodeDeprovisioning, now.Status)
	require.Empty(t, stuck(t, s, n.ID))
	_, err = begin(t, s, n.ID, lifecycle.ModeDeprovision)
	conflict(t, err, "live_job", first.ID)
	_, err = setState(t, s, n.ID, lifecycle.NodeRetired, false)
	conflict(t, err, "live_job", first.ID)

	cancelled(t, s, first.ID)
	rows := stuck(t, s, n.ID)
	require.Len(t, rows, 1)
	require.Contains(t, rows[0].NextStep, "slipway node deprovision "+n.Hostname)
	_, err = begin(t, s, n.ID, lifecycle.ModeDeprovision)
	require.NoError(t, err, "begun again")
	got, err := setState(t, s, n.ID, lifecycle.NodeRetired, true)
	require.NoError(t, err, "by force")
	require.Equal(t, lifecycle.NodeRetired, got.Status)
	require.Empty(t, stuck(t, s, n.ID))
}

// TestANetbootIsArmedOnce for a job and purpose; a new round drops what was
// handed out, and only its own job ends it.
func TestANetbootIsArmedOnce(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	n := dbtest.PXENode(t, s, mac(902), lifecycle.NodeActive)
	live, other := dbtest.InstallWorkflow(t, s), dbtest.InstallWorkflow(t, s)
	arm := func(purpose lifecycle.Netboot, workflow, job string) (db.PXENode, error) {
		return do(t, s, func(ctx context.Context, tx *db.Tx) (db.PXENode, error) {
			return tx.ArmNetboot(ctx, n.ID, purpose, workflow, job)
		})
	}
	boots := func() string {
		now, err := s.Node(t.Context(), n.ID)
		require.NoError(t, err)
		p, err := s.PXENode(t.Context(), n.ID)
		require.NoError(t, err)
		id, ok := db.BootWorkflow(now, p)
		require.Equal(t, ok, id != "")
		return id
	}
	_, err := arm(lifecycle.NetbootErase, live.ID, "job_a")
	conflict(t, err, "state", n.ID)
	_, err = begin(t, s, n.ID, lifecycle.ModeDeprovision)
	require.NoError(t, err)
	require.Empty(t, boots(), "the disk")

	hash := sha256.Sum256([]byte("unused"))
	_, err = do(t, s, func(ctx context.Context, tx *db.Tx) (int, error) {
		return 0, tx.IssueEnrollmentToken(ctx, n.ID, "", hash[:], time.Now().Add(time.Hour))
	})
	require.NoError(t, err)
	first, err := arm(lifecycle.NetbootErase, live.ID, "job_a")
	require.NoError(t, err)
	require.Equal(t, live.ID, boots())
	open, err := s.OpenEnrollmentTokens(t.Context(), n.ID)
	require.NoError(t, err)
	require.Zero(t, open, "what was still to enrol is the system that goes")
	token, _ := dbtest.BootToken(t, s, n.ID)
	again, err := arm(lifecycle.NetbootErase, live.ID, "job_a")
	require.NoError(t, err)
	require.Equal(t, first.Round, again.Round, "repeated")
	_, err = s.PXETokenByHash(t.Context(), token)
	require.NoError(t, err)

	next, err := arm(lifecycle.NetbootErase, other.ID, "job_a")
	require.NoError(t, err)
	require.Equal(t, first.Round+1, next.Round, "another workflow is a new round")
	_, err = s.PXETokenByHash(t.Context(), token)
	require.ErrorIs(t, err, db.ErrNotFound)
	_, err = do(t, s, func(ctx context.Context, tx *db.Tx) (int, error) { return 0, tx.DisarmNetboot(ctx, n.ID, "job_b") })
	require.NoError(t, err)
	require.Equal(t, other.ID, boots(), "another job's is no business of this one")
	for range 2 {
		_, err = do(t, s, func(ctx context.Context, tx *db.Tx) (int, error) { return 0, tx.DisarmNetboot(ctx, n.ID, "job_a") })
		require.NoError(t, err)
		require.Empty(t, boots())
	}
	_, err = arm(lifecycle.NetbootErase, live.ID, "job_a")
	require.NoError(t, err)
	_, err = setState(t, s, n.ID, lifecycle.NodeRetired, true)
	require.NoError(t, err)
	require.Empty(t, boots(), "a retired node boots nothing")
}

// TestTheEraseWorkflow is the node's own, else that of its device group.
func TestTheEraseWorkflow(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	n := dbtest.PXENode(t, s, mac(903), lifecycle.NodeActive)
	_, err := s.EraseWorkflowOf(t.Context(), n)
	require.ErrorIs(t, err, db.ErrNotFound)
	own, group := dbtest.InstallWorkflow(t, s), dbtest.InstallWorkflow(t, s)
	_, err = s.PutDeviceGroup(t.Context(), "erased-903", false, group.ID)
	require.NoError(t, err)
	n.Labels = db.Labels{lifecycle.LabelDeviceGroup: "erased-903"}
	w, err := s.EraseWorkflowOf(t.Context(), n)
	require.NoError(t, err)
	require.Equal(t, group.ID, w.ID)
	_, err = do(t, s, func(ctx context.Context, tx *db.Tx) (db.Node, error) {
		return tx.AssignEraseWorkflow(ctx, n.ID, n.Version, own.ID)
	})
	require.NoError(t, err)
	w, err = s.EraseWorkflowOf(t.Context(), n)
	require.NoError(t, err)
	require.Equal(t, own.ID, w.ID)
	_, err = do(t, s, func(ctx context.Context, tx *db.Tx) (db.Node, error) {
		return tx.AssignEraseWorkflow(ctx, n.ID, n.Version, own.ID)
	})
	require.ErrorIs(t, err, db.ErrStale)
	require.Error(t, s.DeleteInstallWorkflow(t.Context(), own.ID, own.Version), "in use")
}

// TestHardwareIsPlannedAndAppliedOnce: conflicts show when it is planned, a
// machine that was discovered meanwhile is the hardware, and new disks shut the
// old agent out.
func TestHardwareIsPlannedAndAppliedOnce(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	n := dbtest.PXENode(t, s, mac(904), lifecycle.NodeActive)
	taken := dbtest.PXENode(t, s, mac(905), lifecycle.NodeActive)
	ghost := discover(t, s, mac(906))
	plan := func(macs ...string) error {
		_, err := do(t, s, func(ctx context.Context, tx *db.Tx) (db.Node, error) {
			now, err := tx.Node(ctx, n.ID)
			if err != nil {
				return now, err
			}
			return tx.PlanHardware(ctx, n.ID, now.Version, db.PlannedHardware{
				MACs: macs, SerialNumber: "S2", Disks: db.DisksNew, BMC: &db.PlannedBMC{Address: "https://192.0.2.9", Protocol: "redfish", CredentialRef: "bmc/new"},
			}, pxeAdmin)
		})
		return err
	}
	apply := func(job string) (db.PlannedHardware, error) {
		return do(t, s, func(ctx context.Context, tx *db.Tx) (db.PlannedHardware, error) {
			return tx.ApplyHardware(ctx, n.ID, job, db.Actor{Owner: lifecycle.OwnerDecommission, ID: job})
		})
	}
	conflict(t, plan(mac(906)), "state", n.ID)
	j, err := begin(t, s, n.ID, lifecycle.ModeMigrate)
	require.NoError(t, err)
	_, err = apply(j.ID)
	require.ErrorIs(t, err, db.ErrNotFound, "nothing is planned")
	conflict(t, plan(mac(905)), "mac", taken.ID)
	require.NoError(t, plan(mac(907)))
	require.NoError(t, plan(mac(906)), "until it is applied a plan may be replaced")
	enrol(t, s, n.ID)

	h, err := apply(j.ID)
	require.NoError(t, err)
	require.Equal(t, j.ID, h.ReplacedBy)
	now, err := s.Node(t.Context(), n.ID)
	require.NoError(t, err)
	require.Equal(t, []string{mac(906)}, now.MACs)
	require.Equal(t, "S2", now.Serial)
	_, err = s.Node(t.Context(), ghost.ID)
	require.ErrorIs(t, err, db.ErrNotFound)
	id, err := s.AgentIdentity(t.Context(), n.ID)
	require.NoError(t, err)
	require.NotNil(t, id.LockedAt)
	bmc, err := s.BMCOfNode(t.Context(), n.ID)
	require.NoError(t, err)
	require.Equal(t, "https://192.0.2.9", bmc.Address)
	p, err := s.PXENode(t.Context(), n.ID)
	require.NoError(t, err)
	require.Empty(t, p.Facts.SerialNumber, "what the old machine said is not true of the new")
	h, err = apply(j.ID)
	require.NoError(t, err)
	require.Equal(t, now.Version, mustNode(t, s, n.ID).Version, "repeated, it changes nothing")
	require.Equal(t, j.ID, h.ReplacedBy)
	conflict(t, plan(mac(907)), "hardware", j.ID)

	cancelled(t, s, j.ID)
	require.Contains(t, stuck(t, s, n.ID)[0].NextStep, "slipway node migrate")
	next, err := begin(t, s, n.ID, lifecycle.ModeMigrate)
	require.NoError(t, err)
	_, err = apply(next.ID)
	require.ErrorIs(t, err, db.ErrNotFound, "the next job is told again")
	require.NoError(t, plan(mac(906)), "the same hardware again")
	_, err = apply(next.ID)
	require.NoError(t, err)
}

func mustNode(t testing.TB, s *db.Store, id string) db.Node {
	t.Helper()
	n, err := s.Node(t.Context(), id)
	require.NoError(t, err)
	return n
}

// enrol gives a node an agent by a token.
func enrol(t testing.TB, s *db.Store, id string) {
	t.Helper()
	hash := sha256.Sum256([]byte(id))
	require.NoError(t, s.Tx(t.Context(), func(tx *db.Tx) error {
		if err := tx.IssueEnrollmentToken(t.Context(), id, "", hash[:], time.Now().Add(time.Hour)); err != nil {
			return err
		}
		if _, _, err := tx.RedeemEnrollmentToken(t.Context(), hash[:], hash[:], 1); err != nil {
			return err
		}
		return tx.SaveAgentIdentity(t.Context(), db.AgentCertificate{
			NodeID: id, Generation: 1, Serial: "1", KeyHash: hash[:], CertPEM: "pem", NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour),
		})
	}))
	generation, err := s.EnrolledGeneration(t.Context(), id)
	require.NoError(t, err)
	require.EqualValues(t, 1, generation)
}

// TestTwoNodesThatAskForOneBMC at the same moment: one of them gets it.
func TestTwoNodesThatAskForOneBMC(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	nodes := []db.Node{dbtest.PXENode(t, s, mac(961), lifecycle.NodeActive), dbtest.PXENode(t, s, mac(962), lifecycle.NodeActive)}
	errs := make([]error, len(nodes))
	var asked, wg sync.WaitGroup
	asked.Add(len(nodes))
	for i, n := range nodes {
		wg.Go(func() {
			errs[i] = s.Tx(t.Context(), func(tx *db.Tx) error {
				if _, err := tx.LockNode(t.Context(), n.ID); err != nil {
					return err
				}
				asked.Done()
				asked.Wait() // both are in their transactions now
				if err := tx.BMCFree(t.Context(), "https://192.0.2.77", "redfish", "", n.ID); err != nil {
					return err
				}
				_, err := tx.CreateBMC(t.Context(), db.NewBMC{NodeID: &n.ID, Address: []string{"192.0.2.77", "https://192.0.2.77:443/"}[i], Protocol: "redfish", CredentialRef: "bmc/one"})
				return err
			})
		})
	}
	wg.Wait()
	if errs[0] == nil {
		errs[0], nodes[1] = errs[1], nodes[0]
	}
	conflict(t, errs[0], "bmc", nodes[1].ID)
	there, err := s.BMCsAt(t.Context(), "https://192.0.2.77")
	require.NoError(t, err)
	require.Len(t, there, 1)
}
