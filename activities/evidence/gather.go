package evidence

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// gathered is the evidence of one run.
type gathered struct {
	in        CertifyIn
	steps     []lifecycle.StepResult
	devices   []lifecycle.DeviceResult
	bootDisks []string // serial numbers of disks that a system ran from
	protected []string // serial numbers of disks that a task must not erase
	scrub     *db.NodeTask
	validate  *db.NodeTask
	ended     time.Time
	simulated bool // some of it comes from recorded tools
	// root says that the node's last tenant was root there. bmcUnchecked says that nothing has
	// compared his BMC since.
	root, bmcUnchecked bool
}

// maxTasks is more than the tasks of one job.
const maxTasks = 100

func (a *Activities) gather(ctx context.Context, in CertifyIn, n db.Node) (*gathered, error) {
	g := &gathered{in: in, simulated: n.Simulated}
	tasks, err := a.Store.ListTasks(ctx, db.TaskFilter{NodeID: in.NodeID, JobID: in.JobID}, "", maxTasks)
	if err != nil {
		return nil, fault.Internal(ctx, err)
	}
	slices.Reverse(tasks) // oldest first: the newest result of a kind counts
	for i := range tasks {
		if tasks[i].Result == nil {
			continue
		}
		switch tasks[i].Kind { //nolint:exhaustive // the others erase and prove nothing
		case lifecycle.TaskKindScrub:
			g.scrub, g.validate = &tasks[i], nil // a validation before it proves nothing any more
		case lifecycle.TaskKindValidate:
			g.validate = &tasks[i]
		}
	}
	g.addTask(g.scrub)
	g.addTask(g.validate)
	g.requireScrub()
	for _, part := range in.NotVerified {
		g.steps = append(g.steps, lifecycle.StepResult{Name: stepOfBMC, Skipped: "not verified: " + part})
	}
	if err := a.addTenantBMC(ctx, g, n); err != nil {
		return nil, err
	}
	if in.AgentUnreachable != "" {
		if err := a.addUnreachable(ctx, g); err != nil {
			return nil, err
		}
	}
	if in.Release != nil {
		g.addRelease(*in.Release)
	}
	g.addMissingDisks()
	g.explainKeptDisks()
	if err := a.setTimes(ctx, g); err != nil {
		return nil, err
	}
	slices.SortStableFunc(g.devices, func(x, y lifecycle.DeviceResult) int {
		return cmp.Or(cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Name, y.Name))
	})
	return g, nil
}

// addTask adds what a task reported: its steps under the name of its kind, and its devices. A disk
// that only the validation saw is not verified.
func (g *gathered) addTask(t *db.NodeTask) {
	if t == nil {
		return
	}
	r := *t.Result
	g.simulated = g.simulated || r.Simulated
	for _, s := range r.Steps {
		clampToTask(t, &s)
		s.Name = string(t.Kind) + "/" + s.Name
		g.steps = append(g.steps, s)
	}
	if !r.OK && !slices.ContainsFunc(r.Steps, func(s lifecycle.StepResult) bool { return !s.OK && s.Skipped == "" }) {
		g.steps = append(g.steps, lifecycle.StepResult{Name: string(t.Kind), Detail: cmp.Or(r.Message, r.Code, "it gave no reason")})
		clampToTask(t, &g.steps[len(g.steps)-1])
	}
	before := slices.Clone(g.devices)
	for _, d := range r.Devices {
		if t.Kind == lifecycle.TaskKindValidate && d.Kind == "disk" && find(before, d, r.Devices) == nil {
			d.Verified, d.Detail = false, "the validation saw it, and the scrub that was to erase it did not"
		}
		g.addDevice(d, r.Devices)
	}
	var out struct {
		BootDisks []string `json:"boot_disks"`
		Protected []string `json:"protected"`
	}
	if t.Kind == lifecycle.TaskKindScrub && len(r.Output) > 0 && json.Unmarshal(r.Output, &out) == nil {
		g.bootDisks, g.protected = append(g.bootDisks, out.BootDisks...), append(g.protected, out.Protected...)
	}
}

