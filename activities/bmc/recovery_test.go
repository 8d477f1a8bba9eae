package bmc_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// rotateOnce rotates the BMC's password and commits the new one.
func (l *lab) rotateOnce() {
	l.t.Helper()
	for _, step := range []rotateStep{l.acts.PrepareRotation, l.acts.ApplyRotation, l.acts.VerifyRotation, l.acts.CommitRotation} {
		l.must(step)
	}
}

// restore sets the database back to the login of before the last rotation.
func (l *lab) restore() {
	l.t.Helper()
	rec := l.record()
	name, _, _ := strings.Cut(rec.CredentialRef, "@")
	if name != "bmc/rack" {
		require.NoError(l.t, l.vault.Delete(l.t.Context(), name))
	}
	rec.CredentialRef = "bmc/rack"
	_, err := l.truth.UpdateBMC(l.t.Context(), rec)
	require.NoError(l.t, err)
	planned, err := l.truth.PlanEndOfAccess(l.t.Context())
	require.NoError(l.t, err)
	_, err = l.truth.EndRestoredAccess(l.t.Context(), planned.Hash)
	require.NoError(l.t, err)
}

// restoreLines returns the lines of attention about BMCs after a restore, by the end of their ids.
func (l *lab) restoreLines() map[string]string {
	l.t.Helper()
	rows, err := l.truth.Attention(l.t.Context(), db.AttentionFilter{Kind: db.AttentionRestore}, db.AttentionPlace{}, 10)
	require.NoError(l.t, err)
	out := map[string]string{}
	for _, r := range rows {
		out[strings.TrimPrefix(r.ID, "restore_unconfirmed:")] = r.Message
	}
	return out
}

// onNode gives the BMC a node that is a machine of MAAS.
func (l *lab) onNode() {
	l.t.Helper()
	site := dbtest.Site(l.t, l.truth, func(p *dbtest.Params) {
		p.Site = spec.SiteSpec{MAASURL: "http://127.0.0.1:1/MAAS", MAASAPIKeyRef: "maas/key", BMCNetworks: []string{"127.0.0.0/8"}, Simulated: true}
	})
	node := dbtest.Node(l.t, l.truth, dbtest.At(site.ID))
	require.NoError(l.t, l.truth.SetNodeMachine(l.t.Context(), node.ID, db.NodeMachine{SystemID: "abc123"}))
	rec := l.record()
	rec.NodeID = &node.ID
	_, err := l.truth.UpdateBMC(l.t.Context(), rec)
	require.NoError(l.t, err)
}

// TestRestore_RotatedLoginIsInACopy: the rotation seals the login before it sends it. After a
// restore it is found, tried once and adopted, and both lines of attention tell of it.
func TestRestore_RotatedLoginIsInACopy(t *testing.T) {
	t.Parallel()
	l := newLab(t, "Dell", 1, nil)
	l.acts.Copies = l.vault
	l.rotateOnce()
	sent := l.hw.Spec().BMCPassword
	l.restore()
	require.Contains(t, l.restoreLines()["bmc"], l.record().Address, "before anybody has logged in")
	require.Contains(t, l.restoreLines()["bmc"], "1 without MAAS")

	require.NoError(t, l.resolve("after"))
	require.Equal(t, 1, l.sim.Counters().FailedLogins)
	rec := l.record()
	require.Nil(t, rec.AuthBlockedAt)
	login, err := providers.ResolveLogin(t.Context(), l.vault, providers.SecretRef(rec.CredentialRef), simulatedLogin())
	require.NoError(t, err)
	require.Equal(t, sent, login.Password.Reveal())
	require.NotContains(t, l.restoreLines(), "bmc")
	require.Contains(t, l.restoreLines()["adopted"], rec.Address)
	audit, err := l.truth.ResourceTimeline(t.Context(), "bmc", rec.ID, 0, 100)
	require.NoError(t, err)
	names := map[string]int{}
	for _, row := range audit {
		names[row.Name]++
	}
	require.Equal(t, 1, names["adopt_login"])

	l.newJob()
	l.rotateOnce()
	require.Equal(t, 1, l.sim.Counters().FailedLogins)
	require.NotContains(t, l.restoreLines(), "adopted", "the login is another one since")
}

