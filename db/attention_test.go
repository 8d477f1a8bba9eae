package db_test

import (
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	driftdb "github.com/slipway-cloud/slipway/db/drift"
	"github.com/slipway-cloud/slipway/lifecycle"
)

func attention(t *testing.T, s *db.Store, f db.AttentionFilter) []db.Attention {
	t.Helper()
	rows, err := s.Attention(t.Context(), f, db.AttentionPlace{}, 1000)
	require.NoError(t, err)
	return rows
}

// kinds are what is listed about anything but the sweeper, whose row is as old
// as the test's template.
func kinds(t *testing.T, s *db.Store) []string {
	t.Helper()
	out := []string{}
	for _, a := range attention(t, s, db.AttentionFilter{}) {
		if a.Kind != db.AttentionSweeper {
			out = append(out, a.Kind)
		}
	}
	slices.Sort(out)
	return out
}

// see has a pass see a fault of a node.
func see(t *testing.T, s *db.Store, n db.Node, detector string) {
	t.Helper()
	d, known := lifecycle.DriftDetectorOf(detector)
	require.True(t, known)
	_, err := driftdb.ObserveFindings(t.Context(), s, n.SiteID, []driftdb.Observation{{Detector: d, Subject: n.ID, NodeID: n.ID, Key: "k", Message: "m"}})
	require.NoError(t, err)
}

// TestASiteThatIsNotComparedNeedsAPerson: a new one has a quarter of an hour,
// one that is compared three of its intervals.
func TestASiteThatIsNotComparedNeedsAPerson(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	s, conn := dbtest.Open(t, dsn), raw(t, dsn)
	site := dbtest.Site(t, s)
	require.Empty(t, kinds(t, s))
	exec(t, conn, "UPDATE sites SET created_at = now() - interval '16 minutes'")
	require.Equal(t, []string{db.AttentionReconcile}, kinds(t, s))
	p, err := driftdb.BeginPass(t.Context(), s, site.ID, time.Minute)
	require.NoError(t, err)
	require.NoError(t, driftdb.FinishPass(t.Context(), s, p, "the region is away", []byte("{}")))
	require.Equal(t, []string{db.AttentionReconcile}, kinds(t, s), "a pass that saw half is none")
	require.NoError(t, driftdb.FinishPass(t.Context(), s, p, "", []byte("{}")))
	require.Empty(t, kinds(t, s))
	exec(t, conn, "UPDATE drift_passes SET finished_at = now() - interval '61 seconds'")
	require.Equal(t, []string{db.AttentionReconcile}, kinds(t, s))
	_, err = driftdb.BeginPass(t.Context(), s, site.ID, time.Minute)
	require.NoError(t, err)
	require.ErrorIs(t, driftdb.FinishPass(t.Context(), s, p, "", []byte("{}")), db.ErrStale, "another pass has begun")
}

// TestNodesWithoutSite_NeedTheirPass: they are due from when the first went into service.
func TestNodesWithoutSite_NeedTheirPass(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	s, conn := dbtest.Open(t, dsn), raw(t, dsn)
	n := dbtest.PXENode(t, s, "52:54:00:00:63:01", lifecycle.NodeActive)
	require.Empty(t, kinds(t, s))
	exec(t, conn, "UPDATE nodes SET state_changed_at = now() - interval '16 minutes'")
	require.Equal(t, []string{db.AttentionReconcile}, kinds(t, s))
	p, err := driftdb.BeginPass(t.Context(), s, "", time.Minute)
	require.NoError(t, err)
	require.NoError(t, driftdb.FinishPass(t.Context(), s, p, "", []byte("{}")))
	require.Empty(t, kinds(t, s))
	exec(t, conn, "UPDATE drift_passes SET finished_at = now() - interval '61 seconds'")
	require.Equal(t, []string{db.AttentionReconcile}, kinds(t, s))
	require.NoError(t, s.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := tx.TransitionNode(t.Context(), n.ID, lifecycle.PXERetire, nil, db.Actor{Owner: lifecycle.OwnerAdmin, ID: "ada"})
		return err
	}))
	require.Empty(t, kinds(t, s), "none is in service")
}

