package db

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// unacknowledgedLimit is how long the kernel waits for the acknowledgment of what a statement sent,
// in milliseconds. Keep-alive does not bound this wait, and the kernel's own limit is 15 minutes.
const unacknowledgedLimit = 10_000

// limitUnacknowledged sets TCP_USER_TIMEOUT of a socket to the database.
func limitUnacknowledged(network, _ string, c syscall.RawConn) error {
	if network == "unix" {
		return nil
	}
	var set error
	err := c.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, unacknowledgedLimit)
	})
	return errors.Join(err, set)
}
