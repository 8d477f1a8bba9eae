package server

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMayAsk_IsFairToAccounts: an account that asks for too much waits and keeps no other one from
// asking; many accounts together ask for no more than the payment provider answers.
func TestMayAsk_IsFairToAccounts(t *testing.T) {
	t.Parallel()
	now := time.Now()
	may := mayAsk(func() time.Time { return now })
	count := func(account string, times int) (n int) {
		for range times {
			if may(account) {
				n++
			}
		}
		return n
	}
	require.Equal(t, burstOfAccount, count("acc_1", 1000))
	require.Equal(t, 1, count("acc_2", 1))
	now = now.Add(3 * time.Second)
	require.Equal(t, 3*asksOfAccount, count("acc_1", 1000))
	now = now.Add(time.Minute)
	all := 0
	for i := range 100 {
		all += count(fmt.Sprintf("acc_%d", i), 10)
	}
	require.Equal(t, burstOfAll, all)
}
