package providers

import "context"

// MAASCensus reads a region whole: what many machines are asked for at once, in
// place of a call for each. A MAAS client may offer it besides MAAS. All of it
// is read-only.
type MAASCensus interface {
	// EachMachine reads the list of all machines in one request and hands them
	// on one at a time, so that memory holds one. It fails when the list does
	// not come to its end; what was handed on by then is not the whole list.
	EachMachine(ctx context.Context, f func(MAASMachine) error) error
	// PowerAddresses reads where MAAS reaches the BMCs of machines, in one
	// request for at most 200 of them. Machines without one are missing;
	// passwords are never decoded.
	PowerAddresses(ctx context.Context, systemIDs []string) (map[string]string, error)
	// Whoami is the user that the API key belongs to.
	Whoami(ctx context.Context) (string, error)
}

// MaxPowerAddresses is how many machines one PowerAddresses may name.
const MaxPowerAddresses = 200
