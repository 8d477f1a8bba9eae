package scrub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/agent/task"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// nvmeIdentity is what `nvme id-ctrl -o json` tells of a controller.
type nvmeIdentity struct {
	Serial string `json:"sn"`
	// SaniCap: bit 0 crypto, bit 1 block erase, bit 2 overwrite.
	SaniCap *uint32 `json:"sanicap"`
	// FNA: bits 0 and 1 say that a format, or an erasing one, takes all
	// namespaces; bit 2 that cryptographic erasure is there.
	FNA *uint32 `json:"fna"`
	// OACS bit 1: it can format.
	OACS *uint32 `json:"oacs"`
}

func parseIdentity(raw []byte) (nvmeIdentity, error) {
	var id nvmeIdentity
	if err := json.Unmarshal(raw, &id); err != nil {
		return id, errors.New("nvme id-ctrl wrote something that cannot be read")
	}
	id.Serial = strings.TrimSpace(id.Serial)
	if id.Serial == "" || id.SaniCap == nil || id.FNA == nil || id.OACS == nil {
		return id, errors.New("nvme id-ctrl does not tell what the controller can erase")
	}
	return id, nil
}

// The status of the most recent sanitize operation, bits 2:0 of SSTAT.
const (
	sanitizeNever    = 0
	sanitizeDone     = 1
	sanitizeRunning  = 2
	sanitizeFailed   = 3
	sanitizeDoneFree = 4 // done, and blocks deallocated though asked not to be
)

// parseSanitizeLog reads `nvme sanitize-log -o json`: {"nvme0": {"sprog": ...,
// "sstat": ...}} or without the outer name. SSTAT is a number, or an object
// whose "status" is a number or starts with it in brackets.
func parseSanitizeLog(raw []byte) (status, progress int, err error) {
	unreadable := errors.New("nvme sanitize-log wrote something that cannot be read")
	var doc map[string]json.RawMessage
	if json.Unmarshal(raw, &doc) != nil {
		return 0, 0, unreadable
	}
	if _, ok := doc["sstat"]; !ok && len(doc) == 1 {
		for _, inner := range doc {
			doc = nil
			if json.Unmarshal(inner, &doc) != nil {
				return 0, 0, unreadable
			}
		}
	}
	var n int
	if json.Unmarshal(doc["sprog"], &progress) != nil {
		return 0, 0, unreadable
	}
	if json.Unmarshal(doc["sstat"], &n) == nil {
		return n & 7, progress, nil
	}
	var parts struct {
		Status json.RawMessage `json:"status"`
	}
	if json.Unmarshal(doc["sstat"], &parts) != nil {
		return 0, 0, unreadable
	}
	if json.Unmarshal(parts.Status, &n) == nil {
		return n & 7, progress, nil
	}
	var text string
	if json.Unmarshal(parts.Status, &text) != nil {
		return 0, 0, unreadable
	}
	if _, err := fmt.Sscanf(text, "(%d)", &n); err != nil {
		return 0, 0, unreadable
	}
	return n & 7, progress, nil
}

// controller finds the controller of a namespace by serial: with native
// multipath the numbers in the two names differ.
func (h Host) controller(serial string) (string, error) {
	var found []string
	for _, c := range h.names("/sys/class/nvme") {
		if h.text("/sys/class/nvme", c, "serial") == serial {
			found = append(found, c)
		}
	}
	if len(found) == 0 {
		return "", fmt.Errorf("the controller of the NVMe drive %s cannot be found", serial)
	}
	slices.Sort(found)
	return found[0], nil // several are ways to the same drive
}

// eraseNVMe sanitizes the whole drive, else formats each namespace with
// erasure.
func (r *run) eraseNVMe(ctx context.Context, g, all []drive, was note) (erasure, error) {
	serial := g[0].serial
	ctrl, err := r.controller(serial)
	if err != nil {
		return erasure{}, err
	}
	raw, err := r.run(ctx, time.Minute, "nvme", "id-ctrl", "/dev/"+ctrl, "-o", "json")
	if err != nil {
		return erasure{}, err
	}
	id, err := parseIdentity(raw)
	if err != nil {
		return erasure{}, err
	}
	if id.Serial != serial {
		return erasure{}, fmt.Errorf("%s is %q and not %s", ctrl, task.Clip(id.Serial, 40), serial)
	}
	// Both commands may take every namespace of the drive.
	for _, d := range all {
		if d.nvme() && d.serial == serial && !slices.Contains(g, d) {
			return erasure{}, fmt.Errorf("%s shares its drive with %s, which must not be erased", g[0].name, d.name)
		}
	}
	version := r.version(ctx, "nvme", "version")
	switch {
	case *id.SaniCap&7 != 0:
		how, err := r.sanitize(ctx, g, ctrl, *id.SaniCap, was)
		return erasure{lifecycle.SanitizePurge, "nvme sanitize " + how + ", " + version}, err
	case *id.OACS&2 != 0:
		how, err := r.format(ctx, g, *id.FNA)
		return erasure{lifecycle.SanitizePurge, "nvme format " + how + ", " + version}, err
	}
	return erasure{}, errNoPurge
}

