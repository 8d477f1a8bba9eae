package lifecycle_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle"
)

func TestMoney_IsReadAsItIsWritten(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		minor    int64
		exponent int
		currency string
		text     string
	}{
		{1993, 2, "USD", "19.93 USD"}, {-5, 2, "USD", "-0.05 USD"}, {0, 2, "EUR", "0.00 EUR"}, {1993, 0, "JPY", "1993 JPY"}, {-1993, 3, "KWD", "-1.993 KWD"},
		{lifecycle.MaxMoneyMinor, 2, "USD", "10000000000000.00 USD"},
	} {
		require.Equal(t, tc.text, lifecycle.FormatMoney(tc.minor, tc.exponent, tc.currency))
		minor, err := lifecycle.ParseMoney(tc.text, tc.exponent, tc.currency)
		require.NoError(t, err, tc.text)
		require.Equal(t, tc.minor, minor, tc.text)
	}
}

func TestParseMoney_RefusesOtherForms(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{"50": 5000, "50.5": 5050, "50.50": 5050, " 50.50  usd ": 5050, "-0.01 USD": -1, "007": 700} {
		minor, err := lifecycle.ParseMoney(text, 2, "USD")
		require.NoError(t, err, text)
		require.Equal(t, want, minor, text)
	}
	for _, tc := range []struct {
		text     string
		exponent int
		currency string
		says     string
	}{
		{"", 2, "USD", "such as 50.00 USD"}, {"USD", 2, "USD", "such as 50.00 USD"}, {"50,00", 2, "USD", "such as 50.00 USD"}, {"1e3", 2, "USD", "such as 50.00 USD"},
		{"50.", 2, "USD", "such as 50.00 USD"}, {".5", 2, "USD", "such as 50.00 USD"}, {"+5", 2, "USD", "such as 50.00 USD"}, {"--5", 2, "USD", "such as 50.00 USD"},
		{"50.001", 2, "USD", "at most 2 digits"}, {"50.00 EUR", 2, "USD", "must be in USD"}, {"50.00 USD EUR", 2, "USD", "must be in USD"},
		{"50.0", 0, "JPY", "50 JPY"}, {"50.0001", 3, "KWD", "at most 3 digits"},
		{"10000000000000.01", 2, "USD", "at most 10000000000000.00 USD"}, {"99999999999999999999", 2, "USD", "must be at most"},
	} {
		_, err := lifecycle.ParseMoney(tc.text, tc.exponent, tc.currency)
		require.ErrorContains(t, err, tc.says, tc.text)
	}
}