// TestEachKindComesAndGoes makes each kind of attention and fixes it.
func TestEachKindComesAndGoes(t *testing.T) {
	t.Parallel()
	for kind, tc := range map[string]struct {
		make func(*testing.T, *db.Store, *pgx.Conn) (job, node, bmc string)
		fix  func(*testing.T, *db.Store, *pgx.Conn)
	}{
		db.AttentionParkedJob: {
			func(t *testing.T, s *db.Store, _ *pgx.Conn) (string, string, string) {
				j := dbtest.Job(t, s, dbtest.JobStatus(lifecycle.JobFailedManual))
				sent(t, s)
				return j.ID, *j.NodeID, ""
			},
			func(t *testing.T, s *db.Store, _ *pgx.Conn) { moveOnly(t, s, lifecycle.JobContinue) },
		},
		db.AttentionJobStuck: {
			func(t *testing.T, s *db.Store, c *pgx.Conn) (string, string, string) {
				j := dbtest.Job(t, s, dbtest.JobStatus(lifecycle.JobRunning))
				sent(t, s)
				exec(t, c, "UPDATE jobs SET stage_deadline_at = now() - interval '30 seconds'")
				require.Empty(t, kinds(t, s), "the runner has a moment to park it")
				exec(t, c, "UPDATE jobs SET stage_deadline_at = now() - interval '2 minutes'")
				return j.ID, *j.NodeID, ""
			},
			func(t *testing.T, s *db.Store, c *pgx.Conn) { exec(t, c, "UPDATE jobs SET stage_deadline_at = NULL") },
		},
		db.AttentionStartNotSent: {
			func(t *testing.T, s *db.Store, c *pgx.Conn) (string, string, string) {
				j := dbtest.Job(t, s)
				require.Empty(t, kinds(t, s), "it has just been accepted")
				exec(t, c, "UPDATE outbox SET created_at = now() - interval '2 minutes', last_error = 'no engine' WHERE kind = 'start_workflow'")
				return j.ID, *j.NodeID, ""
			},
			func(t *testing.T, s *db.Store, _ *pgx.Conn) { sent(t, s) },
		},
		db.AttentionEventNotSent: {
			func(t *testing.T, s *db.Store, c *pgx.Conn) (string, string, string) {
				dbtest.Node(t, s)
				require.Empty(t, kinds(t, s), "it has just been written")
				exec(t, c, "UPDATE outbox SET created_at = now() - interval '61 seconds' WHERE kind = 'event'")
				return "", "", ""
			},
			func(t *testing.T, _ *db.Store, c *pgx.Conn) { exec(t, c, "UPDATE outbox SET done_at = now()") },
		},
		db.AttentionOrphanWorkflow: {
			func(t *testing.T, s *db.Store, _ *pgx.Conn) (string, string, string) {
				_, _, err := s.SeeFinding(t.Context(), db.Finding{Kind: db.FindingOrphan, Subject: "onboarding/x", Message: "no job"})
				require.NoError(t, err)
				return "", "", ""
			},
			func(t *testing.T, s *db.Store, _ *pgx.Conn) {
				_, err := s.CloseFinding(t.Context(), db.FindingOrphan, "onboarding/x", "ended")
				require.NoError(t, err)
			},
		},
		db.AttentionNodeQuarantined: {
			func(t *testing.T, s *db.Store, _ *pgx.Conn) (string, string, string) {
				return "", dbtest.Node(t, s, dbtest.Status(lifecycle.NodeQuarantined)).ID, ""
			},
			func(t *testing.T, s *db.Store, _ *pgx.Conn) {
				dbtest.Job(t, s, dbtest.On(onlyNode(t, s).ID), dbtest.JobStatus(lifecycle.JobRunning))
			},
		},
		db.AttentionTenantLeft: {
			func(t *testing.T, s *db.Store, c *pgx.Conn) (string, string, string) {
				for _, state := range []lifecycle.NodeStatus{lifecycle.NodeRetired, lifecycle.NodeDeleted} {
					left(t, s, dbtest.Node(t, s, dbtest.Status(state)).ID)
				}
				n := dbtest.Node(t, s, dbtest.Status(lifecycle.NodeOffline))
				left(t, s, n.ID)
				return "", n.ID, ""
			},
			func(t *testing.T, s *db.Store, _ *pgx.Conn) {
				offline, err := s.ListNodes(t.Context(), db.NodeFilter{Status: string(lifecycle.NodeOffline)}, "", 0)
				require.NoError(t, err)
				dbtest.Occupy(t, s, offline[0].ID)
			},
		},
		db.AttentionKeys: {
			func(t *testing.T, s *db.Store, c *pgx.Conn) (string, string, string) {
				n := dbtest.Node(t, s, dbtest.Active())
				dbtest.Occupy(t, s, n.ID)
				exec(t, c, "DELETE FROM project_ssh_keys")
				require.Empty(t, kinds(t, s), "a job has a minute")
				exec(t, c, "UPDATE allocation_keys SET withdrawn_at = now() - interval '61 seconds'")
				row := attention(t, s, db.AttentionFilter{Kind: db.AttentionKeys})[0]
				require.Contains(t, row.Message, dbtest.KeyFingerprint)
				require.Contains(t, row.Message, "member mem_")
				require.NotContains(t, row.Message, "ssh-ed25519")
				return "", n.ID, ""
			},
			func(t *testing.T, _ *db.Store, c *pgx.Conn) {
				exec(t, c, "UPDATE allocation_keys SET refused_at = now()")
			},
		},
		db.AttentionBMCLoginBlocked: {
			func(t *testing.T, s *db.Store, _ *pgx.Conn) (string, string, string) {
				n := dbtest.Node(t, s)
				b := newBMC(t, s, n.ID)
				require.NoError(t, s.BlockBMCLogin(t.Context(), b.ID, "rejected"))
				return "", n.ID, b.ID
			},
			func(t *testing.T, s *db.Store, _ *pgx.Conn) {
				require.NoError(t, s.ClearBMCBlock(t.Context(), onlyBMC(t, s).ID))
			},
		},
		db.AttentionBMCPinPending: {
			func(t *testing.T, s *db.Store, _ *pgx.Conn) (string, string, string) {
				n := dbtest.Node(t, s)
				b := newBMC(t, s, n.ID)
				require.NoError(t, s.SetBMCPinPending(t.Context(), b.ID, "ab"))
				return "", n.ID, b.ID
			},
			func(t *testing.T, s *db.Store, _ *pgx.Conn) {
				require.NoError(t, s.SetBMCPin(t.Context(), onlyBMC(t, s).ID, "ab"))
			},
		},
		db.AttentionInstallFailed: {
			func(t *testing.T, s *db.Store, _ *pgx.Conn) (string, string, string) {
				return "", dbtest.PXENode(t, s, "52:54:00:00:00:01", lifecycle.NodeInstallFailed).ID, ""
			},
			func(t *testing.T, s *db.Store, _ *pgx.Conn) {
				n, err := s.NodeOfMAC(t.Context(), "52:54:00:00:00:01")
				require.NoError(t, err)
				_, err = setState(t, s, n.ID, lifecycle.NodePending, true)
				require.NoError(t, err)
			},
		},
		db.AttentionDiscoveryFull: {
			func(t *testing.T, s *db.Store, _ *pgx.Conn) (string, string, string) {
				in(t, s, func(tx *db.Tx) error {
					for i := range 900 {
						if _, _, err := tx.Discover(t.Context(), db.Discovery{MAC: mac(i + 1)}); err != nil {
							return err
						}
					}
					return nil
				})
				return "", "", ""
			},
			func(t *testing.T, s *db.Store, _ *pgx.Conn) {
				_, err := s.Purge(t.Context(), "", 0, pxeAdmin)
				require.NoError(t, err)
			},
		},
		db.AttentionDrift: {
			func(t *testing.T, s *db.Store, _ *pgx.Conn) (string, string, string) {
				n := dbtest.Node(t, s, dbtest.Active())
				see(t, s, n, lifecycle.DriftClockSkew)
				require.Empty(t, kinds(t, s), "a warning needs nobody at once")
				see(t, s, n, lifecycle.DriftMachineAbsent)
				return "", n.ID, ""
			},
			func(t *testing.T, s *db.Store, _ *pgx.Conn) {
				n := onlyNode(t, s)
				_, err := driftdb.CloseFindings(t.Context(), s, n.SiteID, []driftdb.Ref{{Detector: lifecycle.DriftMachineAbsent, Subject: n.ID}})
				require.NoError(t, err)
			},
		},
		db.AttentionAgentLocked: {
			func(t *testing.T, s *db.Store, c *pgx.Conn) (string, string, string) {
				n := dbtest.Node(t, s, dbtest.Active())
				exec(t, c, "INSERT INTO agent_certificates (node_id, generation, serial, key_hash, cert_pem, not_before, not_after) "+
					"VALUES ($1, 1, '1', sha256('k'), 'PEM', now(), now() + interval '1 hour')", n.ID)
				exec(t, c, "INSERT INTO agent_identities (node_id, generation, locked_at, locked_reason) VALUES ($1, 1, now(), 'old')", n.ID)
				return "", n.ID, ""
			},
			func(t *testing.T, s *db.Store, c *pgx.Conn) {
				exec(t, c, "UPDATE agent_identities SET locked_at = NULL, locked_reason = ''")
			},
		},
		db.AttentionAgentEnds: {
			func(t *testing.T, s *db.Store, c *pgx.Conn) (string, string, string) {
				id := identified(t, s).ID
				require.Empty(t, kinds(t, s), "half of its life is left")
				exec(t, c, "UPDATE agent_certificates SET not_before = now() - interval '85 hours', not_after = now() + interval '15 hours'")
				return "", id, ""
			},
			func(t *testing.T, s *db.Store, _ *pgx.Conn) {
				in(t, s, func(tx *db.Tx) error {
					id := onlyNode(t, s).ID
					return tx.AdvanceGeneration(t.Context(), id, 1, certificate(id, 2))
				})
			},
		},
		db.AttentionAgentAdopted: {
			func(t *testing.T, s *db.Store, _ *pgx.Conn) (string, string, string) {
				id := identified(t, s).ID
				require.NoError(t, adopt(t, s, id, 5, 1, time.Minute))
				return "", "", ""
			},
			func(t *testing.T, s *db.Store, _ *pgx.Conn) {
				in(t, s, func(tx *db.Tx) error {
					id := onlyNode(t, s).ID
					return tx.AdvanceGeneration(t.Context(), id, 5, certificate(id, 6))
				})
			},
		},
		db.AttentionAgentRefused: {
			func(t *testing.T, s *db.Store, c *pgx.Conn) (string, string, string) {
				id := identified(t, s).ID
				for _, tell := range []bool{true, false} {
					in(t, s, func(tx *db.Tx) error {
						told, err := tx.RecordAgentRefusal(t.Context(), db.AgentRefusal{NodeID: id, Kind: "former_enrolment", Detail: "old", Address: "192.0.2.1"})
						require.Equal(t, tell, told, "the audit log names it once an hour")
						return err
					})
				}
				require.Contains(t, attention(t, s, db.AttentionFilter{Kind: db.AttentionAgentRefused})[0].Message, "old; refused 2 times, the last time from 192.0.2.1")
				return "", id, ""
			},
			func(t *testing.T, s *db.Store, _ *pgx.Conn) {
				in(t, s, func(tx *db.Tx) error { return tx.SaveAgentIdentity(t.Context(), certificate(onlyNode(t, s).ID, 2)) })
			},
		},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dsn := dbtest.Database(t)
			s, conn := dbtest.Open(t, dsn), raw(t, dsn)
			relayed := func(k string) bool { return k == db.AttentionEventNotSent && k != kind } // none runs, which a slow test shows
			seen := func() []string { return slices.DeleteFunc(kinds(t, s), relayed) }
			job, node, bmc := tc.make(t, s, conn)
			require.Equal(t, []string{kind}, seen())
			got := attention(t, s, db.AttentionFilter{Kind: kind})[0]
			require.Equal(t, []string{job, node, bmc}, []string{got.JobID, got.NodeID, got.BMCID})
			if node != "" && kind != db.AttentionInstallFailed { // a PXE node belongs to no site
				require.NotEmpty(t, got.SiteID)
				require.NotEmpty(t, got.Hostname)
				require.Len(t, attention(t, s, db.AttentionFilter{SiteID: got.SiteID}), 1)
			}
			require.Empty(t, attention(t, s, db.AttentionFilter{Kind: kind, SiteID: "site_other"}))
			tc.fix(t, s, conn)
			require.Empty(t, seen())
		})
	}
}

