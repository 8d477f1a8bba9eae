package billing

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	ledgerdb "github.com/slipway-cloud/slipway/db/ledger"
)

// ReadHostClock reads what the host knows of its own clock. A value that cannot be read stays zero,
// so that a tick after an outage finds no proof in it.
func ReadHostClock() ledgerdb.HostClock {
	var c ledgerdb.HostClock
	var up unix.Timespec
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err == nil && unix.ClockGettime(unix.CLOCK_BOOTTIME, &up) == nil {
		c.Boot, c.Uptime = strings.TrimSpace(string(boot)), time.Duration(up.Nano())
	}
	var state unix.Timex // without a mode it changes nothing
	_, err = unix.Adjtimex(&state)
	c.Synchronized = err == nil && state.Status&unix.STA_UNSYNC == 0
	return c
}
