package spec

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// The bounds of what is said of a node's drives, whoever says it.
const (
	MaxDrives         = 256
	maxDriveText      = 128
	maxProtectSerials = 64
)

// serialPattern is what a serial number or WWN of a drive looks like. A comma separates several in
// a label, so that none may hold one.
var serialPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9 ._:/+=-]{2,126}[A-Za-z0-9]$`)

// DriveKey is the form in which serial numbers of drives are compared.
func DriveKey(serial string) string { return strings.ToUpper(strings.TrimSpace(serial)) }

// NormalDrives returns the drives in one order and form. It returns an error for a list that cannot
// be a node's: too long, or with text that no drive shows. Drives without a serial number are left
// out, because no task can name them.
func NormalDrives(drives []ExpectedDrive) ([]ExpectedDrive, error) {
	if len(drives) > MaxDrives {
		return nil, fmt.Errorf("%d drives are more than the %d that a node may have", len(drives), MaxDrives)
	}
	var out []ExpectedDrive
	for _, d := range drives {
		d.Serial, d.Model = strings.TrimSpace(d.Serial), strings.TrimSpace(d.Model)
		switch {
		case len(d.Serial) > maxDriveText || len(d.Model) > maxDriveText || d.Bytes < 0:
			return nil, fmt.Errorf("drive %.40q has a text of more than %d characters or a negative size", d.Serial, maxDriveText)
		case OneLine(d.Serial) != d.Serial || OneLine(d.Model) != d.Model:
			return nil, fmt.Errorf("drive %.40q has characters that no drive shows", d.Serial)
		case d.Serial != "":
			out = append(out, d)
		}
	}
	slices.SortFunc(out, func(x, y ExpectedDrive) int {
		return cmp.Or(cmp.Compare(DriveKey(x.Serial), DriveKey(y.Serial)), cmp.Compare(x.Bytes, y.Bytes), cmp.Compare(x.Model, y.Model))
	})
	return out, nil
}

// Drives returns the drives of a report.
func (r HealthReport) Drives() []ExpectedDrive {
	out := make([]ExpectedDrive, 0, len(r.Disks))
	for _, d := range r.Disks {
		out = append(out, ExpectedDrive{Serial: d.Serial, Model: d.Model, Bytes: d.Bytes})
	}
	return out
}

// CheckProtectSerials returns what is wrong with a list of protected serial numbers or WWNs, "" for
// nothing.
func CheckProtectSerials(serials []string) string {
	if len(serials) > maxProtectSerials {
		return fmt.Sprintf("must have at most %d entries", maxProtectSerials)
	}
	for _, s := range serials {
		if !serialPattern.MatchString(s) {
			return fmt.Sprintf("entry %.40q is not a serial number or WWN: 4 to 128 letters, digits, spaces or ._:/+=-, never a name such as /dev/sda", s)
		}
	}
	return ""
}

// ParseProtectLabel returns the serial numbers of the label protect-serials, which are separated by
// commas. It returns an error for an empty entry, so that a mistyped label protects nothing
// silently.
func ParseProtectLabel(value string) ([]string, error) {
	parts := strings.Split(value, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	if why := CheckProtectSerials(parts); why != "" {
		return nil, fmt.Errorf("the label protect-serials lists serial numbers separated by commas: it %s", why)
	}
	return parts, nil
}

// JoinSerials returns the serial numbers of several lists, each once, in one order.
func JoinSerials(lists ...[]string) []string {
	all := slices.Concat(lists...)
	slices.SortFunc(all, func(x, y string) int { return cmp.Compare(DriveKey(x), DriveKey(y)) })
	return slices.CompactFunc(all, func(x, y string) bool { return DriveKey(x) == DriveKey(y) })
}
