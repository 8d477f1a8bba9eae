package scrub

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/agent/task"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// ataPassword is set for the time of the erasure, which takes it away again. It
// is no secret: it must be known to whoever unlocks a drive after a power cut.
const ataPassword = "slipway"

// ataSecurity is the part "Security:" of `hdparm -I`; nil is not told.
type ataSecurity struct {
	serial                                      string
	supported, enabled, locked, frozen, expired *bool
	enhanced                                    bool
}

// parseIdentify reads `hdparm -I`. In the part on security each line is a word,
// with "not" before it where it does not hold.
func parseIdentify(raw []byte) (ataSecurity, error) {
	var s ataSecurity
	inside := false
	for line := range strings.Lines(string(raw)) {
		text := strings.Join(strings.Fields(line), " ")
		if v, ok := strings.CutPrefix(text, "Serial Number: "); ok {
			s.serial = task.Clip(v, 60)
		}
		if strings.HasPrefix(line, "Security:") {
			inside = true
			continue
		}
		if inside && line != "" && line[0] != '\t' && line[0] != ' ' {
			inside = false
		}
		if !inside {
			continue
		}
		word, no := strings.CutPrefix(text, "not ")
		v := !no
		switch {
		case word == "supported":
			s.supported = &v
		case word == "enabled":
			s.enabled = &v
		case word == "locked":
			s.locked = &v
		case word == "frozen":
			s.frozen = &v
		case strings.HasPrefix(word, "expired"):
			s.expired = &v
		case word == "supported: enhanced erase":
			s.enhanced = v
		}
	}
	if s.serial == "" {
		return s, errors.New("hdparm -I does not tell a serial number: this is no ATA disk that it knows")
	}
	return s, nil
}

// ready says why the drive cannot be erased by its own command.
func (s ataSecurity) ready(ours bool) error {
	switch {
	case s.supported == nil || !*s.supported:
		return errNoPurge
	case s.enabled == nil || s.locked == nil || s.frozen == nil:
		return errors.New("hdparm -I does not tell whether the drive is locked or frozen")
	case *s.frozen:
		return errors.New("the drive is frozen by the firmware; it must be powered off and on, or its firmware told not to freeze drives")
	case s.expired != nil && *s.expired:
		return errors.New("too many wrong passwords were tried; the drive must be powered off and on")
	case (*s.locked || *s.enabled) && !ours:
		return errors.New("the drive is locked with a password that Slipway did not set")
	}
	return nil
}

func (r *run) identify(ctx context.Context, d drive) (ataSecurity, error) {
	raw, err := r.run(ctx, time.Minute, "hdparm", "-I", "/dev/"+d.name)
	if err != nil {
		return ataSecurity{}, err
	}
	s, err := parseIdentify(raw)
	if err == nil && s.serial != d.serial {
		err = fmt.Errorf("hdparm says that %s is %q and the kernel that it is %s", d.name, s.serial, d.serial)
	}
	return s, err
}

// decideATA has the drive erase itself by its own command. Only the enhanced one
// purges; the plain one is a clear and needs the task's leave.
func (r *run) decideATA(ctx context.Context, d drive, was note) (method, error) {
	s, err := r.identify(ctx, d)
	if err != nil {
		return method{}, err
	}
	if err := s.ready(was.Begun); err != nil {
		return method{}, fmt.Errorf("%s: %w", d.name, err)
	}
	m, verb := method{erasure: erasure{lifecycle.SanitizePurge, "hdparm --security-erase-enhanced, "}}, "--security-erase-enhanced"
	if !s.enhanced {
		if !r.overwrite {
			return method{}, errNoPurge
		}
		m, verb = method{erasure: erasure{lifecycle.SanitizeClear, "hdparm --security-erase, "}}, "--security-erase"
	}
	m.Tool += r.version(ctx, "hdparm", "-V")
	m.do = func(ctx context.Context) error { return r.eraseATA(ctx, d, s, verb) }
	return m, nil
}

// eraseATA has the drive erase itself.
func (r *run) eraseATA(ctx context.Context, d drive, s ataSecurity, verb string) error {
	ctx, err := r.begin(ctx, []drive{d})
	if err != nil {
		return err
	}
	dev := "/dev/" + d.name
	if *s.locked { // ours, from before a power cut
		if _, err := r.run(ctx, time.Minute, "hdparm", "--user-master", "u", "--security-unlock", ataPassword, dev); err != nil {
			return err
		}
	}
	if !*s.enabled {
		if _, err := r.run(ctx, time.Minute, "hdparm", "--user-master", "u", "--security-set-pass", ataPassword, dev); err != nil {
			return errors.Join(err, r.unlock(ctx, d))
		}
	}
	_, said := r.run(ctx, 24*time.Hour, "hdparm", "--user-master", "u", verb, ataPassword, dev)
	// A drive that has erased itself has no password any more.
	after, err := r.identify(ctx, d)
	if err != nil {
		return errors.Join(said, err, r.unlock(ctx, d))
	}
	if after.enabled == nil || *after.enabled {
		return errors.Join(said, fmt.Errorf("%s still has a password, so it did not finish erasing", d.name), r.unlock(ctx, d))
	}
	if said != nil {
		return &exitError{said}
	}
	return nil
}

// unlock takes the password away, so that a drive that failed stays usable.
func (r *run) unlock(ctx context.Context, d drive) error {
	ctx = context.WithoutCancel(ctx)
	dev := "/dev/" + d.name
	if s, err := r.identify(ctx, d); err == nil && s.enabled != nil && !*s.enabled {
		return nil
	}
	_, first := r.run(ctx, time.Minute, "hdparm", "--user-master", "u", "--security-unlock", ataPassword, dev)
	if _, err := r.run(ctx, time.Minute, "hdparm", "--user-master", "u", "--security-disable", ataPassword, dev); err != nil {
		return fmt.Errorf("%s keeps the password %q: %w", d.name, ataPassword, errors.Join(first, err))
	}
	return nil
}
