package scrub

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-cloud/slipway/agent/blockdev"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// foreign returns why a device is not this node's, and nil for a drive of this node. The disk that
// the system runs from is excused when it is not known to be reached over a network, such as a
// volume of a RAID controller: it is never touched, and its certificate needs other proof in any
// case.
func (h Host) foreign(d drive, system map[string]bool) error {
	if d.place.Class == blockdev.Local || system[d.name] && !d.place.Network {
		return nil
	}
	return fmt.Errorf("%s is not this node's and is not touched: %s", d.name, d.place.Reason)
}

// sameDrives compares the drives of this node with those of the task, before anything is changed. A
// drive that is not there is reported by the step that erases the disks.
func (r *run) sameDrives() (string, error) {
	if len(r.expected) == 0 {
		return "drives not compared: the task names none", nil
	}
	all, err := r.drives()
	if err != nil {
		return "", err
	}
	missing, err := r.compare(all)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d of %d drives as the task says", len(r.expected)-len(missing), len(r.expected)), nil
}

// compare returns the expected drives that are not there. The error names the local drives that the
// task does not expect; one that it protects is none of them, since it is never touched. It
// compares nothing when the task names no drives.
func (r *run) compare(all []drive) ([]spec.ExpectedDrive, error) {
	if len(r.expected) == 0 {
		return nil, nil
	}
	missing := slices.Clone(r.expected)
	var errs []error
	for _, d := range all {
		i := slices.IndexFunc(missing, func(e spec.ExpectedDrive) bool { return r.difference(e, d) == "" })
		switch {
		case i >= 0:
			missing = slices.Delete(missing, i, i+1)
		case d.place.Class == blockdev.Local && !r.protected(d): // a foreign one is refused for what it is
			r.code = lifecycle.TaskCodeDriveUnexpected
			errs = append(errs, r.unexpected(d))
		}
	}
	return missing, errors.Join(errs...)
}

// unexpected says what makes a drive differ from those of the task.
func (r *run) unexpected(d drive) error {
	for _, e := range r.expected {
		if d.is(e.Serial) {
			return fmt.Errorf("the drive %s (%s) is not as the task expects it: %s", d.name, d.serial, r.difference(e, d))
		}
	}
	return fmt.Errorf("the task does not expect the drive %s (serial number %q, %s, %d bytes)", d.name, d.serial, d.model, d.bytes)
}

// difference returns in what a drive differs from an expected one, "" for nothing.
func (r *run) difference(e spec.ExpectedDrive, d drive) string {
	switch {
	case d.serial == "" || !d.is(e.Serial):
		return fmt.Sprintf("serial number %q and not %q", d.serial, e.Serial)
	case !sameModel(e.Model, d.model):
		return fmt.Sprintf("model %q and not %q", d.model, e.Model)
	case e.Bytes != 0 && e.Bytes != d.bytes:
		return fmt.Sprintf("%d bytes and not %d", d.bytes, e.Bytes)
	}
	return ""
}

// sameModel compares models as different sources write them: udev has underscores for blanks, and
// the kernel shows the first 16 characters of a SCSI model. An expected model "" is not compared.
func sameModel(expected, shown string) bool {
	plain := func(model string) string {
		return strings.ToLower(strings.Join(strings.Fields(strings.ReplaceAll(model, "_", " ")), " "))
	}
	e, s := plain(expected), plain(shown)
	return e == "" || e == s || len(s) >= 8 && strings.HasPrefix(e, s)
}

// missing reports the expected drives that are not there as devices that nothing was proven of.
func (r *run) missing(drives []spec.ExpectedDrive) []error {
	var errs []error
	for _, e := range drives {
		err := fmt.Errorf("the task expects a drive with serial number %s, which is not there", e.Serial)
		r.device(lifecycle.DeviceResult{Kind: "disk", Name: "missing", Serial: e.Serial, Model: e.Model, Method: lifecycle.SanitizeNone, Detail: err.Error()})
		errs = append(errs, err)
	}
	return errs
}
