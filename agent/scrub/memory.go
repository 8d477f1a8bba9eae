package scrub

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/slipway-cloud/slipway/lifecycle"
)

// The firmware variables of the TCG's Platform Reset Attack Mitigation.
const (
	efivars    = "/sys/firmware/efi/efivars"
	overwriteV = efivars + "/MemoryOverwriteRequestControl-e20939be-32d4-41be-a150-897f85d49829"
)

// requestOverwrite asks the firmware to overwrite the memory at the next boot,
// and reads the request back. A variable file is four bytes of attributes and
// the value, of which bit 0 is the request.
func (r *run) requestOverwrite(context.Context) (string, error) {
	d := lifecycle.DeviceResult{Kind: "memory", Name: "system memory", Method: lifecycle.SanitizeNone, Tool: "firmware, MemoryOverwriteRequestControl"}
	defer func() { r.device(d) }()
	if err := r.setOverwrite(); err != nil {
		d.Detail = err.Error()
		return "", err
	}
	d.Method, d.Verified = lifecycle.SanitizeClear, true
	d.Detail = "the firmware is asked to overwrite it at the next boot, and the request reads back; the overwriting itself is not seen"
	return d.Detail, nil
}

func (r *run) setOverwrite() error {
	now, err := r.read(overwriteV)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return errors.New("the firmware cannot be asked to overwrite the memory (no MemoryOverwriteRequestControl)")
		}
		return fmt.Errorf("read the firmware's memory overwrite request: %w", err)
	}
	if len(now) != 5 {
		return fmt.Errorf("the firmware's memory overwrite request has %d bytes, not 5", len(now))
	}
	if now[4]&1 == 1 {
		return nil
	}
	path := r.path(overwriteV)
	if err := mutable(path); err != nil {
		return fmt.Errorf("make the firmware's memory overwrite request writable: %w", err)
	}
	// efivarfs takes the whole variable in one write and refuses O_TRUNC's emptiness.
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("request the memory overwrite: %w", err)
	}
	_, err = f.Write(append(now[:4:4], now[4]|1))
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("the firmware refuses the memory overwrite request: %w", err)
	}
	if now, err = r.read(overwriteV); err != nil || len(now) != 5 || now[4]&1 != 1 {
		return errors.New("the firmware took the memory overwrite request and does not show it")
	}
	return nil
}
