package secrets

import (
	"strconv"
	"strings"

	"github.com/slipway-cloud/slipway/providers"
)

const (
	maxNameLen = 200
	// reservedPrefix is for rows of this package's own.
	reservedPrefix     = "_slipway/"
	fingerprintKeyName = reservedPrefix + "fingerprint-key"
)

// checkName accepts 1 to 200 of a-z 0-9 / _ . - outside the reserved prefix.
func checkName(op, name string) error {
	ok := len(name) >= 1 && len(name) <= maxNameLen && !strings.HasPrefix(name, reservedPrefix)
	for _, c := range []byte(name) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || strings.IndexByte("/_.-", c) >= 0)
	}
	if !ok {
		// The text is not repeated: somebody may have put the secret itself there.
		return failure(providers.KindInvalid, op, nil,
			"the secret's name is not valid; use 1 to %d of a-z 0-9 / _ . - and do not begin with %s", maxNameLen, reservedPrefix)
	}
	return nil
}

// parseRef splits "name" or "name@version"; version 0 means the newest.
func parseRef(op string, ref providers.SecretRef) (name string, version int, err error) {
	name, number, versioned := strings.Cut(string(ref), "@")
	if err := checkName(op, name); err != nil {
		return "", 0, err
	}
	if !versioned {
		return name, 0, nil
	}
	n, err := strconv.ParseUint(number, 10, 31)
	if err != nil || n == 0 || number[0] == '0' || number[0] == '+' {
		return "", 0, failure(providers.KindInvalid, op, nil, "the version of secret %s must be a number from 1 up, as in %s@2", name, name)
	}
	return name, int(n), nil
}

func versionedRef(name string, version int) providers.SecretRef {
	return providers.SecretRef(name + "@" + strconv.Itoa(version))
}
