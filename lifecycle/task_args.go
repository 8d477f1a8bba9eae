package lifecycle

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
)

// strict decodes the arguments of a kind and asks them whether they make sense.
func strict(raw json.RawMessage, into any) error {
	if err := DecodeStrict(raw, into); err != nil {
		return fmt.Errorf("task arguments: %w", err)
	}
	if v, ok := into.(interface{ check() error }); ok {
		return v.check()
	}
	return nil
}

var accountName = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,31}$`)

const mostGrace = 24 * 60 * 60

func (a *DrainArgs) check() error {
	if a.GraceSeconds < 0 || a.GraceSeconds > mostGrace {
		return fmt.Errorf("grace_seconds %d is not between 0 and %d", a.GraceSeconds, mostGrace)
	}
	return nil
}

func (a *RevokeUserArgs) check() error {
	if !accountName.MatchString(a.User) || a.User == "root" {
		return fmt.Errorf("user %q is not the name of a tenant's account", a.User)
	}
	return nil
}

func (a *ScrubArgs) check() error {
	if a.RunID == "" {
		return errors.New("run_id is missing")
	}
	return checkAccounts(a.KeepUsers)
}

func (a *ValidateArgs) check() error {
	if a.RunID == "" {
		return errors.New("run_id is missing")
	}
	return checkAccounts(a.KeepUsers)
}

func (a *UpdateArgs) check() error {
	if len(a.Manifest) == 0 || len(a.ManifestSignature) == 0 || a.BinaryURL == "" {
		return errors.New("manifest, manifest_signature and binary_url are needed")
	}
	return nil
}

func checkAccounts(names []string) error {
	if i := slices.IndexFunc(names, func(n string) bool { return !accountName.MatchString(n) }); i >= 0 {
		return fmt.Errorf("%q is not the name of an account", names[i])
	}
	return nil
}
