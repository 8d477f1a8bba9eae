package taskhandlers

import (
	"errors"
	"io/fs"
	"os"
	"slices"

	"github.com/slipway-cloud/slipway/agent/hostscan"
)

func (h Host) scan() hostscan.Root { return hostscan.Root(h.Root) }

// accounts are those of the node. A line that is no account cannot be ended or
// kept; the scrub does not ignore it.
func (h Host) accounts() ([]hostscan.Account, error) {
	all, _, err := h.scan().Accounts()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return all, err
}

// kept are the uids that are never touched: the platform's accounts and whoever
// runs this program.
func (h Host) kept() ([]int, error) {
	all, err := h.accounts()
	if err != nil {
		return nil, err
	}
	out := []int{os.Geteuid()}
	for _, a := range all {
		if a.Name == AgentUser || slices.Contains(h.KeepUsers, a.Name) {
			out = append(out, a.UID)
		}
	}
	return out, nil
}
