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

// controller returns the controller of a namespace. It is one of the namespace's own, never another
// with the same serial number, which a volume of another machine may show.
func (h Host) controller(d drive) (string, error) {
	for _, c := range d.place.Controllers { // several are ways to the same drive
		if h.text("/sys/class/nvme", c, "serial") == d.serial {
			return c, nil
		}
	}
	return "", fmt.Errorf("the controller of the NVMe drive %s cannot be found", d.serial)
}

// decideNVMe has the whole drive sanitized, else each namespace formatted with
// erasure.
func (r *run) decideNVMe(ctx context.Context, g, all []drive, was note) (method, error) {
	serial := g[0].serial
	ctrl, err := r.controller(g[0])
	if err != nil {
		return method{}, err
	}
	raw, err := r.run(ctx, time.Minute, "nvme", "id-ctrl", "/dev/"+ctrl, "-o", "json")
	if err != nil {
		return method{}, err
	}
	id, err := parseIdentity(raw)
	if err != nil {
		return method{}, err
	}
	if id.Serial != serial {
		return method{}, fmt.Errorf("%s is %q and not %s", ctrl, task.Clip(id.Serial, 40), serial)
	}
	// Both commands may take every namespace of the drive.
	for _, d := range all {
		if d.nvme() && d.serial == serial && !slices.ContainsFunc(g, func(o drive) bool { return o.name == d.name }) {
			return method{}, fmt.Errorf("%s shares its drive with %s, which must not be erased", g[0].name, d.name)
		}
	}
	version := r.version(ctx, "nvme", "version")
	m := method{erasure: erasure{Method: lifecycle.SanitizePurge}}
	switch {
	case *id.SaniCap&7 != 0:
		args, how := sanitizeAction(*id.SaniCap)
		m.Tool = "nvme sanitize " + how + ", " + version
		if !was.Begun { // what runs was begun by someone else, perhaps of another kind: ours follows
			m.wait = func(ctx context.Context) error {
				_, err := r.awaitSanitize(ctx, ctrl)
				return err
			}
		}
		m.do = func(ctx context.Context) error { return r.sanitize(ctx, g, ctrl, args, was) }
	case *id.OACS&2 != 0:
		ses, how := formatAction(*id.FNA)
		m.Tool = "nvme format " + how + ", " + version
		layouts := make([]nvmeLayout, len(g))
		for i, d := range g {
			if layouts[i], err = r.layout(ctx, d); err != nil {
				return method{}, err
			}
		}
		m.do = func(ctx context.Context) error { return r.format(ctx, g, layouts, ses) }
	default:
		return method{}, errNoPurge
	}
	return m, nil
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

// sanitize starts the operation, or finds its own running, and waits for its end. It
// goes on in the drive whatever becomes of the agent or of the power.
func (r *run) sanitize(ctx context.Context, g []drive, ctrl string, args []string, was note) error {
	var said *exitError
	status, _, err := r.sanitizeLog(ctx, ctrl)
	if err != nil {
		return err
	}
	if status != sanitizeRunning || !was.Begun {
		permitted, err := r.begin(ctx, g, "/dev/"+ctrl)
		if err != nil {
			return err
		}
		if _, err := r.run(permitted, 2*time.Minute, "nvme", append([]string{"sanitize", "/dev/" + ctrl}, args...)...); err != nil {
			said = &exitError{err}
		}
	}
	status, err = r.awaitSanitize(ctx, ctrl)
	switch {
	case err != nil:
		return err
	case said != nil && (status == sanitizeDone || status == sanitizeDoneFree): // perhaps of an operation before: the canaries tell
		return said
	case said != nil:
		return said.error
	case status == sanitizeDone, status == sanitizeDoneFree:
		return nil
	case status == sanitizeFailed:
		return fmt.Errorf("the drive %s says that the sanitize operation failed", g[0].serial)
	}
	return fmt.Errorf("the drive %s knows nothing of the sanitize operation (status %d)", g[0].serial, status)
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

// formatAction is how to format: cryptographically where the drive can, else by
// erasing user data.
func formatAction(fna uint32) (ses, how string) {
	if fna&4 != 0 {
		return "--ses=2", "(crypto erase)"
	}
	return "--ses=1", "(user data erase)"
}

// nvmeLayout is how a namespace is formatted, as `nvme id-ns -o json` tells it.
type nvmeLayout struct {
	// FLBAS: bits 0 to 3, and above them bits 5 and 6, are the sector format; bit 4 says that the
	// metadata follows the data.
	FLBAS *uint8 `json:"flbas"`
	// DPS: bits 0 to 2 are the type of protection information, bit 3 is its place.
	DPS *uint8 `json:"dps"`
}

func (r *run) layout(ctx context.Context, d drive) (l nvmeLayout, err error) {
	raw, err := r.run(ctx, time.Minute, "nvme", "id-ns", "/dev/"+d.name, "-o", "json")
	if err != nil {
		return l, err
	}
	if json.Unmarshal(raw, &l) != nil || l.FLBAS == nil || l.DPS == nil {
		return l, fmt.Errorf("nvme id-ns does not tell how %s is formatted", d.name)
	}
	return l, nil
}

// args has a format leave the layout as it is. Left out, each would be what the program's version
// takes for a default.
func (l nvmeLayout) args() []string {
	f, p := *l.FLBAS, *l.DPS
	return []string{fmt.Sprintf("--lbaf=%d", f&15|f>>1&0x30), fmt.Sprintf("--ms=%d", f>>4&1), fmt.Sprintf("--pi=%d", p&7), fmt.Sprintf("--pil=%d", p>>3&1)}
}

// format erases each namespace and looks that its layout is as before. An error of the program
// itself is an exitError: the program fails, too, when only the kernel's look at the drive did not
// go well afterwards.
func (r *run) format(ctx context.Context, g []drive, layouts []nvmeLayout, ses string) error {
	ctx, err := r.begin(ctx, g)
	if err != nil {
		return err
	}
	var said []error
	for i, d := range g {
		args := append([]string{"format", "/dev/" + d.name, ses}, layouts[i].args()...)
		if _, err := r.run(ctx, 12*time.Hour, "nvme", append(args, "--force")...); err != nil {
			said = append(said, err)
		}
		now, err := r.layout(ctx, d)
		if err != nil {
			return errors.Join(append(said, err)...)
		}
		if *now.FLBAS != *layouts[i].FLBAS || *now.DPS != *layouts[i].DPS {
			return fmt.Errorf("the sector format of %s was %s and is %s after the erasure", d.name, layouts[i].args(), now.args())
		}
	}
	if len(said) > 0 {
		return &exitError{errors.Join(said...)}
	}
	return nil
}
