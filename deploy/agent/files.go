// Package agent holds what installs the node agent: systemd units, an installer
// and the guard of updates. Its only code hands these files to who writes a
// node's first boot.
package agent

import (
	"embed"
	"fmt"
)

//go:embed install.sh guard.sh slipway-agent.service slipway-agent-helper.service slipway-agent-helper.socket slipway-agent-metadata.socket
var files embed.FS

// File is one file of the installation.
type File struct {
	Name    string // without a directory
	Content []byte
}

// Files are what install.sh needs beside it, and itself, sorted by name.
func Files() ([]File, error) {
	entries, err := files.ReadDir(".")
	if err != nil {
		return nil, fmt.Errorf("read the agent's installer: %w", err)
	}
	out := make([]File, 0, len(entries))
	for _, e := range entries {
		content, err := files.ReadFile(e.Name())
		if err != nil {
			return nil, fmt.Errorf("read the agent's installer: %w", err)
		}
		out = append(out, File{Name: e.Name(), Content: content})
	}
	return out, nil
}
