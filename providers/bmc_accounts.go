package providers

import (
	"context"
	"time"
)

// BMCLogin is a BMC whose login can be tried by itself. Every BMC that can lock
// an account should be one.
type BMCLogin interface {
	// Login logs in unless that is done, with one attempt at most, and reads
	// nothing that a factory password is not good for. Errors: KindUnauthorized,
	// KindLocked, KindForbidden, KindPasswordChangeRequired when the BMC decided
	// about the login; any other kind when it did not.
	Login(ctx context.Context) error
	// LoginSent reports whether the password may have reached the BMC. False
	// after a failed Login means that the BMC cannot have counted it.
	LoginSent() bool
}

// BMCAccounts is a BMC whose login can change its own password.
type BMCAccounts interface {
	// PasswordPolicy reads what the BMC demands of a password and when it locks
	// an account. A BMC that does not tell gives zero values.
	PasswordPolicy(ctx context.Context) (PasswordPolicy, error)
	// ChangePassword gives the login's own account another password. nil means
	// that the BMC took it. KindUncertain: it was sent and may be in force; log
	// in again to find out. Every other error means that the old one still holds:
	// KindInvalid when the BMC refused the password as such. It is never
	// repeated here.
	ChangePassword(ctx context.Context, fresh Secret) error
}

// PasswordPolicy is what a BMC demands of passwords; lengths of 0 are not told.
type PasswordPolicy struct {
	MinLength, MaxLength int
	// LockoutThreshold is how many wrong passwords lock an account: nil when
	// the BMC does not say, 0 for never.
	LockoutThreshold *int
	// LockoutWindow is after how long without a wrong password the BMC starts
	// counting again, and how long a lock lasts: the longer of the two.
	LockoutWindow time.Duration
}