// moveOnly moves the one job of this database.
func moveOnly(t *testing.T, s *db.Store, tr lifecycle.Transition[lifecycle.JobStatus]) {
	t.Helper()
	jobs, err := s.ListJobs(t.Context(), db.JobFilter{}, "", 2)
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	require.NoError(t, s.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := tx.TransitionJob(t.Context(), jobs[0].ID, tr, nil, sweeper)
		return err
	}))
}

func onlyNode(t *testing.T, s *db.Store) db.Node {
	t.Helper()
	nodes, err := s.ListNodes(t.Context(), db.NodeFilter{}, "", 2)
	require.NoError(t, err)
	require.Len(t, nodes, 1)
	return nodes[0]
}

func onlyBMC(t *testing.T, s *db.Store) db.BMC {
	t.Helper()
	list, err := s.ListBMCs(t.Context(), "", 2)
	require.NoError(t, err)
	require.Len(t, list, 1)
	return list[0]
}

func newBMC(t *testing.T, s *db.Store, nodeID string) db.BMC {
	t.Helper()
	b, err := s.CreateBMC(t.Context(), db.NewBMC{NodeID: &nodeID, Address: "10.0.0.1", Protocol: "redfish", CredentialRef: "bmc/a"})
	require.NoError(t, err)
	return b
}

