// Package freeport finds TCP ports for servers that stop and start again on the same port.
package freeport

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
)

// Systems take the ports of outgoing connections, and of listeners that ask for none, from 32768 on
// (Linux) or 49152 on. Below they leave a port alone while its server is stopped.
const (
	lowest  = 12000
	highest = 32000
	tries   = 100
)

// Find returns a port of 127.0.0.1 on which nothing listens, outside of the range from which the
// system takes ports by itself. It returns an error when it finds none in 100 tries.
func Find(ctx context.Context) (int, error) {
	for range tries {
		port := lowest + rand.IntN(highest-lowest) //nolint:gosec // not a secret
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("find a free port of 127.0.0.1: %w", err)
		}
		return port, l.Close()
	}
	return 0, fmt.Errorf("no port of 127.0.0.1 between %d and %d was free in %d tries", lowest, highest, tries)
}
