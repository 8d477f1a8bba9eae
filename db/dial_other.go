//go:build !linux

package db

import "syscall"

// limitUnacknowledged does nothing where TCP_USER_TIMEOUT does not exist.
func limitUnacknowledged(_, _ string, _ syscall.RawConn) error { return nil }
