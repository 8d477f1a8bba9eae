package bmc

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/db"
	hardwaredb "github.com/slipway-cloud/slipway/db/hardware"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/hardware"
	"github.com/slipway-cloud/slipway/providers"
)

// How long a reading of every part may take: less than the lease of its login, of a job and of a
// look.
const (
	healthLimit    = 2 * time.Minute
	lookPartsLimit = 18 * time.Second
	lookLogsLimit  = 8 * time.Second
)

// maxProblems bounds the parts that a message or a fact names.
const maxProblems = 10

// The values of BMCHealth.Overall.
const (
	healthCritical = "Critical"
	healthUnknown  = "Unknown"
)

// readHealth reads the health of every part behind a BMC. A reading that takes too long, and one
// that only the BMC's tree stands against, is Unknown and not an error: what was not read is never
// OK, and refuses no machine by itself.
func readHealth(ctx context.Context, b providers.BMC, within time.Duration) (providers.BMCHealth, error) {
	limit, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	health, err := b.Health(limit)
	switch {
	case err == nil:
	case ctx.Err() == nil && limit.Err() != nil:
		return providers.BMCHealth{Overall: healthUnknown, Unknown: []string{"the BMC did not tell its parts within " + within.String()}}, nil
	case unreadable(err):
		return providers.BMCHealth{Overall: healthUnknown, Unknown: []string{err.Error()}}, nil
	default:
		return health, err
	}
	health.Problems, health.Unknown = firstParts(health.Problems), firstParts(health.Unknown)
	return health, nil
}

// firstParts keeps a list short enough for a message.
func firstParts(parts []string) []string {
	if len(parts) <= maxProblems {
		return parts
	}
	return append(parts[:maxProblems:maxProblems], fmt.Sprintf("and %d more", len(parts)-maxProblems))
}

// maxKept bounds the parts that are kept of a reading, so that a part which is not well is told
// from others.
const maxKept = 100

// keptProblems orders the parts that are not well, those that are critical first, and bounds them.
func keptProblems(parts []string) []string {
	isCritical := func(s string) int {
		if strings.HasSuffix(s, ": "+healthCritical) {
			return 0
		}
		return 1
	}
	out := slices.Clone(parts)
	slices.SortFunc(out, func(a, b string) int { return cmp.Or(isCritical(a)-isCritical(b), strings.Compare(a, b)) })
	if len(out) > maxKept {
		return append(out[:maxKept:maxKept], fmt.Sprintf("%d more parts that are not well", len(out)-maxKept))
	}
	return out
}

// refuseCritical fails with node_unhealthy where a part is critical. A warning refuses nothing: a
// fan or a power supply of several may be missing.
func refuseCritical(health providers.BMCHealth) error {
	if health.Overall != healthCritical {
		return nil
	}
	return fault.New(lifecycle.FailNodeUnhealthy, "the BMC reports parts of the machine that are not well: %s", strings.Join(health.Problems, "; "))
}

// PartsOut is what LookAtParts read. LogsRead says that the logs were asked for.
type PartsOut struct {
	Survey   providers.Survey
	Logs     providers.BMCLogs
	LogsRead bool
}

// LookAtParts logs in once and reads every part of a machine with its health, then the entries of
// the BMC's logs that are not kept yet. It changes nothing on the BMC and approves no certificate.
// A rejected login stops further ones. Both readings together take less than another waits for its
// turn to log in; what they did not reach is told. A repetition is one more login.
func (a *Activities) LookAtParts(ctx context.Context, in LookIn) (PartsOut, error) {
	var out PartsOut
	known, err := hardwaredb.KnownEntries(ctx, a.Store, in.BMCID)
	if err != nil {
		return out, fault.Internal(ctx, err)
	}
	v, err := a.enter(ctx, loginRequest{bmcID: in.BMCID, caPEM: in.CAPEM, actor: db.Actor{Owner: lifecycle.OwnerReconciler, ID: "reconciler"}})
	if err != nil {
		return out, err
	}
	defer v.leave()
	if out.Survey, err = readParts(ctx, v.bmc, in.Device); err != nil {
		a.blockOnRejection(ctx, v.rec.ID, err)
		return out, fault.BMC(ctx, err)
	}
	limit, cancel := context.WithTimeout(ctx, lookLogsLimit)
	defer cancel()
	if from, ok := v.bmc.(providers.BMCLogResumer); ok {
		out.Logs, err = from.LogsFrom(limit, known.Cursors, known.Has)
	} else {
		out.Logs, err = v.bmc.Logs(limit, known.Has)
	}
	switch {
	case err == nil:
	case ctx.Err() == nil && (limit.Err() != nil || unreadable(err)):
		out.Logs.Partial = append(out.Logs.Partial, err.Error())
	default:
		a.blockOnRejection(ctx, v.rec.ID, err)
		return out, fault.BMC(ctx, err)
	}
	out.LogsRead = true
	return out, nil
}

// readParts reads the parts. A reading that only the BMC's tree stands against is Unknown and not
// an error.
func readParts(ctx context.Context, b providers.BMC, device bool) (providers.Survey, error) {
	limit, cancel := context.WithTimeout(ctx, lookPartsLimit)
	defer cancel()
	survey, err := b.Survey(limit, device)
	var why string
	switch {
	case err == nil:
	case ctx.Err() == nil && limit.Err() != nil:
		why = "the BMC did not tell its parts within " + lookPartsLimit.String()
	case unreadable(err):
		why = err.Error()
	default:
		return survey, err
	}
	if why != "" {
		survey = providers.Survey{
			Health:  providers.BMCHealth{Overall: healthUnknown, Unknown: []string{why}},
			Probes:  []providers.BMCProbe{{Category: hardware.CategoryDevice, Health: healthUnknown, Note: why}},
			Partial: []string{why},
		}
	}
	survey.Health.Problems, survey.Health.Unknown = keptProblems(survey.Health.Problems), firstParts(survey.Health.Unknown)
	return survey, nil
}

// unreadable reports an error that only the BMC's tree is the reason of.
func unreadable(err error) bool {
	kind := providers.KindOf(err)
	return kind == providers.KindProtocol || kind == providers.KindUnsupported || kind == providers.KindTooBig
}