// TestNodesBetweenStates: every state that lifecycle calls transitional, and no
// other, is found when no job moves the node.
func TestNodesBetweenStates(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	s, conn := dbtest.Open(t, dsn), raw(t, dsn)
	want := map[string]lifecycle.NodeStatus{}
	for _, i := range lifecycle.NodeMAAS.States {
		n := dbtest.Node(t, s, dbtest.Status(i.State))
		if i.Transitional {
			want[n.ID] = i.State
		}
		busy := dbtest.Node(t, s, dbtest.Status(i.State))
		dbtest.Job(t, s, dbtest.On(busy.ID), dbtest.JobStatus(lifecycle.JobFailedManual))
	}
	require.Empty(t, attention(t, s, db.AttentionFilter{Kind: db.AttentionNodeStuck}), "they have just come there")
	exec(t, conn, "UPDATE nodes SET state_changed_at = now() - interval '11 minutes'")
	got := map[string]lifecycle.NodeStatus{}
	for _, a := range attention(t, s, db.AttentionFilter{Kind: db.AttentionNodeStuck}) {
		got[a.NodeID] = lifecycle.NodeStatus(a.Status)
	}
	require.Equal(t, want, got)
}

// TestJobsInEveryState: what is parked needs an operator, what is late is stuck,
// and what has ended is neither.
func TestJobsInEveryState(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	s, conn := dbtest.Open(t, dsn), raw(t, dsn)
	want := map[string]string{}
	for _, i := range lifecycle.Job.States {
		j := dbtest.Job(t, s, dbtest.JobStatus(i.State))
		switch {
		case i.State.Parked():
			want[j.ID] = db.AttentionParkedJob
		case i.State.Live():
			want[j.ID] = db.AttentionJobStuck
		}
	}
	sent(t, s)
	exec(t, conn, "UPDATE jobs SET stage_deadline_at = now() - interval '1 hour'")
	got := map[string]string{}
	for _, a := range attention(t, s, db.AttentionFilter{}) {
		if a.JobID != "" {
			got[a.JobID] = a.Kind
		}
	}
	require.Equal(t, want, got)
	trouble, err := s.Trouble(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2, trouble.Attention[db.AttentionParkedJob])
	require.EqualValues(t, 0, trouble.Attention[db.AttentionNodeStuck])
	require.EqualValues(t, 3, trouble.PastDeadline)
	require.EqualValues(t, map[string]int64{"": 2}, trouble.Parked)
	require.Zero(t, trouble.Starts.Open)
	require.Positive(t, trouble.Events.Open)
}

