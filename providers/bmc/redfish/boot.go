package redfish

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/stmcginnis/gofish/schemas"

	"github.com/slipway-cloud/slipway/internal/poll"
	"github.com/slipway-cloud/slipway/providers"
)

// The override's property names; only these three are ever sent. The typed
// SetBoot of gofish also sends a null boot order and empty strings.
const (
	keyTarget  = "BootSourceOverrideTarget"
	keyEnabled = "BootSourceOverrideEnabled"
	keyMode    = "BootSourceOverrideMode"
	allowable  = "@Redfish.AllowableValues"
	override   = "BootSourceOverride"
)

// bootSource is a resource that has, or may have, the boot override. mode is the mode that the
// other resource shows, if this one shows none.
type bootSource struct {
	uri  string
	boot doc
	mode string
}

// carries reports whether the resource has the override. A null target, or only the list of allowed
// values, is none.
func (s bootSource) carries() bool {
	return s.boot.text(keyTarget) != "" || s.boot.text(keyEnabled) != ""
}

// bootSources reads the system and its settings object. The first one returned has the override
// that is in force, and a change is tried in this order. Some BMCs accept a change only on the
// settings object, which then shows a target or for how long it holds. Others have only the boot
// order there, or the properties with null.
func (b *BMC) bootSources(ctx context.Context, op *operation) ([]bootSource, error) {
	system, uri, err := b.system(ctx, op)
	if err != nil {
		return nil, err
	}
	own := bootSource{uri: uri, boot: system.sub("Boot")}
	link := system.link("@Redfish.Settings", "SettingsObject")
	if link == "" {
		return []bootSource{own}, nil
	}
	settings, err := b.conn.get(ctx, op, link)
	if err != nil {
		if passable(err) {
			return []bootSource{own}, nil
		}
		return nil, err
	}
	pending := bootSource{uri: link, boot: settings.sub("Boot"), mode: own.boot.text(keyMode)}
	own.mode = pending.boot.text(keyMode)
	switch {
	case pending.boot == nil:
		return []bootSource{own}, nil
	case pending.carries():
		return []bootSource{pending, own}, nil
	default:
		return []bootSource{own, pending}, nil
	}
}

// read returns the present override. A target that names its firmware, as on older boards
// (UefiPxe), is that target in UEFI mode.
func (s bootSource) read() providers.BootOverride {
	out := providers.BootOverride{Enabled: s.boot.text(keyEnabled), Mode: s.mode, FromURI: s.uri}
	if own := s.boot.text(keyMode); own != "" {
		out.Mode = own
	}
	word := s.boot.text(keyTarget)
	if plain, isUEFI := plainTarget(word); isUEFI {
		word, out.Mode = plain, string(schemas.UEFIBootSourceOverrideMode)
	}
	if word == usbCD {
		word = string(providers.BootCD)
	}
	out.Target = providers.BootTarget(word)
	return out
}

// usbCD is the name that one vendor has for the virtual CD.
const usbCD = "UsbCd"

// plainTarget is the device that a target like UefiPxe boots from, in UEFI mode.
func plainTarget(word string) (string, bool) {
	plain, found := strings.CutPrefix(word, "Uefi")
	switch plain {
	case "Pxe", "Hdd", "Cd", "Usb", usbCD, "Floppy":
		return plain, found
	}
	return word, false
}

// BootOverride reads the override now in force.
func (b *BMC) BootOverride(ctx context.Context) (providers.BootOverride, error) {
	op := newOperation("boot_override", b.opts.MaxRequests)
	sources, err := b.bootSources(ctx, op)
	if err != nil {
		return providers.BootOverride{}, err
	}
	if !sources[0].carries() && !sources[0].boot.has(override) {
		return providers.BootOverride{}, &providers.Error{Kind: providers.KindUnsupported, Op: op.name,
			Message: "the BMC shows no boot override"}
	}
	return sources[0].read(), nil
}

