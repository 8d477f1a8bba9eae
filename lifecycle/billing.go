package lifecycle

import (
	"strconv"
	"strings"
)

// BalanceState is how much is left of the balance of a billing account.
type BalanceState string

// The states of a balance.
const (
	BalanceHealthy  BalanceState = "healthy"
	BalanceLow      BalanceState = "low_balance"
	BalanceDepleted BalanceState = "depleted"
)

// The reasons of a release that money gives.
const (
	ReleaseBalanceDepleted = "balance_depleted"
	ReleaseMaxSpend        = "max_spend"
)

// FormatMinor writes an amount of minor units as a decimal number. exponent is that of its
// currency.
func FormatMinor(minor int64, exponent int) string {
	digits := strconv.FormatInt(minor, 10)
	sign := ""
	if minor < 0 {
		sign, digits = "-", digits[1:]
	}
	if exponent <= 0 {
		return sign + digits
	}
	if missing := exponent + 1 - len(digits); missing > 0 {
		digits = strings.Repeat("0", missing) + digits
	}
	return sign + digits[:len(digits)-exponent] + "." + digits[len(digits)-exponent:]
}
