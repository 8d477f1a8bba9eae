// Package smi reads what nvidia-smi writes: its XML, and the texts that stand where the driver has
// no value. agent reports from it, agent/scrub decides from it.
package smi

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/slipway-cloud/slipway/agent/task"
)

// Decode reads the XML of `nvidia-smi -q -x` into log.
func Decode(raw []byte, log any) error {
	d := xml.NewDecoder(strings.NewReader(string(raw)))
	d.CharsetReader = func(_ string, in io.Reader) (io.Reader, error) { return in, nil }
	if err := d.Decode(log); err != nil {
		return errors.New("nvidia-smi wrote XML that cannot be read")
	}
	return nil
}

// CheckAttached returns an error unless as many GPUs are described as attached_gpus says.
func CheckAttached(attached string, described int) error {
	if n, err := strconv.Atoi(strings.TrimSpace(attached)); err != nil || n != described {
		return fmt.Errorf("nvidia-smi says that %q GPUs are attached and describes %d", task.Clip(attached, 20), described)
	}
	return nil
}

// HasValue is false for what nvidia-smi writes where the driver has no such value.
func HasValue(s string) bool {
	switch bare(s) {
	case "", "n/a", "requested functionality has been deprecated":
		return false
	}
	return true
}

// Unknown is true for what nvidia-smi writes where it cannot tell a value, or has none.
func Unknown(s string) bool {
	switch bare(s) {
	case "unknown", "not supported":
		return true
	}
	return !HasValue(s) || RequiresReset(s) || Failed(s)
}

// Failed is true for what the driver writes where it could not ask the GPU.
func Failed(s string) bool { return bare(s) == "unknown error" || bare(s) == "gpu is lost" }

// RequiresReset is true for what the driver writes in place of any value that it cannot read before
// a reset.
func RequiresReset(s string) bool { return bare(s) == "gpu requires reset" }

func bare(s string) string { return strings.ToLower(strings.Trim(s, "[]")) }
