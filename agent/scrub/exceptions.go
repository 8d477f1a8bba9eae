package scrub

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-cloud/slipway/agent/blockdev"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// excepted reports whether a device can hold nothing of a tenant and is left alone for it. A device
// that the task expects as a drive of the node never is, whatever it looks like now: its record is
// from before the tenant. Nor is one that the task protects, which is reported as protected.
func (r *run) excepted(d drive) bool {
	return d.place.Exception != "" && !r.protected(d) && !slices.ContainsFunc(r.expected, func(e spec.ExpectedDrive) bool { return d.is(e.Serial) })
}

// exceptions names the devices that are left alone, for the certificate. It returns an error for a
// boot area that is not blank: root can take its write protection away and put it back.
func (r *run) exceptions() (string, error) {
	devices, err := r.blocks().Devices()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	var errs []error
	for _, place := range devices {
		d := r.driveAt(place)
		if !r.concerns("disk", d.name) || !r.excepted(d) {
			continue
		}
		fmt.Fprintf(&b, "; exception: %s (%s %s) is %s and was not erased", d.name, r.text(blockClass, d.name, "device/vendor"), d.model, place.Exception)
		if place.Exception != blockdev.ExceptionBootArea {
			continue
		}
		if err := r.allBlank(d); err != nil {
			errs = append(errs, fmt.Errorf("%s, %s, is not proven blank: %w; zero it by hand, or protect it by its serial number %q", d.name, place.Exception, err, d.serial))
		}
	}
	return b.String(), errors.Join(errs...)
}

// allBlank reads a whole device, of which blockdev bounds the size.
func (r *run) allBlank(d drive) (err error) {
	f, err := r.openDisk(d.name, d.bytes, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	for at := int64(0); at+blockSize <= f.size; at += blockSize {
		b, err := f.block(at)
		if err != nil {
			return err
		}
		if !blank(b) {
			return fmt.Errorf("it holds something at byte %d", at)
		}
	}
	return nil
}
