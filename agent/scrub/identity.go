package scrub

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/slipway-cloud/slipway/agent/task"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// serialFiles are the serial numbers that the firmware shows: of the system, of
// its board and of its case. Which of them a node's record holds depends on who
// told it: MAAS reads the first, and a BMC may tell any.
func serialFiles() []string {
	return []string{"/sys/class/dmi/id/product_serial", "/sys/class/dmi/id/board_serial", "/sys/class/dmi/id/chassis_serial"}
}

// distinctive is false for a serial number that stands for none.
func distinctive(serial string) bool { return spec.NormalSerial(serial) != "" }

// identity refuses a machine or a boot other than the one the task was given
// for: what was decided for one must not erase another.
func (r *run) identity(context.Context) (string, error) {
	boot := r.text(bootIDFile)
	switch {
	case boot == "":
		return "", errors.New("the boot id cannot be read")
	case r.BootID != "" && boot != r.BootID:
		return "", fmt.Errorf("this is boot %s and the task is for boot %s", boot, r.BootID)
	}
	machine, err := r.sameMachine()
	if err != nil {
		r.code = lifecycle.TaskCodeOtherMachine
		return "", err
	}
	drives, err := r.sameDrives()
	if err != nil {
		return "", err
	}
	return "boot " + boot + ", " + machine + ", " + drives, nil
}

// sameMachine compares the serial number of the task with those of the machine,
// and says what came of it. It refuses when the task names one and the firmware
// shows none, since this may be any machine.
func (r *run) sameMachine() (string, error) {
	var shown []string
	for _, file := range serialFiles() {
		raw, err := r.read(file)
		if err != nil && !errors.Is(err, os.ErrNotExist) && distinctive(r.Serial) {
			return "", fmt.Errorf("the serial number of this machine cannot be read; the task is for %s: %w", r.Serial, err)
		}
		if s := task.Clip(string(raw), 200); distinctive(s) && !slices.Contains(shown, s) {
			shown = append(shown, s)
		}
	}
	switch {
	case !distinctive(r.Serial) && strings.TrimSpace(r.Serial) == "":
		return fmt.Sprintf("serial number %q, not compared: the task names none", list(shown)), nil
	case !distinctive(r.Serial):
		return fmt.Sprintf("serial number %q, not compared: %q, which the task names, tells no machine from another", list(shown), r.Serial), nil
	case len(shown) == 0:
		return "", fmt.Errorf("the firmware shows no serial number, and the task is for %s", r.Serial)
	case !slices.ContainsFunc(shown, r.isSerial):
		return "", fmt.Errorf("this machine has serial number %s and the task is for %s", list(shown), r.Serial)
	}
	return "serial number " + r.Serial + ", as the task says", nil
}

// isSerial says whether what the firmware shows is the serial number of the
// task. Some boards show it among others: "..TAG123.CN7475155P00BV.".
func (r *run) isSerial(shown string) bool {
	want := strings.TrimSpace(r.Serial)
	return strings.EqualFold(shown, want) || slices.ContainsFunc(strings.FieldsFunc(shown, func(c rune) bool { return c == '.' || c == '/' }),
		func(part string) bool { return strings.EqualFold(part, want) })
}
