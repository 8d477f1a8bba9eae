package db_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// installModel is the table in docs/pxe.md, written again and without the code it is held
// against: a machine that hears each attempt's story at most once.
type installModel struct {
	state    lifecycle.NodeStatus
	attempts int
	round    int
	progress int
	started  bool
	moves    int // transitions, the creation and the approval included
	// netboot is what a job boots: "", install or erase. done says whether the installer is done.
	netboot lifecycle.Netboot
	done    bool
	failure string // the last error
	// Of the round that a job boots: the errors that counted, by boot, and on the
	// model's clock when the last one came and which boot began last.
	warned         map[string]bool
	warnedAt, boot int
	clock          int
}

// heardFrom is a token: what it is for, and when it was handed out.
type heardFrom struct {
	hash               []byte
	round, attempt, at int
}

func (m *installModel) tick() int { m.clock++; return m.clock }

func (m *installModel) forgetBoots() { m.warned, m.warnedAt, m.boot = map[string]bool{}, 0, 0 }

func (m *installModel) armed() bool { return m.netboot == "erase" || m.netboot == "install" && !m.done }

// attempt is the one that a token is handed out for now; 0 for none.
func (m *installModel) attempt() int {
	switch {
	case m.armed():
		return 1
	case m.state == lifecycle.NodePending || m.state == lifecycle.NodeInstalling:
		return m.attempts + 1
	}
	return 0
}

// hearNetboot is a report while a job boots the node: none of it moves a state.
// A machine may boot several times in a round. Only what the last of these boots
// says counts, each of its errors once, and eight errors are enough.
func (m *installModel) hearNetboot(with heardFrom, status lifecycle.InstallStatus, progress int, failure string) {
	if with.at < m.boot {
		return
	}
	down := len(m.warned) > 0 && !m.started
	switch status {
	case lifecycle.InstallStarted:
		if !m.started && len(m.warned) < 8 && (!down || with.at > m.warnedAt) {
			m.started, m.progress, m.boot = true, 0, with.at
		}
	case lifecycle.InstallProgress:
		if !down {
			m.progress = max(m.progress, progress)
		}
	case lifecycle.InstallFailure:
		key := fmt.Sprint(with.at, failure)
		if len(m.warned) < 8 && !m.warned[key] {
			m.warned[key], m.warnedAt = true, m.tick()
			m.started, m.progress, m.failure = false, 0, failure
		}
	case lifecycle.InstallComplete:
		if m.netboot == "install" {
			m.done, m.started, m.progress, m.failure = true, false, 100, ""
		}
	}
}

// enter is a state that an operator asks for.
func (m *installModel) enter(to lifecycle.NodeStatus) {
	m.state, m.moves, m.started = to, m.moves+1, false
	m.forgetBoots()
	if to != lifecycle.NodeActive {
		m.progress = 0
	}
	if to != lifecycle.NodeMigrating && to != lifecycle.NodeDeprovisioning {
		m.netboot, m.done = "", false
	}
}

func (m *installModel) hear(with heardFrom, status lifecycle.InstallStatus, progress int, failure string) {
	if with.round != m.round || with.attempt != m.attempt() {
		return
	}
	if m.armed() {
		m.hearNetboot(with, status, progress, failure)
		return
	}
	if m.state == lifecycle.NodePending && status == lifecycle.InstallStarted {
		m.state, m.attempts, m.progress, m.started, m.moves, m.failure = lifecycle.NodeInstalling, 0, 0, true, m.moves+1, ""
		return
	}
	if m.state != lifecycle.NodeInstalling {
		return
	}
	switch status {
	case lifecycle.InstallStarted:
		if !m.started {
			m.started, m.progress = true, 0
		}
	case lifecycle.InstallProgress:
		m.progress = max(m.progress, progress)
	case lifecycle.InstallComplete:
		m.state, m.attempts, m.progress, m.started, m.moves, m.failure = lifecycle.NodeInstalled, 0, 100, false, m.moves+1, ""
	case lifecycle.InstallFailure:
		m.attempts++
		m.started, m.failure = false, failure
		if m.attempts == 3 {
			m.state, m.moves = lifecycle.NodeInstallFailed, m.moves+1
		} else {
			m.progress = 0
		}
	}
}

