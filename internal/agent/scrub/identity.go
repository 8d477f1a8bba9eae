package scrub

import (
	"context"
	"errors"
	"fmt"
)

// identity refuses a machine or a boot other than the one the task was given
// for: what was decided for one must not erase another.
func (r *run) identity(context.Context) (string, error) {
	boot, serial := r.text(bootIDFile), r.text(serialFile)
	switch {
	case boot == "":
		return "", errors.New("the boot id cannot be read")
	case r.BootID != "" && boot != r.BootID:
		return "", fmt.Errorf("this is boot %s and the task is for boot %s", boot, r.BootID)
	case r.Serial != "" && serial == "":
		return "", fmt.Errorf("the serial number of this machine cannot be read; the task is for %s", r.Serial)
	case r.Serial != "" && serial != r.Serial:
		return "", fmt.Errorf("this machine has serial number %s and the task is for %s", serial, r.Serial)
	}
	return fmt.Sprintf("boot %s, serial number %q", boot, serial), nil
}
