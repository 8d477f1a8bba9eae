package bmc

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"math/big"
	"strings"

	"github.com/slipway-cloud/slipway/providers"
)

// A new password has letters of both cases, digits and one sign, and none that
// is read or escaped wrongly. Sixteen are good for every make; IPMI 2.0 takes
// twenty at most. 16 characters of this alphabet are about 93 bits.
const (
	passwordLength    = 16
	maxPasswordLength = 20
	upper             = "ABCDEFGHJKLMNPQRSTUVWXYZ"
	lower             = "abcdefghijkmnopqrstuvwxyz"
	digits            = "23456789"
	signs             = "-_"
)

// lengthFor is the length of a password that a policy allows: 16 where it may
// be, between 8 and 20 in any case. It fails for a BMC that demands more.
func lengthFor(p providers.PasswordPolicy) (int, error) {
	n := max(passwordLength, p.MinLength)
	if p.MaxLength > 0 {
		n = min(n, p.MaxLength)
	}
	if n > maxPasswordLength || n < 8 || n < p.MinLength {
		return 0, fmt.Errorf("the BMC demands passwords of %d to %d characters; Slipway makes 8 to %d", p.MinLength, p.MaxLength, maxPasswordLength)
	}
	return n, nil
}

// newPassword draws a password of n characters with at least one of each sort,
// beginning with a letter and without three equal ones in a row.
func newPassword(n int) (providers.Secret, error) {
	all := upper + lower + digits + signs
	for range 1000 {
		b := make([]byte, n)
		for i := range b {
			k, err := rand.Int(rand.Reader, big.NewInt(int64(len(all))))
			if err != nil {
				return providers.Secret{}, &providers.Error{Kind: providers.KindUnavailable, Op: "bmc.new_password", Err: err,
					Message: "the system gives no random numbers"}
			}
			b[i] = all[k.Int64()]
		}
		if p := string(b); wellFormed(p) {
			return providers.NewSecret(p), nil
		}
	}
	return providers.Secret{}, &providers.Error{Kind: providers.KindUnavailable, Op: "bmc.new_password", Message: "no password could be drawn"}
}

func wellFormed(p string) bool {
	for _, sort := range []string{upper, lower, digits, signs} {
		if !strings.ContainsAny(p, sort) {
			return false
		}
	}
	for i := 2; i < len(p); i++ {
		if p[i] == p[i-1] && p[i] == p[i-2] {
			return false
		}
	}
	return strings.ContainsAny(p[:1], upper+lower)
}

// loginSecret is a login as the secret store keeps it.
func loginSecret(user string, password providers.Secret) (providers.Secret, error) {
	b, err := json.Marshal(map[string]string{"username": user, "password": password.Reveal()})
	return providers.NewSecret(string(b)), err
}