// SetBootOnce sets a one-time override and reads it back; BootNone clears it. It sends nothing when
// the override is set already. Enabled may read back as Continuous on BMCs that do not distinguish
// the two.
//
// Errors: KindUnsupported for a target the BMC does not list, KindBusy while it refuses changes in
// the self-test, KindUncertain after a lost answer that a re-read did not settle, KindProtocol when
// it accepts and does not apply.
func (b *BMC) SetBootOnce(ctx context.Context, target providers.BootTarget, uefi bool) (providers.BootOverride, error) {
	op := newOperation("set_boot_once", b.opts.MaxRequests)
	sources, err := b.bootSources(ctx, op)
	if err != nil {
		return providers.BootOverride{}, err
	}
	want, err := newBootWish(op, sources, target, uefi)
	if err != nil {
		return providers.BootOverride{}, err
	}
	if now := sources[0].read(); sources[0].carries() && want.exactly(now) {
		return now, nil
	}
	var failed error
	for _, s := range sources {
		err := b.applyBoot(ctx, op, s, want)
		var pe *providers.Error
		if errors.As(err, &pe) && !refusedHere(pe) && pe.Kind != providers.KindUncertain {
			return providers.BootOverride{}, err
		}
		if err == nil || pe.Kind == providers.KindUncertain {
			now, verr := b.verifyBoot(ctx, op, want)
			if verr == nil {
				return now, nil
			}
			if err != nil {
				return providers.BootOverride{}, err // still unknown
			}
			if !providers.IsKind(verr, providers.KindProtocol) {
				return providers.BootOverride{}, verr
			}
			err = verr
		}
		// The refusal of the first choice is the most useful error. A change that was accepted and
		// then ignored is more useful than a refusal by another resource.
		if failed == nil || providers.IsKind(err, providers.KindProtocol) {
			failed = err
		}
	}
	return providers.BootOverride{}, failed
}

// refusedHere reports whether this resource refuses the change, which another one may accept.
func refusedHere(pe *providers.Error) bool {
	switch pe.Kind {
	case providers.KindInvalid, providers.KindUnsupported, providers.KindNotFound, providers.KindStateConflict:
		return true
	default:
		return false
	}
}

// bootWish is the requested override in the BMC's terms. sendsMode is true when one of the BMC's
// resources shows a mode.
type bootWish struct {
	target, enabled, mode string
	sendsMode             bool
}

func newBootWish(op *operation, sources []bootSource, target providers.BootTarget, uefi bool) (bootWish, error) {
	w := bootWish{target: string(target), enabled: string(schemas.OnceBootSourceOverrideEnabled), mode: string(schemas.LegacyBootSourceOverrideMode)}
	if uefi {
		w.mode = string(schemas.UEFIBootSourceOverrideMode)
	}
	if target == providers.BootNone {
		w.enabled, w.mode = string(schemas.DisabledBootSourceOverrideEnabled), ""
	}
	targets, enabled := allowedIn(sources, keyTarget), allowedIn(sources, keyEnabled)
	if target == providers.BootCD && slices.Contains(targets, usbCD) {
		w.target = usbCD // where a BMC lists it, its virtual CD is this one and Cd is a drive in the machine
	}
	for _, s := range sources {
		w.sendsMode = w.sendsMode || s.boot.text(keyMode) != "" || len(s.boot.texts(keyMode+allowable)) > 0
	}
	if uefi && !w.sendsMode && isUEFIVariant("Uefi"+w.target) && slices.ContainsFunc(targets, isUEFIVariant) {
		// Without a mode the target itself says which firmware boots; the plain one means the old.
		if target == providers.BootCD && slices.Contains(targets, "Uefi"+usbCD) {
			w.target = usbCD
		}
		w.target = "Uefi" + w.target
	}
	if len(targets) > 0 && !slices.Contains(targets, w.target) {
		return w, &providers.Error{Kind: providers.KindUnsupported, Op: op.name,
			Message: "the BMC cannot boot once from " + string(target)}
	}
	if len(enabled) > 0 && !slices.Contains(enabled, w.enabled) {
		return w, &providers.Error{Kind: providers.KindUnsupported, Op: op.name,
			Message: "the BMC does not offer a boot override of the kind " + w.enabled}
	}
	return w, nil
}

func allowedIn(sources []bootSource, key string) []string {
	for _, s := range sources {
		if l := s.boot.texts(key + allowable); len(l) > 0 {
			return l
		}
	}
	return nil
}

func isUEFIVariant(target string) bool { _, found := plainTarget(target); return found }

// exactly reports whether the override is set already, so that nothing has to be sent.
func (w bootWish) exactly(o providers.BootOverride) bool {
	return w.inForce(o) && o.Enabled == w.enabled
}

