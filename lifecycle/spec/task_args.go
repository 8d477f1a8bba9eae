package spec

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// DecodeArgs decodes the arguments of a task kind strictly into one of the types below and checks
// their values.
func DecodeArgs(raw json.RawMessage, into any) error {
	if err := DecodeStrict(raw, into); err != nil {
		return fmt.Errorf("task arguments: %w", err)
	}
	if v, ok := into.(interface{ check() error }); ok {
		return v.check()
	}
	return nil
}

var accountName = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,31}$`)

const mostGrace = 24 * 60 * 60

// DrainArgs are the arguments of node.drain.
type DrainArgs struct {
	GraceSeconds int    `json:"grace_seconds"`
	Reason       string `json:"reason,omitempty"`
}

// UninstallArgs are the arguments of node.uninstall.
type UninstallArgs struct {
	KeepReports bool `json:"keep_reports,omitempty"`
}

// RevokeUserArgs are the arguments of allocation.revoke_user.
type RevokeUserArgs struct {
	AllocationID string `json:"allocation_id,omitempty"`
	User         string `json:"user"`
	RemoveHome   bool   `json:"remove_home"`
}

// RetireCredentialsArgs are the arguments of node.retire_credentials.
type RetireCredentialsArgs struct{}

// ExpectedDrive is a drive that the node had when the task was decided, from its inventory.
type ExpectedDrive struct {
	Serial string `json:"serial"`
	// Model and Bytes are compared only when they are set.
	Model string `json:"model,omitempty"`
	Bytes int64  `json:"bytes,omitempty"`
}

// ScrubArgs are the arguments of gpu.scrub.
type ScrubArgs struct {
	RunID string `json:"run_id"` // names the run in the evidence
	// Serial is the serial number of the machine that this was decided for, as the
	// node's record has it: a machine that shows another refuses. "", or what
	// makers write where there is none, is not compared, and the result says so.
	Serial string `json:"serial,omitempty"`
	// ExpectedDrives are all drives of the node, the system's and the protected ones too. A local
	// drive that is not among them refuses the scrub before anything is changed; one of them that
	// is not there fails it. With none nothing is compared, and the result says so.
	ExpectedDrives []ExpectedDrive `json:"expected_drives,omitempty"`
	// Steps limits the scrub to these steps; empty means all.
	Steps []string `json:"steps,omitempty"`
	// ProtectSerials are disks that must not be wiped, by serial or WWN.
	ProtectSerials []string `json:"protect_serials,omitempty"`
	// AllowOverwrite lets a disk without a purge command be overwritten, which
	// is recorded as clear and not as purge.
	AllowOverwrite bool `json:"allow_overwrite,omitempty"`
	// KeepUsers are accounts of the platform itself.
	KeepUsers []string `json:"keep_users,omitempty"`
	// KeepKeys are the public keys ("type base64") that accounts which stay may
	// keep. Every other authorized key is removed, since nobody can tell whose it
	// is; with none, no one gets in by ssh after a scrub.
	KeepKeys []string `json:"keep_keys,omitempty"`
}

// ValidateArgs are the arguments of node.validate.
type ValidateArgs struct {
	RunID  string  `json:"run_id"`
	SKU    SKUSpec `json:"sku"`
	Serial string  `json:"serial,omitempty"` // as in ScrubArgs
	// NotBootID is the boot that the scrub ran in: the node must have booted
	// since. Empty asks for no fresh boot.
	NotBootID string   `json:"not_boot_id,omitempty"`
	KeepUsers []string `json:"keep_users,omitempty"`
	KeepKeys  []string `json:"keep_keys,omitempty"` // as in ScrubArgs; any other key is unknown
	// ExpectedDrives are as in ScrubArgs; a difference fails the look at the disks.
	ExpectedDrives []ExpectedDrive `json:"expected_drives,omitempty"`
	// ProtectSerials are the disks that the scrub was not to wipe, so that they
	// need not be blank.
	ProtectSerials []string `json:"protect_serials,omitempty"`
	// Steps are the steps to do; empty means all. A live system has no accounts or files of
	// tenants, since it boots from the network each time.
	Steps []string `json:"steps,omitempty"`
}

// UpdateArgs are the arguments of agent.update.
type UpdateArgs struct {
	// Manifest is the signed manifest, as bytes; ManifestSignature is over them.
	Manifest          []byte `json:"manifest"`
	ManifestSignature []byte `json:"manifest_signature"`
	BinaryURL         string `json:"binary_url"`
}

func (a *DrainArgs) check() error {
	if a.GraceSeconds < 0 || a.GraceSeconds > mostGrace {
		return fmt.Errorf("grace_seconds %d is not between 0 and %d", a.GraceSeconds, mostGrace)
	}
	return nil
}

func (a *RevokeUserArgs) check() error {
	if !accountName.MatchString(a.User) || a.User == "root" {
		return fmt.Errorf("user %q is not the name of a tenant's account", a.User)
	}
	return nil
}

func (a *ScrubArgs) check() error {
	if a.RunID == "" {
		return errors.New("run_id is missing")
	}
	return errors.Join(checkAccounts(a.KeepUsers), checkDrives(a.ExpectedDrives), checkProtected(a.ProtectSerials))
}

func (a *ValidateArgs) check() error {
	if a.RunID == "" {
		return errors.New("run_id is missing")
	}
	return errors.Join(checkAccounts(a.KeepUsers), checkDrives(a.ExpectedDrives), checkProtected(a.ProtectSerials))
}

func (a *UpdateArgs) check() error {
	if len(a.Manifest) == 0 || len(a.ManifestSignature) == 0 || a.BinaryURL == "" {
		return errors.New("manifest, manifest_signature and binary_url are needed")
	}
	return nil
}

// checkProtected refuses an entry that no drive could have, which would protect nothing.
func checkProtected(serials []string) error {
	if len(serials) > protectSources*maxProtectSerials {
		return fmt.Errorf("protect_serials has more than %d entries", protectSources*maxProtectSerials)
	}
	for i, s := range serials {
		if why := CheckProtectSerials([]string{s}); why != "" {
			return fmt.Errorf("protect_serials[%d]: %s", i, why)
		}
	}
	return nil
}

// protectSources is how many lists of protected serial numbers a node may have: those of its label,
// its profile and its SKU.
const protectSources = 3

// checkDrives refuses a drive that could not be told from another.
func checkDrives(drives []ExpectedDrive) error {
	if len(drives) > MaxDrives {
		return fmt.Errorf("expected_drives has more than %d entries", MaxDrives)
	}
	for i, d := range drives {
		if strings.TrimSpace(d.Serial) == "" || d.Bytes < 0 {
			return fmt.Errorf("expected_drives[%d] has no serial number or a negative size", i)
		}
	}
	return nil
}

func checkAccounts(names []string) error {
	if i := slices.IndexFunc(names, func(n string) bool { return !accountName.MatchString(n) }); i >= 0 {
		return fmt.Errorf("%q is not the name of an account", names[i])
	}
	return nil
}