// TestRestore_RotatedLoginIsInMAAS: what MAAS holds is tried once, only after a restore that is
// younger than the stored login.
func TestRestore_RotatedLoginIsInMAAS(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		restored, stored, wrong bool
		asked, failed           int
	}{
		"found":                       {restored: true, asked: 1, failed: 1},
		"not restored":                {failed: 1},
		"stored since the restore":    {restored: true, stored: true, failed: 1},
		"MAAS holds a wrong password": {restored: true, wrong: true, asked: 1, failed: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, "Dell", 1, nil)
			l.onNode()
			l.changedByHand()
			asked, held := 0, "Changed-by-hand-1"
			if c.wrong {
				held = "Of-nobody-1"
			}
			l.acts.Held = func(context.Context, db.Node, string) (providers.Login, error) {
				asked++
				return providers.Login{Username: l.hw.Spec().BMCUser, Password: providers.NewSecret(held)}, nil
			}
			if c.restored {
				l.restore()
			}
			if c.stored {
				_, err := l.vault.Put(t.Context(), "bmc/rack", providers.NewSecret(`{"username":"`+l.hw.Spec().BMCUser+`","password":"Mistyped-1"}`))
				require.NoError(t, err)
			}
			err := l.resolve("a")
			again := l.resolve("b")
			if c.restored && !c.stored && !c.wrong {
				require.NoError(t, err)
				require.NoError(t, again)
			} else {
				requireClass(t, err, lifecycle.FailBMCAuthRejected)
				requireClass(t, again, lifecycle.FailBMCAuthRejected)
			}
			require.Equal(t, c.asked, asked)
			require.Equal(t, c.failed, l.sim.Counters().FailedLogins)
		})
	}
}

// TestRestore_StaleCopy: the copy of a worker that did not make the last rotation does not use up
// the try of the login that MAAS holds.
func TestRestore_StaleCopy(t *testing.T) {
	t.Parallel()
	for name, held := range map[string]string{"MAAS holds the last one": "Changed-by-hand-1", "MAAS holds a wrong one": "Of-nobody-1"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, "Dell", 1, nil)
			l.onNode()
			l.acts.Copies = l.vault
			l.changedByHand()
			stale := `{"current": {"username": "` + l.hw.Spec().BMCUser + `", "password": "Of-last-year-1"}}`
			require.NoError(t, l.vault.KeepCopy(t.Context(), "bmc/rotated/"+l.bmcID, providers.NewSecret(stale)))
			asked := 0
			l.acts.Held = func(context.Context, db.Node, string) (providers.Login, error) {
				asked++
				return providers.Login{Username: l.hw.Spec().BMCUser, Password: providers.NewSecret(held)}, nil
			}
			l.restore()
			err := l.resolve("a")
			if held == "Changed-by-hand-1" {
				require.NoError(t, err)
				require.Equal(t, 1, l.sim.Counters().FailedLogins, "the stored one")
			} else {
				requireClass(t, err, lifecycle.FailBMCUnreachable)
				require.Equal(t, 2, l.sim.Counters().FailedLogins, "the copy waits, so that the account is not locked")
			}
			require.Equal(t, 1, asked)
		})
	}
}

// TestRestore_CopyOfAnUnprovenLogin: a rotation that stands between sending and proof when the
// database is lost leaves the sent login in the copy, and the proven one afterwards.
func TestRestore_CopyOfAnUnprovenLogin(t *testing.T) {
	t.Parallel()
	l := newLab(t, "Dell", 1, nil)
	l.acts.Copies = l.vault
	l.must(l.acts.PrepareRotation)
	_, err := l.vault.ReadCopy(t.Context(), "bmc/rotated/"+l.bmcID)
	require.True(t, providers.IsKind(err, providers.KindNotFound), "nothing was sent: %v", err)
	l.must(l.acts.ApplyRotation)
	copied, err := l.vault.ReadCopy(t.Context(), "bmc/rotated/"+l.bmcID)
	require.NoError(t, err)
	require.Contains(t, copied.Reveal(), `"sent":`)
	require.Contains(t, copied.Reveal(), l.hw.Spec().BMCPassword)
	l.must(l.acts.VerifyRotation)
	copied, err = l.vault.ReadCopy(t.Context(), "bmc/rotated/"+l.bmcID)
	require.NoError(t, err)
	require.NotContains(t, copied.Reveal(), `"sent":`)
	require.Contains(t, copied.Reveal(), l.hw.Spec().BMCPassword)
}