// find returns the entry of list that is the same device as d, or nil. origin is the list that d
// comes from. Two entries are the same device when they have the same kind and:
//
//   - the same serial number, if it is unique in both lists: names change from boot to boot;
//   - the same serial number and name, if several disks have that number, as the namespaces of one
//     drive do;
//   - the same name, if one of them has no serial number.
func find(list []lifecycle.DeviceResult, d lifecycle.DeviceResult, origin []lifecycle.DeviceResult) *lifecycle.DeviceResult {
	unique := d.Serial != "" && countSerial(list, d) == 1 && countSerial(origin, d) <= 1
	i := slices.IndexFunc(list, func(have lifecycle.DeviceResult) bool {
		switch {
		case have.Kind != d.Kind:
			return false
		case have.Serial != "" && d.Serial != "":
			return have.Serial == d.Serial && (unique || have.Name == d.Name || d.Kind != "disk")
		}
		return have.Name == d.Name
	})
	if i < 0 {
		return nil
	}
	return &list[i]
}

// countSerial counts the devices of a list that have the kind and serial number of d.
func countSerial(list []lifecycle.DeviceResult, d lifecycle.DeviceResult) int {
	n := 0
	for _, other := range list {
		if other.Kind == d.Kind && other.Serial == d.Serial {
			n++
		}
	}
	return n
}

// addDevice merges a device of the list origin into the evidence. The erasure method of an earlier
// entry stays. The device is verified only if no entry says otherwise.
func (g *gathered) addDevice(d lifecycle.DeviceResult, origin []lifecycle.DeviceResult) {
	have := find(g.devices, d, origin)
	if have == nil {
		g.devices = append(g.devices, d)
		return
	}
	if d.Method != lifecycle.SanitizeNone {
		have.Method, have.Tool = d.Method, d.Tool
	}
	switch {
	case have.Verified && !d.Verified:
		have.Verified, have.Detail = false, d.Detail
	case have.Verified && d.Detail != "" && d.Detail != have.Detail:
		have.Detail += "; after the boot: " + d.Detail
	}
}

// requireScrub adds a failed step when no scrub was told to erase disks, for example because an
// operator adopted its stage: nobody knows who erased a disk that a validation finds blank.
func (g *gathered) requireScrub() {
	var args spec.ScrubArgs
	if g.scrub != nil && json.Unmarshal(g.scrub.Args, &args) == nil && (len(args.Steps) == 0 || slices.Contains(args.Steps, "disks")) || g.in.AgentUnreachable != "" {
		return
	}
	g.steps = append(g.steps, lifecycle.StepResult{Name: string(lifecycle.TaskKindScrub), Detail: "nothing is known of a scrub that was asked to erase disks"})
}

// addUnreachable adds the devices of the last report of a node whose agent could not be given a
// task, or the drives of its record where no report counts, none of them verified.
func (a *Activities) addUnreachable(ctx context.Context, g *gathered) error {
	g.steps = append(g.steps, lifecycle.StepResult{Name: string(lifecycle.TaskKindScrub), Detail: "not done: " + g.in.AgentUnreachable})
	if g.in.DisksRecorded {
		g.devices = append(g.devices, g.recordedDisks()...)
		return nil
	}
	heartbeat, err := a.Store.LatestHeartbeat(ctx, g.in.NodeID)
	if errors.Is(err, db.ErrNotFound) || err == nil && heartbeat.Report == nil {
		return nil // nothing is known of its devices
	}
	if err != nil {
		return fault.Internal(ctx, err)
	}
	var listed []lifecycle.DeviceResult
	for _, u := range heartbeat.Report.GPUs {
		listed = append(listed, lifecycle.DeviceResult{Kind: "gpu", Name: u.UUID, Serial: u.Serial, Model: u.Model, Method: lifecycle.SanitizeNone,
			Detail: "not looked at; the machine's power was confirmed off"})
	}
	for _, d := range heartbeat.Report.Disks {
		listed = append(listed, lifecycle.DeviceResult{Kind: "disk", Name: d.Name, Serial: d.Serial, Model: d.Model, Method: lifecycle.SanitizeNone, Detail: "not looked at"})
	}
	for _, d := range listed {
		g.addDevice(d, listed)
	}
	return nil
}

// recordedDisks returns the drives of the node's record, none of them verified, with the names and
// the spelling of MAAS, where it lists them: a record has no names.
func (g *gathered) recordedDisks() []lifecycle.DeviceResult {
	var named []lifecycle.DeviceResult
	if g.in.Release != nil {
		named = slices.Clone(g.in.Release.Disks)
	}
	out := slices.Clone(g.in.InitialDisks)
	for i := range out {
		out[i].Detail = "not looked at"
		if at := slices.IndexFunc(named, sameDrive(out[i])); at >= 0 {
			out[i].Name, out[i].Serial = named[at].Name, named[at].Serial
			named = slices.Delete(named, at, at+1) // the namespaces of one drive share its serial number
		}
	}
	return out
}

