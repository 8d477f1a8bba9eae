package bmc

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
)

// How long a reading of every part may take: less than the lease of its login, of a job and of a look.
const (
	healthLimit     = 2 * time.Minute
	lookHealthLimit = 20 * time.Second
)

// maxProblems bounds the parts that a message or a fact names.
const maxProblems = 10

// What BMCHealth.Overall says of a machine.
const (
	healthCritical = "Critical"
	healthUnknown  = "Unknown"
)

// readHealth reads the health of every part behind a BMC. A reading that takes too long, and one that
// only the BMC's tree stands against, is Unknown and not an error: what was not read is never OK, and
// refuses no machine by itself.
func readHealth(ctx context.Context, b providers.BMC, within time.Duration) (providers.BMCHealth, error) {
	limit, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	health, err := b.Health(limit)
	switch kind := providers.KindOf(err); {
	case err == nil:
	case ctx.Err() == nil && limit.Err() != nil:
		return providers.BMCHealth{Overall: healthUnknown, Unknown: []string{"the BMC did not tell its parts within " + within.String()}}, nil
	case kind == providers.KindProtocol || kind == providers.KindUnsupported || kind == providers.KindTooBig:
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

// refuseCritical fails with node_unhealthy where a part is critical. A warning refuses nothing: a
// fan or a power supply of several may be missing.
func refuseCritical(health providers.BMCHealth) error {
	if health.Overall != healthCritical {
		return nil
	}
	return fault.New(lifecycle.FailNodeUnhealthy, "the BMC reports parts of the machine that are not well: %s", strings.Join(health.Problems, "; "))
}

// LookAtHealth logs in once and reads the health of every part. It changes nothing on the BMC and
// approves no certificate. A rejected login stops further ones. A repetition is one more login.
func (a *Activities) LookAtHealth(ctx context.Context, in LookIn) (providers.BMCHealth, error) {
	v, err := a.enter(ctx, loginRequest{bmcID: in.BMCID, caPEM: in.CAPEM, actor: db.Actor{Owner: lifecycle.OwnerReconciler, ID: "reconciler"}})
	if err != nil {
		return providers.BMCHealth{}, err
	}
	defer v.leave()
	health, err := readHealth(ctx, v.bmc, lookHealthLimit)
	if err != nil {
		a.blockOnRejection(ctx, v.rec.ID, err)
		return providers.BMCHealth{}, fault.BMC(ctx, err)
	}
	return health, nil
}
