package maas

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// LoadSiteIn is the input of LoadSiteConfig.
type LoadSiteIn struct {
	contract.JobRef
	Request contract.OnboardingInput `json:"request"`
	// Series is what is to be installed instead of what the profile says; "" is that.
	Series string `json:"series,omitempty"`
}

// LoadSiteConfig reads site, profile and SKU and proves that the region can do
// what the profile asks: admin rights, at least one SSH key (MAAS seeds the API
// user's keys), the image. A manually bootstrapped node needs no region.
// Read-only.
func (a *Activities) LoadSiteConfig(ctx context.Context, in LoadSiteIn) (contract.SiteFacts, error) {
	out := contract.SiteFacts{Hostname: in.Request.Hostname}
	profile, err := a.Store.Profile(ctx, in.Request.ProfileID)
	if err != nil {
		return out, deleted(ctx, err, "profile", in.Request.ProfileID)
	}
	sku, err := a.Store.SKU(ctx, in.Request.SKUID)
	if err != nil {
		return out, deleted(ctx, err, "SKU", in.Request.SKUID)
	}
	out.Profile, out.SKU = profile.Spec.WithDefaults(), sku.Spec
	if in.Series != "" {
		out.Profile.DistroSeries = in.Series
	}
	if in.Request.Manual {
		site, err := a.Store.Site(ctx, in.SiteID)
		out.Site = site.Spec
		return out, deleted(ctx, err, "site", in.SiteID)
	}
	m, site, err := a.region(ctx, in.JobRef)
	if err != nil {
		return out, err
	}
	out.Site = site
	info, err := m.Probe(ctx)
	if err != nil {
		return out, fault.MAAS(ctx, err)
	}
	out.MAASVersion = info.Version
	if d, err := time.ParseDuration(info.Config["node_timeout"] + "m"); err == nil {
		out.NodeTimeout = spec.Duration(d)
	}
	switch {
	case !info.IsSuperuser:
		return out, fault.New(lifecycle.FailConfiguration,
			"MAAS user %q is no administrator; commissioning and storage need one", info.User)
	case info.SSHKeys == 0:
		return out, fault.New(lifecycle.FailConfiguration,
			"MAAS user %q has no SSH key, so nodes would be deployed without any; add one in MAAS", info.User)
	case !hasImage(info.Images, out.Profile.DistroSeries):
		return out, fault.New(lifecycle.FailConfiguration,
			"MAAS has no image %q; import it, or choose one of: %s", out.Profile.DistroSeries, strings.Join(info.Images, ", "))
	}
	return out, nil
}

// ProbeRegion proves that the region lets Slipway release and delete machines. Read-only.
func (a *Activities) ProbeRegion(ctx context.Context, in contract.JobRef) (contract.MachineFacts, error) {
	m, _, err := a.region(ctx, in)
	if err != nil {
		return contract.MachineFacts{}, err
	}
	info, err := m.Probe(ctx)
	switch {
	case err != nil:
		return contract.MachineFacts{}, fault.MAAS(ctx, err)
	case !info.IsSuperuser:
		return contract.MachineFacts{}, fault.New(lifecycle.FailConfiguration, "MAAS user %q is no administrator; releasing and deleting machines needs one", info.User)
	}
	return contract.MachineFacts{Done: true, Note: "MAAS " + info.Version + " answers"}, nil
}

// deleted tells a record that the request names and that is gone from a database
// that is away.
func deleted(ctx context.Context, err error, what, id string) error {
	if errors.Is(err, db.ErrNotFound) {
		return fault.New(lifecycle.FailConfiguration,
			"%s %s of the request was deleted; cancel this job and onboard the node again with one that exists", what, id)
	}
	return fault.Internal(ctx, err)
}

func hasImage(images []string, series string) bool {
	return slices.ContainsFunc(images, func(i string) bool {
		return i == series || strings.HasSuffix(i, "/"+series)
	})
}