// sameDrive compares a disk with a drive of a record, as tasks compare them.
func sameDrive(recorded lifecycle.DeviceResult) func(lifecycle.DeviceResult) bool {
	return func(d lifecycle.DeviceResult) bool { return spec.DriveKey(d.Serial) == spec.DriveKey(recorded.Serial) }
}

// stepOfBMC names in a certificate what is known of the BMC.
const stepOfBMC = "bmc.settings"

// addTenantBMC adds a failed step where a root tenant could change the BMC and nothing has compared
// it since: the next tenant would get it. The release of an allocation has stages of its own for
// it. A mode after which the node is gone only says it, and so does one after a machine of a
// project: nothing is kept of the BMC when a project gets a machine, so that nothing could ever be
// compared.
func (a *Activities) addTenantBMC(ctx context.Context, g *gathered, n db.Node) (err error) {
	if g.root, err = a.Store.HoldsRootTenant(ctx, n.ID); err != nil {
		return fault.Internal(ctx, err)
	}
	if !g.root || g.in.BMCChecked || g.in.Kind == contract.KindAllocationRelease || n.Lifecycle != lifecycle.NodeMAAS.Lifecycle {
		return nil
	}
	if _, err = a.Store.BMCOfNode(ctx, n.ID); errors.Is(err, db.ErrNotFound) {
		return nil
	} else if err != nil {
		return fault.Internal(ctx, err)
	}
	byMachine, err := a.Store.RootByMachine(ctx, n.ID)
	if err != nil {
		return fault.Internal(ctx, err)
	}
	g.bmcUnchecked = !byMachine
	const why = "the BMC was not compared with what it was before the tenant"
	step := lifecycle.StepResult{Name: stepOfBMC, Detail: why}
	if byMachine || g.in.Mode != lifecycle.ModeReimage {
		step = lifecycle.StepResult{Name: stepOfBMC, Skipped: "not verified: " + why}
	}
	g.steps = append(g.steps, step)
	return nil
}

// eraseTool names MAAS's erasure in a certificate. MAAS uses the drive's own secure erase, or
// overwrites where there is none, and does not say which. So the certificate claims no more than
// clear.
const eraseTool = "MAAS, release with secure erase, else overwrite"

// addRelease adds MAAS's erasure. It counts for disks with the same serial number that no task has
// erased, above all the disk that the system ran from. MAAS does not say which disks it erased, so
// a disk that only MAAS's record lists is not verified: it may be gone since.
func (g *gathered) addRelease(f contract.ReleaseFacts) {
	if f.Erased {
		g.steps = append(g.steps, lifecycle.StepResult{Name: stepOfRelease, OK: true, Detail: "MAAS: Disks erased, machine " + f.SystemID})
	} else {
		g.steps = append(g.steps, lifecycle.StepResult{Name: stepOfRelease, Detail: cmp.Or(f.Fallback, "MAAS did not say that it erased the disks")})
	}
	for i := range f.Disks {
		f.Disks[i].Kind = "disk"
	}
	seen := slices.Clone(g.devices)
	for _, d := range f.Disks {
		have := find(seen, d, f.Disks)
		if have == nil {
			d.Method, d.Tool, d.Verified = lifecycle.SanitizeNone, "", false
			d.Detail = "not seen: MAAS's record of the machine lists it, and neither the node's agent nor who erased the disks has named it"
			g.devices = append(g.devices, d)
			continue
		}
		have = find(g.devices, *have, nil)
		if f.Erased && d.Serial != "" && have.Serial == d.Serial && !have.Verified && have.Method == lifecycle.SanitizeNone && !slices.Contains(g.protected, d.Serial) {
			have.Method, have.Tool, have.Verified, have.Model = lifecycle.SanitizeClear, eraseTool, true, cmp.Or(d.Model, have.Model)
			have.Detail = "MAAS said that it erased all of it, from a system of its own"
		}
	}
}