// sanitizeAction is how to sanitize. Block erase comes first, since what it
// leaves can be seen to be blank.
func sanitizeAction(caps uint32) (args []string, how string) {
	switch {
	case caps&2 != 0:
		return []string{"--sanact=2"}, "(block erase)"
	case caps&1 != 0:
		return []string{"--sanact=4"}, "(crypto erase)"
	}
	return []string{"--sanact=3", "--ovrpat=0", "--owpass=1"}, "(overwrite)"
}

// sanitize starts the operation, or finds it running, and waits for its end. It
// goes on in the drive whatever becomes of the agent or of the power.
func (r *run) sanitize(ctx context.Context, g []drive, ctrl string, caps uint32, was note) (string, error) {
	args, how := sanitizeAction(caps)
	status, _, err := r.sanitizeLog(ctx, ctrl)
	if err != nil {
		return how, err
	}
	if status == sanitizeRunning && !was.Begun { // begun by someone else, perhaps of another kind: ours follows
		if _, err := r.awaitSanitize(ctx, ctrl); err != nil {
			return how, err
		}
		if err := r.replant(g); err != nil {
			return how, err
		}
	}
	if status != sanitizeRunning || !was.Begun {
		if err := r.begin(g); err != nil {
			return how, err
		}
		if _, err := r.run(ctx, 2*time.Minute, "nvme", append([]string{"sanitize", "/dev/" + ctrl}, args...)...); err != nil {
			return how, err
		}
	}
	status, err = r.awaitSanitize(ctx, ctrl)
	switch {
	case err != nil:
		return how, err
	case status == sanitizeDone, status == sanitizeDoneFree:
		return how, nil
	case status == sanitizeFailed:
		return how, fmt.Errorf("the drive %s says that the sanitize operation failed", g[0].serial)
	}
	return how, fmt.Errorf("the drive %s knows nothing of the sanitize operation (status %d)", g[0].serial, status)
}

// replant writes the canaries, over what an erasure may have left of them.
func (r *run) replant(g []drive) error {
	for _, d := range g {
		if err := r.plant(d.name, r.runID, d.serial, d.bytes); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) sanitizeLog(ctx context.Context, ctrl string) (status, progress int, err error) {
	raw, err := r.run(ctx, time.Minute, "nvme", "sanitize-log", "/dev/"+ctrl, "-o", "json")
	if err != nil {
		return 0, 0, err
	}
	return parseSanitizeLog(raw)
}

// awaitSanitize waits until the operation no longer runs; ctx is its deadline.
func (r *run) awaitSanitize(ctx context.Context, ctrl string) (int, error) {
	for {
		status, progress, err := r.sanitizeLog(ctx, ctrl)
		if err != nil || status != sanitizeRunning {
			return status, err
		}
		if err := r.wait(ctx, r.Poll); err != nil {
			return status, fmt.Errorf("%s is still erasing, %d of 65535 done; it goes on without the agent: %w", ctrl, progress, err)
		}
	}
}

// format erases each namespace: cryptographically where the drive can, else by
// erasing user data.
func (r *run) format(ctx context.Context, g []drive, fna uint32) (string, error) {
	ses, how := "--ses=1", "(user data erase)"
	if fna&4 != 0 {
		ses, how = "--ses=2", "(crypto erase)"
	}
	if err := r.begin(g); err != nil {
		return how, err
	}
	for _, d := range g {
		if _, err := r.run(ctx, 12*time.Hour, "nvme", "format", "/dev/"+d.name, ses, "--force"); err != nil {
			return how, err
		}
	}
	return how, nil
}
