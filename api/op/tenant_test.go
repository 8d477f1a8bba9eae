package op

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
)

// TestWhileAllowed_EndsWithTheAccess checks a stream's access often, so that the test is short.
func TestWhileAllowed_EndsWithTheAccess(t *testing.T) {
	t.Parallel()
	const often = 2 * time.Millisecond
	for name, c := range map[string]struct {
		then  error
		limit time.Duration
	}{
		"refused":             {db.NotFound("project"), time.Hour},
		"cannot be found out": {errors.New("the database is away"), often},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var checks atomic.Int32
			check := func(context.Context) error {
				if checks.Add(1) <= 3 {
					return nil
				}
				return c.then
			}
			ctx, cancel := whileAllowed(context.WithValue(t.Context(), recheckKey, check), often, time.Minute, c.limit)
			defer cancel()
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), errAccessEnded)
			require.Greater(t, checks.Load(), int32(3), "it went on while the access was there")
		})
	}
	// A check that is cut short says nothing, whatever it answers.
	var cut atomic.Int32
	slow := func(ctx context.Context) error {
		if cut.Add(1) > 3 {
			return db.NotFound("project")
		}
		<-ctx.Done()
		return problem.New(problem.Unauthenticated, "the token cannot be checked")
	}
	ctx, cancel := whileAllowed(context.WithValue(t.Context(), recheckKey, slow), often, often, time.Hour)
	defer cancel()
	<-ctx.Done()
	require.Greater(t, cut.Load(), int32(3))

	ctx, cancel = whileAllowed(t.Context(), often, often, time.Hour)
	defer cancel()
	<-ctx.Done() // a route that checks nothing has no stream
	require.LessOrEqual(t, recheckLimit+recheckEvery+recheckDeadline, time.Minute)
}

// FuzzCheckName requires that an accepted name needs no quoting anywhere and is not taken for an
// id.
func FuzzCheckName(f *testing.F) {
	for _, seed := range []string{"a", "a-b.c_d", "", "-a", "a b", "a\n", "prj_01234567-0000", "é", "$(id)"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if CheckName(name) != nil {
			return
		}
		require.Empty(t, strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"))
		require.False(t, strings.HasPrefix(name, "-") || len(name) == 0 || len(name) > 100)
		require.NotRegexp(t, `^[a-z]+_[0-9a-f]{8}-`, name)
	})
}

// TestIdentityOf_AddressOfOtherLettersIsNone uses letters whose lower case is ASCII.
func TestIdentityOf_AddressOfOtherLettersIsNone(t *testing.T) {
	t.Parallel()
	for claim, want := range map[string]string{"Kim@Example.com": "kim@example.com", "\u212aim@example.com": "", "k\u0130m@example.com": "", "kim@ex\u00e4mple.com": ""} {
		got := identityOf(Principal{ID: "oidc:x"}, map[string]any{"email": claim, "email_verified": true}, "groups")
		require.Equal(t, want, got.Email, "%q", claim)
	}
}

// TestIdentityOf_GroupsAreBounded gives groups that no project can name, and too many of them.
func TestIdentityOf_GroupsAreBounded(t *testing.T) {
	t.Parallel()
	claim := []any{"", "nul\x00", strings.Repeat("\u00e9", maxGroupName+1), "a", "a", 7}
	for i := range 2 * maxGroups {
		claim = append(claim, fmt.Sprint("g", i))
	}
	got := identityOf(Principal{ID: "oidc:x"}, map[string]any{"groups": claim}, "groups").Groups
	require.Len(t, got, maxGroups)
	require.Equal(t, []string{"a", "g0"}, got[:2])
	whole := strings.Repeat("\u00e9", maxGroupName)
	require.Equal(t, []string{whole}, identityOf(Principal{}, map[string]any{"groups": whole}, "groups").Groups)
}
