// Package hardware holds the values that are known of a machine's parts: what they are, how well
// they are, and what their BMC logged of them. It compares readings and decides what of them is
// kept, so that a BMC or an agent that lies fills no table. It is pure.
package hardware

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"
)

// Kind is what a part of a machine is.
type Kind string

// The kinds of parts. BMC is a management controller, Firmware an item of firmware that a BMC lists
// beside the parts.
const (
	Chassis  Kind = "chassis"
	Board    Kind = "board"
	CPU      Kind = "cpu"
	GPU      Kind = "gpu"
	Memory   Kind = "memory"
	NIC      Kind = "nic"
	DPU      Kind = "dpu"
	Drive    Kind = "drive"
	PSU      Kind = "psu"
	BMC      Kind = "bmc"
	Firmware Kind = "firmware"
)

// Kinds lists every kind, those first that a list keeps when it is full.
func Kinds() []Kind {
	return []Kind{GPU, DPU, CPU, Chassis, Board, BMC, Drive, PSU, NIC, Memory, Firmware}
}

// The modes of a DPU: a network card of its host, or a computer of its own before the host's
// network.
const (
	ModeNIC = "NIC"
	ModeDPU = "DPU"
)

// Part is one part of a machine as it was read. Empty fields were not told.
type Part struct {
	Kind         Kind   `json:"kind"`
	URI          string `json:"uri,omitempty"` // where the BMC lists it
	Name         string `json:"name,omitempty"`
	Manufacturer string `json:"manufacturer,omitempty"`
	Model        string `json:"model,omitempty"`
	Serial       string `json:"serial,omitempty"`
	PartNumber   string `json:"part_number,omitempty"`
	Firmware     string `json:"firmware,omitempty"`
	Slot         string `json:"slot,omitempty"`
	MAC          string `json:"mac,omitempty"`  // of a network port, lower case with colons
	Mode         string `json:"mode,omitempty"` // of a DPU: ModeNIC, ModeDPU or ""
}

// Kept is a part as it is kept. ID is its serial number, MAC address or UUID; Derived says that it
// has none and ID stands for its place.
type Kept struct {
	ID      string `json:"id"`
	Derived bool   `json:"derived,omitempty"`
	Part
	FirstSeen time.Time `json:"first_seen"`
	LastSeen  time.Time `json:"last_seen"`
	// Gone says that a later reading of its whole kind did not list it.
	Gone bool `json:"gone,omitempty"`
}

// Change is a difference between two readings.
type Change struct {
	At   time.Time `json:"at"`
	Kind Kind      `json:"kind"`
	ID   string    `json:"id"`
	What string    `json:"what"` // added, gone, or the field that differs
	From string    `json:"from,omitempty"`
	To   string    `json:"to,omitempty"`
}

// The bounds of what is kept of one machine from one source.
const (
	MaxParts   = 512
	MaxChanges = 50
	maxText    = 200
	// keepGone is how long a part that is gone is listed.
	keepGone = 180 * 24 * time.Hour
)

// Inventory is what is kept of a machine from one source.
type Inventory struct {
	Parts   []Kept   `json:"parts"`
	Changes []Change `json:"changes"` // newest first
	// LeftOut is how many parts of the last reading were not kept.
	LeftOut int `json:"left_out,omitempty"`
	// Whole are the kinds that were read without a gap at least once. A part of another kind may
	// have been there before it was listed.
	Whole []Kind `json:"whole,omitempty"`
}

// clip bounds a field of a part.
func clip(s string) string { return bounded(s, maxText) }

// bounded cuts a text at so many bytes and takes out what is not printable.
func bounded(s string, limit int) string {
	s = strings.ToValidUTF8(s[:min(len(s), limit)], "")
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, s))
}

func (p Part) clipped() Part {
	for _, f := range []*string{&p.URI, &p.Name, &p.Manufacturer, &p.Model, &p.Serial, &p.PartNumber, &p.Firmware, &p.Slot, &p.MAC, &p.Mode} {
		*f = clip(*f)
	}
	return p
}

// fields are those whose change is a change of the part.
func (p Part) fields() [][2]string {
	return [][2]string{{"serial", p.Serial}, {"model", p.Model}, {"part_number", p.PartNumber}, {"firmware", p.Firmware}, {"slot", p.Slot}, {"mac", p.MAC}, {"mode", p.Mode}}
}