// addMissingDisks adds, as not verified, the disks that the agent had reported before and the scrub
// did not see. A live system may lack the driver of a disk, and a disk may have failed on its bus:
// neither must prove a node clean.
func (g *gathered) addMissingDisks() {
	if g.scrub == nil {
		return
	}
	missing := func(d lifecycle.DeviceResult, why string) {
		d.Kind, d.Method, d.Verified, d.Detail = "disk", lifecycle.SanitizeNone, false, why
		g.devices = append(g.devices, d)
	}
	add := func(earlier []lifecycle.DeviceResult, why string) {
		seen := slices.Clone(g.devices)
		for _, d := range earlier {
			if find(seen, d, earlier) == nil {
				missing(d, why)
			}
		}
	}
	if g.in.Netboot != nil {
		add(g.in.Netboot.Disks, "the installed system listed it, and the live system that was to erase it does not see it")
	}
	if !g.in.DisksRecorded {
		add(g.in.InitialDisks, "not seen: the node's agent listed it when the job began, and it is not among what the scrub has reported")
		return
	}
	for _, d := range g.in.InitialDisks {
		same := sameDrive(d)
		if !slices.ContainsFunc(g.devices, func(have lifecycle.DeviceResult) bool { return have.Kind == "disk" && same(have) }) {
			missing(d, "not seen: the node's record lists it, and it is not among what the scrub has reported")
		}
	}
}

// isProtected reports whether a disk was left because the task protects it. The agent's word alone
// does not count: the task must name the serial number, or a WWN, which no result holds.
func (g *gathered) isProtected(d lifecycle.DeviceResult) bool {
	var args spec.ScrubArgs
	if d.Kind != "disk" || d.Verified || !slices.Contains(g.protected, d.Serial) || g.scrub == nil || json.Unmarshal(g.scrub.Args, &args) != nil {
		return false
	}
	return slices.ContainsFunc(args.ProtectSerials, func(p string) bool {
		isWWN := !slices.ContainsFunc(args.ExpectedDrives, func(e spec.ExpectedDrive) bool { return spec.DriveKey(e.Serial) == spec.DriveKey(p) })
		return spec.DriveKey(p) == spec.DriveKey(d.Serial) || isWWN && wwn.MatchString(p)
	})
}

// wwn is what a WWN looks like, with and without the prefix of the kernel.
var wwn = regexp.MustCompile(`(?i)^(eui\.|naa\.|nvme\.|t10\.|0x)|^[0-9a-f]{16}([0-9a-f]{16})?$`)

// explainKeptDisks sets the detail of the disks that a mode keeps with the installed system.
func (g *gathered) explainKeptDisks() {
	for i, d := range g.devices {
		if g.isProtected(d) {
			g.devices[i].Detail = "protected, not erased: the node's label, its profile or its SKU protects this drive"
			continue
		}
		if d.Kind != "disk" || d.Verified || !slices.Contains(g.bootDisks, d.Serial) {
			continue
		}
		if g.in.Mode.KeepsSystem() {
			g.devices[i].Detail = fmt.Sprintf("kept, not erased: %s leaves the installed system on this disk", g.in.Mode)
		}
	}
}

// unproven lists what the mode requires and nothing proves. These are not required:
//
//   - the system's disk, in a mode that keeps the system;
//   - a disk that the task protects;
//   - the system's disk and MAAS's erasure, in a full decommission whose profile allows a release
//     without erasing;
//   - anything but the disks, in a full decommission of a node whose agent is unreachable.
//
// A node that was erased from a live system needs at least one disk that is known to be erased.
func (g *gathered) unproven() []string {
	var out []string
	fallback := g.in.Mode == lifecycle.ModeFull && g.in.Release != nil && g.in.Release.Fallback != ""
	disksOnly := g.in.AgentUnreachable != "" && g.in.Mode == lifecycle.ModeFull
	for _, s := range g.steps {
		if s.OK || s.Skipped != "" || s.Name == string(lifecycle.TaskKindScrub) && disksOnly || s.Name == stepOfRelease && fallback {
			continue
		}
		out = append(out, fmt.Sprintf("step %s: %s", s.Name, s.Detail))
	}
	disks := 0
	for _, d := range g.devices {
		if d.Kind == "disk" {
			disks++
		}
		boot := slices.Contains(g.bootDisks, d.Serial)
		if d.Verified || g.isProtected(d) || boot && (g.in.Mode.KeepsSystem() || fallback) || disksOnly && d.Kind != "disk" {
			continue
		}
		out = append(out, fmt.Sprintf("%s %s %s: %s", d.Kind, d.Name, d.Serial, d.Detail))
	}
	neverReported := g.in.Netboot != nil && !g.in.Netboot.Installed
	if (disksOnly || neverReported) && disks == 0 {
		out = append(out, "no disk of the machine is known to be erased")
	}
	return out
}
