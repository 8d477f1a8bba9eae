// Package places says where a machine that an SSH server simulates keeps what the steps of runs
// read and write. No setting names these places: a test hands them to the worker of its own
// process, or to that of another one as a file.
package places

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/ssh"
)

// Places are those of one machine.
type Places struct {
	StateDir   string        `json:"state_dir"`
	BootIDFile string        `json:"boot_id_file"`
	Join       ssh.JoinPaths `json:"join"`
}

// Adapters returns the adapter of machines of a data center, with these places.
func (p Places) Adapters() providers.MachineAdapters {
	return providers.MachineAdapters{
		"datacenter": ssh.New(ssh.WithStateDir(p.StateDir), ssh.WithBootIDFile(p.BootIDFile), ssh.WithJoinPaths(p.Join)).Adapter(),
	}
}

// Write writes the places to a file.
func (p Places) Write(path string) error {
	raw, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("write the places: %w", err)
	}
	return os.WriteFile(path, raw, 0o600)
}

// Read reads what Write has written.
func Read(path string) (Places, error) {
	var p Places
	raw, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(raw, &p)
	}
	if err != nil {
		return p, fmt.Errorf("read the places: %w", err)
	}
	return p, nil
}