func TestABatchThatWaitsForRoomIsInOrder(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	s, conn := dbtest.Open(t, dsn), raw(t, dsn)
	site := dbtest.Site(t, s)
	var batch db.Batch
	require.NoError(t, s.Tx(t.Context(), func(tx *db.Tx) error {
		var err error
		batch, err = tx.CreateBatch(t.Context(), db.NewBatch{SiteID: site.ID, MaxParallel: 1})
		return err
	}))
	first := dbtest.Job(t, s, dbtest.At(site.ID), dbtest.In(batch.ID), dbtest.JobStatus(lifecycle.JobRunning))
	dbtest.Job(t, s, dbtest.At(site.ID), dbtest.In(batch.ID))
	exec(t, conn, "UPDATE outbox SET done_at = now() WHERE job_id = $1", first.ID)
	exec(t, conn, "UPDATE outbox SET created_at = now() - interval '1 hour' WHERE kind = 'start_workflow'")
	exec(t, conn, "UPDATE jobs SET updated_at = now() - interval '1 hour'")
	require.Empty(t, kinds(t, s), "there is no room for the second")
	require.NoError(t, s.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := tx.TransitionJob(t.Context(), first.ID, lifecycle.JobComplete, nil, sweeper)
		return err
	}))
	require.Empty(t, kinds(t, s), "there is room since a moment")
	exec(t, conn, "UPDATE jobs SET updated_at = now() - interval '1 hour'")
	require.Equal(t, []string{db.AttentionStartNotSent}, kinds(t, s))
}