// inForce reports whether the override reads back as requested.
func (w bootWish) inForce(o providers.BootOverride) bool {
	disabled := o.Enabled == string(schemas.DisabledBootSourceOverrideEnabled)
	if w.target == string(providers.BootNone) {
		return disabled || o.Target == providers.BootNone
	}
	plain, _ := plainTarget(w.target)
	target := o.Target == providers.BootTarget(plain) || (o.Target == providers.BootCD && plain == usbCD)
	return target && !disabled && o.Enabled != "" && (w.mode == "" || o.Mode == "" || strings.EqualFold(o.Mode, w.mode))
}

// payloads lists the bodies to try, the fullest one first. They contain a mode if the BMC shows
// one, since some BMCs revert without it. Later bodies leave out a property that the BMC has
// already set as wanted. The result is always read back.
func (w bootWish) payloads(shown doc) []map[string]string {
	full := map[string]string{keyTarget: w.target, keyEnabled: w.enabled}
	out := []map[string]string{full}
	if w.mode != "" && w.sendsMode {
		full[keyMode] = w.mode
		out = append(out, map[string]string{keyTarget: w.target, keyEnabled: w.enabled})
	}
	if shown.text(keyEnabled) == w.enabled {
		out = append(out, map[string]string{keyTarget: w.target})
	}
	return out
}

// applyBoot patches one resource.
func (b *BMC) applyBoot(ctx context.Context, op *operation, s bootSource, want bootWish) error {
	var err error
	for _, p := range want.payloads(s.boot) {
		err = b.patchTagged(ctx, op, s.uri, map[string]any{"Boot": p})
		if !providers.IsKind(err, providers.KindInvalid) {
			return err
		}
	}
	return err
}

// patchTagged patches with the resource's ETag. It tries the strong one, the weak one and none, as
// long as the BMC refuses with 412 or 428. A resource without an ETag is patched without one, then
// with "*".
func (b *BMC) patchTagged(ctx context.Context, op *operation, uri string, payload any) error {
	for rung := 0; ; rung++ {
		_, tag, err := b.conn.getTagged(ctx, op, uri) // a patch changes the tag, so it is read each time
		if err != nil {
			return err
		}
		bare := strings.TrimPrefix(tag, "W/")
		ladder := []string{bare, "W/" + bare, ""}
		if tag == "" {
			ladder = []string{"", "*"}
		}
		if rung >= len(ladder) {
			return &providers.Error{Kind: providers.KindStateConflict, Op: op.name, Status: http.StatusPreconditionFailed,
				Message: "the BMC accepts no precondition for this change"}
		}
		header := map[string]string{}
		if ladder[rung] != "" {
			header["If-Match"] = ladder[rung]
		}
		err = b.change(ctx, op, http.MethodPatch, uri, payload, header)
		var pe *providers.Error
		if errors.As(err, &pe) && (pe.Status == http.StatusPreconditionFailed || pe.Status == http.StatusPreconditionRequired) {
			continue
		}
		return err
	}
}

// verifyBoot re-reads every resource that may carry the override until one
// shows it. KindProtocol after VerifyWait.
func (b *BMC) verifyBoot(ctx context.Context, op *operation, want bootWish) (providers.BootOverride, error) {
	deadline := time.Now().Add(b.opts.VerifyWait)
	for pause := b.opts.PollMin; ; pause = b.longer(pause) {
		sources, err := b.bootSources(ctx, op)
		if err == nil {
			for _, s := range sources {
				if o := s.read(); s.carries() && want.inForce(o) {
					return o, nil
				}
			}
		}
		var pe *providers.Error
		if errors.As(err, &pe) && (stopsAll(pe) || pe.Kind == providers.KindTooBig) && pe.Kind != providers.KindUnreachable {
			return providers.BootOverride{}, err
		}
		if time.Now().After(deadline) {
			if err != nil {
				return providers.BootOverride{}, err
			}
			return providers.BootOverride{}, &providers.Error{Kind: providers.KindProtocol, Op: op.name,
				Message: "the BMC accepted the boot override but does not show it"}
		}
		if werr := poll.Sleep(ctx, pause); werr != nil {
			return providers.BootOverride{}, &providers.Error{Kind: providers.KindUncertain, Op: op.name, Err: werr,
				Message: "the boot override was sent, but time ran out before it was read back"}
		}
	}
}
