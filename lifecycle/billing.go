package lifecycle

import (
	"errors"
	"fmt"
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

// FormatMoney writes an amount of minor units with its currency: 1993 with exponent 2 is 19.93 USD.
func FormatMoney(minor int64, exponent int, currency string) string {
	return FormatMinor(minor, exponent) + " " + currency
}

// MaxMoneyMinor is the largest amount that ParseMoney reads.
const MaxMoneyMinor = 1_000_000_000_000_000

// ParseMoney reads an amount such as 19.93 or 19.93 USD as minor units of a currency with this
// exponent. It refuses another currency, and more digits than the currency has. The error continues
// a sentence that begins with the name of the amount.
func ParseMoney(text string, exponent int, currency string) (int64, error) {
	amount, code, hasCode := strings.Cut(strings.TrimSpace(text), " ")
	example := FormatMoney(50*powerOfTen(exponent), exponent, currency)
	if code = strings.TrimSpace(code); hasCode && !strings.EqualFold(code, currency) {
		return 0, fmt.Errorf("must be in %s, such as %s, not in %q", currency, example, code)
	}
	unsigned, isNegative := strings.CutPrefix(amount, "-")
	whole, fraction, hasPoint := strings.Cut(unsigned, ".")
	switch {
	case !isDigits(whole) || hasPoint && !isDigits(fraction):
		return 0, fmt.Errorf("must be an amount such as %s, not %q", example, text)
	case len(fraction) > exponent && exponent == 0:
		return 0, fmt.Errorf("must be a whole number: %s has no digits after the point, as in %s", currency, example)
	case len(fraction) > exponent:
		return 0, fmt.Errorf("must have at most %d digits after the point, as in %s, not %q", exponent, example, text)
	}
	minor, err := strconv.ParseInt(whole+fraction+strings.Repeat("0", max(exponent-len(fraction), 0)), 10, 64)
	if err != nil || minor > MaxMoneyMinor {
		return 0, errors.New("must be at most " + FormatMoney(MaxMoneyMinor, exponent, currency))
	}
	if isNegative {
		minor = -minor
	}
	return minor, nil
}

func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

func powerOfTen(exponent int) int64 {
	out := int64(1)
	for range max(exponent, 0) {
		out *= 10
	}
	return out
}