func TestASilentSweeperIsSeen(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	s, conn := dbtest.Open(t, dsn), raw(t, dsn)
	require.NoError(t, s.FinishSweep(t.Context(), ""))
	require.Empty(t, attention(t, s, db.AttentionFilter{}))
	require.NoError(t, s.FinishSweep(t.Context(), "Temporal's list cannot be read"))
	exec(t, conn, "UPDATE sweep_passes SET finished_at = now() - interval '61 seconds'")
	got := attention(t, s, db.AttentionFilter{})
	require.Len(t, got, 1)
	require.Equal(t, db.AttentionSweeper, got[0].Kind)
	require.Equal(t, "Temporal's list cannot be read", got[0].Message)
}

func TestAttentionIsPagedOldestFirst(t *testing.T) {
	t.Parallel()
	dsn := dbtest.Database(t)
	s, conn := dbtest.Open(t, dsn), raw(t, dsn)
	require.NoError(t, s.FinishSweep(t.Context(), ""))
	var want []string
	for i := range 7 {
		n := dbtest.Node(t, s, dbtest.Status(lifecycle.NodeQuarantined))
		want = append([]string{"node_quarantined:" + n.ID}, want...)
		// Two have the same age.
		exec(t, conn, "UPDATE nodes SET state_changed_at = date_trunc('hour', now()) - make_interval(hours => $2) WHERE id = $1", n.ID, i/2*2)
	}
	var got []db.Attention
	place := db.AttentionPlace{}
	for {
		rows, err := s.Attention(t.Context(), db.AttentionFilter{}, place, 2)
		require.NoError(t, err)
		if len(rows) == 0 {
			break
		}
		got = append(got, rows...)
		last := rows[len(rows)-1]
		place = db.AttentionPlace{Since: last.Since, ID: last.ID}
	}
	require.True(t, slices.IsSortedFunc(got, func(a, b db.Attention) int {
		if c := a.Since.Compare(b.Since); c != 0 {
			return c
		}
		return slices.Compare([]byte(a.ID), []byte(b.ID))
	}))
	ids := []string{}
	for _, a := range got {
		ids = append(ids, a.ID)
		require.WithinDuration(t, time.Now(), a.Since, 9*time.Hour)
	}
	require.ElementsMatch(t, want, ids)
}
