package taskhandlers

import (
	"os"
	"path/filepath"

	"github.com/slipway-cloud/slipway/agent/atomicfile"
	"github.com/slipway-cloud/slipway/agent/metadata"
	"github.com/slipway-cloud/slipway/agent/task"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// hold writes down which allocation the node is held for. It refuses a second one: the tenant of
// the first may be on the node, whatever the database of the control plane says.
func (h Host) hold(allocationID string) (string, error) {
	path := h.path(metadata.HolderPath)
	held, err := metadata.ReadHolder(path)
	switch {
	case err != nil:
		return "", err
	case held == allocationID:
		return "it is held already", nil
	case held != "":
		return "", refused("the node is held for allocation %s; release that first, or install the node again", held)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	return "held for " + allocationID, atomicfile.Replace(path, []byte(allocationID+"\n"), 0o644)
}

// letGo ends that the node is held for the allocation of an account. A node that is held for
// another one stays so, because a task for a tenant of the past may come late.
func (h Host) letGo(user string) (string, error) {
	path := h.path(metadata.HolderPath)
	held, err := metadata.ReadHolder(path)
	switch {
	case err != nil:
		return "", err
	case held == "":
		return "", task.Skip("it is held for no allocation")
	case lifecycle.TenantAccount(held) != user:
		return "", task.Skip("it is held for another allocation")
	}
	if err := os.Remove(path); err != nil {
		return "", err
	}
	return "no longer held for " + held, atomicfile.SyncDir(filepath.Dir(path))
}
