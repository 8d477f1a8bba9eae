package db_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// installModel is seed 000's table, written anew and without the code it is held
// against: a machine that hears each attempt's story at most once.
type installModel struct {
	state    lifecycle.NodeStatus
	attempts int
	round    int
	progress int
	started  bool
	moves    int // transitions, the creation and the approval included
}

func (m *installModel) hear(round, attempt int, status lifecycle.InstallStatus, progress int) {
	if round != m.round || attempt != m.attempts+1 {
		return
	}
	if m.state == lifecycle.NodePending && status == lifecycle.InstallStarted {
		m.state, m.attempts, m.progress, m.started, m.moves = lifecycle.NodeInstalling, 0, 0, true, m.moves+1
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
		m.state, m.attempts, m.progress, m.started, m.moves = lifecycle.NodeInstalled, 0, 100, false, m.moves+1
	case lifecycle.InstallFailure:
		m.attempts++
		m.started = false
		if m.attempts == 3 {
			m.state, m.moves = lifecycle.NodeInstallFailed, m.moves+1
		} else {
			m.progress = 0
		}
	}
}

// Random reports, repeated and in any order, mixed with an admin's actions and
// silence, against the model.
func TestReportsAgainstAModel(t *testing.T) {
	t.Parallel()
	s := dbtest.Store(t)
	made := 0
	rapid.Check(t, func(rt *rapid.T) {
		made++
		address := mac(made)
		n := dbtest.PXENode(t, s, address, lifecycle.NodePending)
		m := installModel{state: lifecycle.NodePending, round: 1, moves: 2}
		type token struct {
			hash           []byte
			round, attempt int
		}
		var tokens []token
		for step := range rapid.IntRange(1, 40).Draw(rt, "steps") {
			switch what := rapid.SampledFrom([]string{"boot", "report", "report", "report", "report", "report", "force", "silence", "wrong mac"}).Draw(rt, "what"); what {
			case "boot":
				if m.state != lifecycle.NodePending && m.state != lifecycle.NodeInstalling {
					continue
				}
				hash, ticket := dbtest.BootToken(t, s, n.ID)
				require.Equal(rt, lifecycle.Ticket{Round: int64(m.round), Attempt: m.attempts + 1}, ticket)
				tokens = append(tokens, token{hash, m.round, m.attempts + 1})
			case "report", "wrong mac":
				if len(tokens) == 0 {
					continue
				}
				with := tokens[rapid.IntRange(0, len(tokens)-1).Draw(rt, "token")]
				status := rapid.SampledFrom(append(lifecycle.InstallStatuses(), "")).Draw(rt, "status")
				progress := rapid.IntRange(0, 100).Draw(rt, "progress")
				if what == "wrong mac" {
					_, _, err := report(t.Context(), s, mac(0xffffff), with.hash, status, progress)
					require.ErrorIs(rt, err, db.ErrNotFound)
					continue
				}
				if _, _, err := report(t.Context(), s, address, with.hash, status, progress); err != nil {
					require.ErrorIs(rt, err, db.ErrNotFound)
					require.NotEqual(rt, lifecycle.Ticket{Round: int64(with.round), Attempt: with.attempt}, lifecycle.Ticket{Round: int64(m.round), Attempt: m.attempts + 1}, "a token that counts is known")
					continue
				}
				m.hear(with.round, with.attempt, status, progress)
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
				m.hear(m.round, m.attempts+1, lifecycle.InstallFailure, 0)
			}
			now, err := s.Node(t.Context(), n.ID)
			require.NoError(rt, err)
			p, err := s.PXENode(t.Context(), n.ID)
			require.NoError(rt, err)
			require.Equal(rt, fmt.Sprint(m.state, m.attempts, m.round, m.progress, m.started), fmt.Sprint(now.Status, now.InstallAttempts, p.Round, p.Progress, p.StartedAt != nil), "step %d", step)
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
