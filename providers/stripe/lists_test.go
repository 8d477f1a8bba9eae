package stripe_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/stripe"
)

// TestMovements_SayWhatWasConverted: a movement in the currency in which Stripe settles is told
// from one in the currency that was paid.
func TestMovements_SayWhatWasConverted(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"object":"list","url":"/v1/balance_transactions","has_more":false,"data":[
			{"id":"txn_1","object":"balance_transaction","amount":2250,"fee":90,"currency":"eur","exchange_rate":0.9,"reporting_category":"charge","created":1772366400},
			{"id":"txn_2","object":"balance_transaction","amount":2500,"fee":90,"currency":"eur","exchange_rate":null,"reporting_category":"charge","created":1772366400}]}`))
	}))
	t.Cleanup(srv.Close)
	p, err := stripe.Opener{}.OpenPayments(providers.PaymentsAccount{Rule: providers.SimulatedAddresses(), URL: srv.URL, Key: providers.NewSecret(apiKey)})
	require.NoError(t, err)
	page, err := p.Movements(t.Context(), providers.PaymentQuery{})
	require.NoError(t, err)
	require.Len(t, page.Items, 2)
	for i, converted := range []bool{true, false} {
		require.Equal(t, "EUR", page.Items[i].Currency)
		require.Equal(t, converted, page.Items[i].Converted)
	}
}