// Random reports, repeated and in any order, mixed with an admin's actions,
// silence and what jobs boot, against the model.
func TestReportsAgainstAModel(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	workflow := dbtest.InstallWorkflow(t, s)
	made := 0
	const silent = "it was silent"
	rapid.Check(t, func(rt *rapid.T) {
		made++
		address := mac(made)
		m := rapid.SampledFrom([]installModel{
			{state: lifecycle.NodePending, round: 1, moves: 2}, {state: lifecycle.NodeActive, round: 1, moves: 5, progress: 100},
			{state: lifecycle.NodeMigrating, round: 1, moves: 6}, {state: lifecycle.NodeDeprovisioning, round: 1, moves: 6},
		}).Draw(rt, "from")
		n := dbtest.PXENode(t, s, address, m.state)
		m.forgetBoots()
		var tokens []heardFrom
		for step := range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch what := rapid.SampledFrom([]string{"boot", "report", "report", "report", "report", "report", "force", "silence", "wrong mac", "admin", "admin", "arm", "arm", "disarm"}).Draw(rt, "what"); what {
			case "boot":
				if m.attempt() == 0 {
					continue
				}
				hash, ticket := dbtest.BootToken(t, s, n.ID)
				require.Equal(rt, lifecycle.InstallAttempt{Round: int64(m.round), Attempt: m.attempt()}, ticket)
				tokens = append(tokens, heardFrom{hash, m.round, m.attempt(), m.tick()})
			case "admin":
				to := map[lifecycle.NodeStatus][]lifecycle.NodeStatus{
					lifecycle.NodeInstalled: {lifecycle.NodeActive}, lifecycle.NodeActive: {lifecycle.NodeMigrating, lifecycle.NodeDeprovisioning},
					lifecycle.NodeMigrating: {lifecycle.NodeActive},
				}[m.state]
				if len(to) == 0 {
					continue
				}
				next := rapid.SampledFrom(to).Draw(rt, "to")
				_, err := setState(t, s, n.ID, next, false)
				require.NoError(rt, err)
				m.enter(next)
			case "arm":
				purpose := rapid.SampledFrom([]lifecycle.Netboot{lifecycle.NetbootInstall, lifecycle.NetbootErase}).Draw(rt, "purpose")
				err := arm(t, s, n.ID, purpose, workflow.ID)
				if m.state != lifecycle.NodeMigrating && m.state != lifecycle.NodeDeprovisioning {
					require.Error(rt, err)
					continue
				}
				require.NoError(rt, err)
				if m.netboot != purpose {
					m.netboot, m.done, m.round, m.started, m.progress, m.failure = purpose, false, m.round+1, false, 0, ""
					m.forgetBoots()
				}
			case "disarm":
				require.NoError(rt, s.Tx(t.Context(), func(tx *db.Tx) error { return tx.DisarmNetboot(t.Context(), n.ID, "job_property") }))
				if m.netboot != "" {
					m.netboot, m.done, m.started, m.progress = "", false, false, 0
					m.forgetBoots()
				}
			case "report", "wrong mac":
				if len(tokens) == 0 {
					continue
				}
				with := tokens[max(0, len(tokens)-1-rapid.SampledFrom([]int{0, 0, 0, 1, 2, 5, 9}).Draw(rt, "older"))]
				status := rapid.SampledFrom(append(lifecycle.InstallStatuses(), "")).Draw(rt, "status")
				progress := rapid.IntRange(0, 100).Draw(rt, "progress")
				if what == "wrong mac" {
					_, _, err := report(t.Context(), s, mac(0xffffff), with.hash, status, progress)
					require.ErrorIs(rt, err, db.ErrNotFound)
					continue
				}
				failure := rapid.SampledFrom([]string{"Disk not found", "Disk not found", "No network", "No power"}).Draw(rt, "failure")
				if _, _, err := reportError(t.Context(), s, address, with.hash, status, progress, failure); err != nil {
					require.ErrorIs(rt, err, db.ErrNotFound)
					require.False(rt, with.round == m.round && with.attempt == m.attempt(), "a token that counts is known")
					continue
				}
				m.hear(with, status, progress, failure)
			case "force":
				_, err := setState(t, s, n.ID, lifecycle.NodePending, true)
				if m.state == lifecycle.NodeInstallFailed {
					require.NoError(rt, err)
					m.state, m.attempts, m.round, m.progress, m.moves = lifecycle.NodePending, 0, m.round+1, 0, m.moves+1
				} else {
					require.ErrorIs(rt, err, lifecycle.ErrIllegalTransition)
				}
			case "silence":
				p, err := s.PXENode(t.Context(), n.ID)
				require.NoError(rt, err)
				require.Equal(rt, m.state == lifecycle.NodeInstalling, p.DeadlineAt != nil, "only an installing node has a deadline")
				if p.DeadlineAt == nil {
					continue
				}
				failed, err := s.FailSilentInstall(t.Context(), n.ID, p.DeadlineAt.Add(1), db.Actor{Owner: lifecycle.OwnerSystem})
				require.NoError(rt, err)
				require.True(rt, failed)
				m.hear(heardFrom{round: m.round, attempt: m.attempts + 1}, lifecycle.InstallFailure, 0, silent)
			}
			now, err := s.Node(t.Context(), n.ID)
			require.NoError(rt, err)
			p, err := s.PXENode(t.Context(), n.ID)
			require.NoError(rt, err)
			failure := now.LastInstallError
			if strings.HasPrefix(failure, "the installer was silent") {
				failure = silent
			}
			require.Equal(rt, fmt.Sprint(m.state, m.attempts, m.round, m.progress, m.started, m.armed(), m.done, m.failure),
				fmt.Sprint(now.Status, now.InstallAttempts, p.Round, p.Progress, p.StartedAt != nil, db.Armed(p), p.NetbootDoneAt != nil, failure), "step %d", step)
			require.Equal(rt, m.state == lifecycle.NodeInstalling, p.DeadlineAt != nil, "a job has a deadline of its own")
		}
		rows, total, err := s.NodeHistory(t.Context(), n.ID, 100, 0)
		require.NoError(rt, err)
		require.EqualValues(rt, m.moves, total)
		slices.Reverse(rows)
		for i, r := range rows[1:] {
			require.Equal(rt, rows[i].ToState, r.FromState, "one state leads to the next")
		}
		broken, err := s.VerifyAudit(t.Context(), "node", n.ID)
		require.NoError(rt, err)
		require.Zero(rt, broken)
	})
}
