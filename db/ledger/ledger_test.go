package ledgerdb_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	ledgerdb "github.com/slipway-cloud/slipway/db/ledger"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
)

// shop is an installation with one tenant.
type shop struct {
	*testing.T
	dsn     string
	store   *db.Store
	project tenancydb.Project
	account string
}

func newShop(t *testing.T) *shop {
	t.Helper()
	dsn := dbtest.Database(t)
	s := &shop{T: t, dsn: dsn, store: dbtest.Open(t, dsn)}
	s.project = dbtest.Project(t, s.store)
	s.account = s.project.BillingAccountID
	return s
}

func (s *shop) balance() ledgerdb.Balance {
	s.Helper()
	b, err := ledgerdb.ReadBalance(s.Context(), s.store, s.account)
	require.NoError(s, err)
	return b
}

func TestPost_FirstPosting(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	dbtest.Credit(t, s.store, s.account, 1001)
	require.Equal(t, int64(1001), s.balance().BalanceMinor)
	_ = time.Now
}
