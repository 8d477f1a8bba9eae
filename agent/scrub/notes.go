package scrub

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/slipway-cloud/slipway/agent/atomicfile"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// note is how far the erasure of one device has come.
type note struct {
	Begun  bool                     `json:"begun,omitempty"` // the drive was told to erase, or is about to be
	Done   bool                     `json:"done,omitempty"`  // and said that it has
	Method lifecycle.SanitizeMethod `json:"method,omitempty"`
	Tool   string                   `json:"tool,omitempty"`
}

// notes outlive a crash of the agent. They are hints: what they say is looked at
// again before it is believed.
type notes struct {
	path string // "" keeps them in memory

	mu  sync.Mutex
	doc struct {
		RunID   string          `json:"run_id"`
		Devices map[string]note `json:"devices"` // by serial
		// Removed are the numbers of the accounts that this run removed: what is left
		// of them can be told by nothing else.
		Removed []int `json:"removed,omitempty"`
	}
}

// openNotes reads the notes of this run. Those of another run are dropped.
func openNotes(h Host, runID string) (*notes, error) {
	if h.StateDir != "" {
		if err := os.MkdirAll(h.StateDir, 0o700); err != nil {
			return nil, fmt.Errorf("make the directory of the scrub's notes: %w", err)
		}
	}
	return readNotes(h, runID)
}

// readNotes is openNotes for who only looks.
func readNotes(h Host, runID string) (*notes, error) {
	n := &notes{}
	n.doc.RunID, n.doc.Devices = runID, map[string]note{}
	if h.StateDir == "" {
		return n, nil
	}
	n.path = filepath.Join(h.StateDir, "scrub.json")
	raw, err := os.ReadFile(n.path)
	if errors.Is(err, os.ErrNotExist) {
		return n, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the scrub's notes: %w", err)
	}
	old := n.doc
	old.Devices = nil
	// Notes that are broken or of another run say nothing: all is done again.
	if json.Unmarshal(raw, &old) == nil && old.RunID == runID && old.Devices != nil {
		n.doc = old
	}
	return n, nil
}

func (n *notes) get(serial string) note {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.doc.Devices[serial]
}

// put keeps a note for good before it returns.
func (n *notes) put(serial string, v note) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.doc.Devices[serial] = v
	return n.save()
}

// forget drops a note for good before it returns: the disk did not bear it out.
func (n *notes) forget(serial string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.doc.Devices, serial)
	return n.save()
}

// removing notes that an account is about to be removed, before it is.
func (n *notes) removing(uid int) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if slices.Contains(n.doc.Removed, uid) {
		return nil
	}
	n.doc.Removed = append(n.doc.Removed, uid)
	return n.save()
}

func (n *notes) removed() []int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.doc.Removed)
}

func (n *notes) save() error {
	if n.path == "" {
		return nil
	}
	raw, err := json.Marshal(n.doc)
	if err != nil {
		return fmt.Errorf("write the scrub's notes: %w", err)
	}
	if err := atomicfile.Replace(n.path, raw, 0o600); err != nil {
		return fmt.Errorf("write the scrub's notes: %w", err)
	}
	return nil
}