// identify gives each part its id: what names it alone among its kind, or else its place.
func identify(seen []Part) []Kept {
	count := map[string]int{}
	name := func(p Part) string {
		if p.Serial != "" {
			return p.Serial
		}
		return p.MAC
	}
	for _, p := range seen {
		count[string(p.Kind)+" "+name(p)]++
	}
	out := make([]Kept, 0, len(seen))
	used := map[string]bool{}
	for _, p := range seen {
		k := Kept{ID: name(p), Part: p}
		if k.ID == "" || count[string(p.Kind)+" "+k.ID] > 1 {
			sum := sha256.Sum256([]byte(string(p.Kind) + "\x00" + p.URI + "\x00" + p.Name))
			k.ID, k.Derived = hex.EncodeToString(sum[:8]), true
		}
		if key := string(p.Kind) + " " + k.ID; !used[key] {
			used[key] = true
			out = append(out, k)
		}
	}
	return out
}

// Merge returns the inventory after another reading, at a time. whole names the kinds that were
// read without a gap: of another kind a part that was not listed stays. The first such reading of a
// kind is no change.
func Merge(before Inventory, seen []Part, whole []Kind, at time.Time) Inventory {
	var out Inventory
	parts := make([]Part, 0, min(len(seen), 2*MaxParts))
	for _, kind := range Kinds() { // those that matter most first, so that they are kept
		for _, p := range seen {
			if p.Kind == kind && len(parts) < 2*MaxParts {
				parts = append(parts, p.clipped())
			}
		}
	}
	now := identify(parts)
	out.LeftOut = len(seen) - len(parts) + max(0, len(now)-MaxParts)
	now = now[:min(len(now), MaxParts)]
	for _, kind := range Kinds() {
		if slices.Contains(before.Whole, kind) || slices.Contains(whole, kind) {
			out.Whole = append(out.Whole, kind)
		}
	}
	known := map[string]Kept{}
	for _, k := range before.Parts {
		known[string(k.Kind)+" "+k.ID] = k
	}
	change := func(k Kept, what, from, to string) {
		out.Changes = append(out.Changes, Change{At: at, Kind: k.Kind, ID: k.ID, What: what, From: from, To: to})
	}
	for _, k := range now {
		old, ok := known[string(k.Kind)+" "+k.ID]
		k.FirstSeen, k.LastSeen = at, at
		switch {
		case ok:
			k.FirstSeen = old.FirstSeen
			if old.Gone {
				change(k, "added", "", k.Model)
			}
			was := old.fields()
			for i, f := range k.fields() {
				if was[i][1] != f[1] && was[i][1] != "" && f[1] != "" {
					change(k, f[0], was[i][1], f[1])
				}
			}
			k.Part = filled(k.Part, old.Part)
		case slices.Contains(before.Whole, k.Kind):
			change(k, "added", "", k.Model)
		}
		delete(known, string(k.Kind)+" "+k.ID)
		out.Parts = append(out.Parts, k)
	}
	for _, k := range before.Parts {
		if _, left := known[string(k.Kind)+" "+k.ID]; !left {
			continue
		}
		if !k.Gone && slices.Contains(whole, k.Kind) && out.LeftOut == 0 {
			k.Gone = true
			change(k, "gone", k.Model, "")
		}
		if len(out.Parts) < MaxParts && (!k.Gone || at.Sub(k.LastSeen) < keepGone) {
			out.Parts = append(out.Parts, k)
		}
	}
	out.Changes = append(out.Changes, before.Changes...)
	out.Changes = out.Changes[:min(len(out.Changes), MaxChanges)]
	return out
}

// filled returns a part with the fields that this reading did not tell as they were.
func filled(p, old Part) Part {
	for into, from := range map[*string]string{&p.Serial: old.Serial, &p.Model: old.Model, &p.PartNumber: old.PartNumber, &p.Firmware: old.Firmware, &p.Slot: old.Slot, &p.MAC: old.MAC, &p.Mode: old.Mode} {
		if *into == "" {
			*into = from
		}
	}
	return p
}

// Digest identifies what the machine consists of: its parts that are there, with their fields. It
// is "" for an inventory without a part.
func (i Inventory) Digest() string {
	var lines []string
	for _, k := range i.Parts {
		if k.Gone {
			continue
		}
		line := string(k.Kind) + "\x00" + k.ID
		for _, f := range k.fields() {
			if f[0] != "mode" { // a finding of its own
				line += "\x00" + f[1]
			}
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		return ""
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "\x01")))
	return hex.EncodeToString(sum[:16])
}

// Modes lists the DPUs that tell their mode, as "id=mode", sorted.
func (i Inventory) Modes() []string {
	out := []string{}
	for _, k := range i.Parts {
		if k.Kind == DPU && !k.Gone && k.Mode != "" {
			out = append(out, k.ID+"="+k.Mode)
		}
	}
	slices.Sort(out)
	return out
}
