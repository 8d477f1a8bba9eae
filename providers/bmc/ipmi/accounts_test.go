package ipmi_test

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/bmc/ipmi"
	ipmisim "github.com/slipway-cloud/slipway/sim/ipmi"
)

func TestALoginByItself(t *testing.T) {
	t.Parallel()
	r := newReference(t)
	b := open(t, r.target, fast())
	require.False(t, b.LoginSent())
	require.NoError(t, b.Login(t.Context()))
	require.NoError(t, b.Login(t.Context()))
	require.True(t, b.LoginSent())
	require.Equal(t, 1, r.relay.Logins())

	wrong := r.target
	wrong.Password = providers.NewSecret("wrong")
	b = open(t, wrong, fast())
	requireKind(t, b.Login(t.Context()), providers.KindUnauthorized)
	require.False(t, b.LoginSent(), "noticed in the BMC's own proof")
}

func TestThePasswordChanges(t *testing.T) {
	t.Parallel()
	for name, fresh := range map[string]string{"as long as IPMI 1.5 allows": "sixteen-bytes-00", "longer": "twenty-bytes-long-00"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReference(t)
			b := open(t, r.target, fast())
			_, err := b.Power(t.Context())
			require.NoError(t, err)
			policy, err := b.PasswordPolicy(t.Context())
			require.NoError(t, err)
			require.Equal(t, providers.PasswordPolicy{MaxLength: ipmi.MaxPassword}, policy)
			require.NoError(t, b.ChangePassword(t.Context(), providers.NewSecret(fresh)))
			_, err = b.Power(t.Context())
			requireKind(t, err, providers.KindInvalid) // it knows the old password only
			requireKind(t, open(t, r.target, fast()).Login(t.Context()), providers.KindUnauthorized)
			r.target.Password = providers.NewSecret(fresh)
			require.NoError(t, open(t, r.target, fast()).Login(t.Context()))
			out, err := ipmitool(t, r.target, "17", "chassis", "power", "status")
			require.NoError(t, err, out)
		})
	}
}

func TestAPasswordThatIsRefusedLeavesTheOldOne(t *testing.T) {
	t.Parallel()
	r := newReference(t)
	b := open(t, r.target, fast())
	for _, fresh := range []string{"", "twenty-one-bytes-long", "zero\x00byte"} {
		err := b.ChangePassword(t.Context(), providers.NewSecret(fresh))
		requireKind(t, err, providers.KindInvalid)
		if fresh != "" {
			require.NotContains(t, err.Error(), fresh)
		}
	}
	require.NoError(t, b.Login(t.Context()))
}

// Against a server that shares nothing with us.
func TestThePasswordChangesOnOpenIPMI(t *testing.T) {
	t.Parallel()
	const fresh = "fresh-password-1"
	s := newOpenIPMI(t)
	require.NoError(t, open(t, s.target, bare()).ChangePassword(t.Context(), providers.NewSecret(fresh)))
	requireKind(t, open(t, s.target, bare()).Login(t.Context()), providers.KindUnauthorized)
	s.target.Password = providers.NewSecret(fresh)
	require.NoError(t, open(t, s.target, bare()).Login(t.Context()))
}

// The answer is lost: sent once, and whoever asks is told to look.
func TestALostAnswerToAPasswordIsUncertain(t *testing.T) {
	t.Parallel()
	const fresh = "fresh-password-1"
	r := newReference(t)
	b := open(t, r.target, fast())
	var sent atomic.Int64
	r.relay.Tamper(afterLogin(func(d ipmisim.Direction, n int64, p []byte) [][]byte {
		// A request that carries a password is longer than the others.
		if d == ipmisim.ToBMC && len(p) > 80 {
			sent.Add(1)
		}
		if d == ipmisim.FromBMC && sent.Load() > 0 {
			return nil
		}
		return [][]byte{p}
	}))
	err := b.ChangePassword(t.Context(), providers.NewSecret(fresh))
	requireKind(t, err, providers.KindUncertain)
	require.NotContains(t, err.Error(), fresh)
	require.Equal(t, int64(1), sent.Load())
	r.relay.Tamper(nil)
	r.target.Password = providers.NewSecret(fresh)
	require.NoError(t, open(t, r.target, fast()).Login(t.Context()))
}
