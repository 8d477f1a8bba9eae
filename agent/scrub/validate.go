package scrub

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// The steps of a validation that a scrub has not. The others bear the same
// names and only look.
const (
	StepFreshBoot = "fresh_boot"
	StepDiskBlank = "disks_blank"
	StepHardware  = "hardware"
	StepGPUState  = "gpu_state"
	StepGPUFabric = "gpu_fabric"
	StepGPUErrors = "gpu_errors"
)

// ValidateSteps lists the steps of a validation in their order.
func ValidateSteps() []string {
	return []string{StepFreshBoot, StepContainers, StepProcesses, StepUsers, StepKeys, StepAutostart, StepMounts, StepFiles, StepDiskBlank,
		StepHardware, StepGPUState, StepGPUFabric, StepGPUErrors}
}

// Validate looks at a node after its scrub and changes nothing. It may be run
// at any time and again. All steps are done, so that one look tells everything,
// or those that args names; the fresh boot is always asked for. On another machine
// than the task is for nothing else is looked at.
// Its devices are disks and GPUs as it saw them: the method is none, since a
// look erases nothing, and verified says that nothing was found.
func Validate(ctx context.Context, h Host, args spec.ValidateArgs, record func(lifecycle.StepResult)) lifecycle.TaskResult {
	r := newRun(h, args.RunID, args.KeepUsers, args.KeepKeys, record)
	for _, s := range args.Steps {
		if !slices.Contains(ValidateSteps(), s) {
			return r.refuse(fmt.Sprintf("there is no step %q", s))
		}
	}
	if err := r.check(); err != nil {
		return r.refuse(err.Error())
	}
	var err error
	if r.notes, err = readNotes(r.Host, args.RunID); err != nil {
		return r.refuse(err.Error())
	}
	r.protect, r.expected = args.ProtectSerials, args.ExpectedDrives
	v := validation{run: r, args: args}
	do := []func(context.Context) (string, error){v.freshBoot, v.noContainers, v.noProcesses, v.noUsers, v.noKeys, v.noAutostart, v.noMounts, v.noFiles, v.blankDisks,
		v.hardware, v.gpuState, v.gpuFabric, v.gpuErrors}
	for i, name := range ValidateSteps() {
		if len(args.Steps) > 0 && name != StepFreshBoot && !slices.Contains(args.Steps, name) {
			continue
		}
		_, cont := r.step(ctx, step{name, func(_ *run, ctx context.Context) (string, error) {
			detail, err := do[i](ctx)
			if err != nil { // what a look says when all is well is not true then
				detail = ""
			}
			return detail, err
		}})
		if !cont {
			return r.end(fmt.Sprintf("stopped before the step %s: %v", name, context.Cause(ctx)))
		}
		if r.code == lifecycle.TaskCodeOtherMachine { // what is found there is no evidence of this node
			break
		}
	}
	return r.end("")
}

type validation struct {
	*run
	args spec.ValidateArgs
}

// freshBoot is proven by another boot id than the one the scrub ran in.
func (v validation) freshBoot(ctx context.Context) (string, error) {
	detail, err := v.identity(ctx)
	if err != nil {
		return "", err
	}
	if v.args.NotBootID == "" {
		return "", skipped("no fresh boot was asked for; " + detail)
	}
	if v.text(bootIDFile) == v.args.NotBootID {
		return "", errors.New("this is still the boot that the scrub ran in")
	}
	return detail + ", another than that of the scrub", nil
}

func (v validation) noProcesses(context.Context) (string, error) {
	left, err := v.foreignProcesses()
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("%d processes of accounts that are not the platform's: %s", len(left), list(names(left)))
	}
	return "no process of an unknown account", err
}

func (v validation) noUsers(context.Context) (string, error) {
	found, err := v.foreignAccounts()
	if err == nil && len(found) > 0 {
		var who []string
		for _, a := range found {
			who = append(who, a.Name)
		}
		err = fmt.Errorf("unknown accounts: %s", list(who))
	}
	return "no unknown account", err
}

func (v validation) noKeys(context.Context) (string, error) {
	found, err := v.foreignKeys()
	if err == nil && len(found) > 0 {
		var where []string
		for path := range found {
			where = append(where, path)
		}
		slices.Sort(where)
		err = fmt.Errorf("unknown keys in %s", list(where))
	}
	return "no unknown key", err
}

func (v validation) noAutostart(ctx context.Context) (string, error) {
	found, err := v.foreignFiles(ctx)
	if err == nil && len(found) > 0 {
		err = fmt.Errorf("files that start by themselves and belong to no package: %s", list(found))
	}
	return "nothing unknown starts by itself", err
}

func (v validation) noMounts(context.Context) (string, error) {
	found, err := v.foreignMounts()
	if err == nil && len(found) > 0 {
		var where []string
		for _, m := range found {
			where = append(where, m.Target)
		}
		err = fmt.Errorf("unknown mounts: %s", list(where))
	}
	return "no unknown mount", err
}

// blankDisks samples every disk but the system's and those that the task
// protects, which are reported as they are: not verified.
func (v validation) blankDisks(context.Context) (string, error) {
	all, err := v.drives()
	if err != nil {
		return "", err
	}
	mounts, err := v.mountList()
	if err != nil {
		return "", err
	}
	system, err := v.systemDisks(mounts)
	if err != nil {
		return "", err
	}
	missing, err := v.compare(all)
	excepted, exErr := v.exceptions()
	errs := append(v.missing(missing), err, exErr)
	looked := 0
	for _, d := range all {
		if err := v.foreign(d, system); err != nil && !(v.protected(d) && d.place.Exception != "") {
			errs = append(errs, v.untouched(d, err))
			continue
		}
		if system[d.name] {
			continue
		}
		if v.protected(d) {
			v.out.Protected = append(v.out.Protected, d.serial)
			_ = v.untouched(d, errors.New("the task protects it, so it was not looked at"))
			continue
		}
		looked++
		seen, err := v.sample(d.name, v.runID, d.serial, d.bytes)
		if err == nil {
			err = seen.err(d.name)
		}
		dev := lifecycle.DeviceResult{Kind: "disk", Name: d.name, Serial: d.serial, Model: d.model, Method: lifecycle.SanitizeNone,
			Tool: "slipway-agent, sampled reads", Verified: err == nil, Detail: fmt.Sprintf("%d sampled blocks are blank", seen.blocks)}
		if err != nil {
			dev.Detail = err.Error()
			errs = append(errs, err)
		}
		v.device(dev)
	}
	if looked == 0 && errors.Join(errs...) == nil {
		return excepted, skipped("there is no disk but the system's and protected ones")
	}
	return fmt.Sprintf("%d disks are blank where they were sampled%s", looked, excepted), errors.Join(errs...)
}

// hardware compares the node with its SKU.
func (v validation) hardware(ctx context.Context) (string, error) {
	if v.Health == nil {
		return "", errors.New("the agent gave the validation no way to look at the hardware")
	}
	report := v.Health(ctx)
	var errs []error
	for _, bad := range v.args.SKU.CheckHealth(report) {
		errs = append(errs, errors.New(bad))
	}
	return fmt.Sprintf("%d GPUs, %d disks, as the SKU says", len(report.GPUs), len(report.Disks)), errors.Join(errs...)
}
