//go:build !linux

package billing

import ledgerdb "github.com/slipway-cloud/slipway/db/ledger"

// ReadHostClock knows nothing where the kernel is another one.
func ReadHostClock() ledgerdb.HostClock { return ledgerdb.HostClock{} }
