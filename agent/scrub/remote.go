package scrub

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slipway-cloud/slipway/agent/blockdev"
	"github.com/slipway-cloud/slipway/agent/toolrunner"
)

// disconnectLimit is how long a program may take to end one connection.
const disconnectLimit = time.Minute

// disconnect ends the connections to storage of other machines: NVMe subsystems that are reached
// over a fabric only, and iSCSI sessions. The data on that storage is left as it is. A connection
// whose device is in use is not ended, since its user would lose what it has not written yet.
func (r *run) disconnect(ctx context.Context) (string, error) {
	begin, err := r.connections()
	if err != nil {
		return "", err
	}
	if len(begin) == 0 {
		return "no connection to storage of other machines", nil
	}
	all, err := r.drives()
	if err != nil {
		return "", err
	}
	var errs []error
	for _, c := range begin {
		if err := r.disconnectOne(ctx, c, all); err != nil {
			errs = append(errs, fmt.Errorf("%s stays connected: %w", c, err))
		}
	}
	left, err := r.awaitDisconnect(ctx)
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("%d connections to storage of other machines are still there: %s", len(left), connectionNames(left))
	}
	gone := slices.DeleteFunc(begin, func(c blockdev.Connection) bool { return slices.Contains(left, c) })
	return "disconnected " + connectionNames(gone), errors.Join(append(errs, err)...)
}

func (r *run) disconnectOne(ctx context.Context, c blockdev.Connection, all []drive) error {
	for _, d := range all {
		if d.place.Connection == c {
			if err := r.inUse(d); err != nil {
				return err
			}
		}
	}
	ctx = toolrunner.Permit(ctx, toolrunner.GuardIdle)
	if c.Kind == blockdev.KindISCSI {
		_, err := r.run(ctx, disconnectLimit, "iscsiadm", "-m", "session", "-r", c.ID, "-u")
		return err
	}
	_, err := r.run(ctx, disconnectLimit, "nvme", "disconnect", "-n", c.ID)
	return err
}

// awaitDisconnect waits until the kernel has taken away what was disconnected, and returns what
// stays.
func (r *run) awaitDisconnect(ctx context.Context) ([]blockdev.Connection, error) {
	for late := time.Now().Add(min(r.Patience, disconnectLimit)); ; {
		left, err := r.connections()
		if err != nil || len(left) == 0 || time.Now().After(late) {
			return left, err
		}
		if err := r.wait(ctx, r.Poll); err != nil {
			return left, err
		}
	}
}

func (r *run) connections() ([]blockdev.Connection, error) {
	all, err := r.blocks().Connections()
	return slices.DeleteFunc(all, func(c blockdev.Connection) bool { return !r.concerns("connection", c.ID) }), err
}

func connectionNames(cs []blockdev.Connection) string {
	out := make([]string, 0, len(cs))
	for _, c := range cs {
		out = append(out, c.String())
	}
	return list(out)
}
