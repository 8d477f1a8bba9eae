package server

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/slipway-cloud/slipway/api/agentapi"
	"github.com/slipway-cloud/slipway/api/boot"
	"github.com/slipway-cloud/slipway/api/grpc"
	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/portal"
	"github.com/slipway-cloud/slipway/api/portal/session"
	"github.com/slipway-cloud/slipway/api/rest"
	"github.com/slipway-cloud/slipway/api/rest/tenancy"
	"github.com/slipway-cloud/slipway/assembly/server/httpapi"
	"github.com/slipway-cloud/slipway/intent/allocation"
	"github.com/slipway-cloud/slipway/internal/config"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/maas"
	"github.com/slipway-cloud/slipway/providers/stripe"
	"github.com/slipway-cloud/slipway/providers/webhook"
)

func (a *App) agentStore() agentapi.Store { return agentapi.NewStore(a.Store) }

// agentHosts are the names in the agent API's certificate.
func agentHosts(publicURL string) []string {
	u, err := url.Parse(publicURL)
	if err != nil || u.Hostname() == "" {
		return nil
	}
	return []string{u.Hostname()}
}

// httpAPI assembles the listener of the HTTP API.
func (a *App) httpAPI(ctx context.Context) (*op.API, error) {
	c := a.Config
	webhooks, err := a.checkPayments(ctx)
	if err != nil {
		return nil, err
	}
	browsers, err := portalConfig(c)
	if err != nil {
		return nil, err
	}
	return httpapi.New(httpapi.Config{
		API: op.Config{
			Store: a.Store, Log: a.Log, PublicURL: c.API.PublicURL, Version: Version, PrincipalRate: c.API.PrincipalRate, AddressRate: c.API.AddressRate,
			Auth: op.AuthConfig{Issuer: c.OIDC.Issuer, Audience: c.OIDC.Audience, RolesClaim: c.OIDC.RolesClaim, GroupsClaim: c.OIDC.GroupsClaim},
		},
		REST: rest.Config{
			Temporal: a.Temporal, Secrets: a.Secrets, MAASProbe: a.probeMAAS, Plans: a.Temporal, TaskQueue: c.Temporal.TaskQueue,
			AgentURL: c.Agent.PublicURL, AgentCAPEM: string(a.CA.CertPEM()), NodeCARef: c.Agent.CARef,
			SignIn: rest.SignIn{Issuer: c.OIDC.Issuer, ClientID: c.OIDC.CLIClientID, Token: c.OIDC.CLIToken()},
		},
		Boot:   boot.Config{Own: a.Secrets.OwnAddresses},
		Portal: browsers,
		Launch: allocation.Policy{
			MaxLaunches: a.Config.Allocation.MaxLaunches, LaunchWindow: a.Config.Allocation.LaunchWindow, MaxReleasing: a.Config.Allocation.MaxReleasing,
			MaxUnpaid: a.Config.Allocation.MaxUnpaid,
		},
		Billing:   tenancy.BillingConfig{ConfirmAbove: int64(c.Billing.ConfirmAdjustmentAbove)},
		Events:    tenancy.EventsConfig{Secrets: a.Secrets, Rule: a.webhookRule, NewSecret: webhook.NewSecret},
		Machines:  grpc.Config{Offers: a.machineOffers(), LogsIn: a.machineLogsIn, CustomersTakeNodes: a.Config.Machine.CustomersTakeNodes},
		Instances: a.InstanceOffers(), InstanceLimit: c.Instance.CustomerLimit,
		Payments: a.Payments(), Webhooks: webhooks, Health: a.Health, Metrics: a.Metrics,
	})
}

// portalConfig returns how browsers sign in.
func portalConfig(c config.Config) (portal.Config, error) {
	secret := ""
	if c.OIDC.ClientSecretFile != "" {
		raw, err := os.ReadFile(c.OIDC.ClientSecretFile)
		if err != nil {
			return portal.Config{}, fmt.Errorf("read oidc.client_secret_file: %w", err)
		}
		secret = strings.TrimSpace(string(raw))
	}
	temporal := c.Portal.TemporalUIURL
	if temporal != "" { // the portal links to workflows of this namespace
		temporal = strings.TrimRight(temporal, "/") + "/namespaces/" + url.PathEscape(c.Temporal.Namespace)
	}
	return portal.Config{
		Idle: c.Portal.SessionIdle, Max: c.Portal.SessionMax, TemporalUI: temporal,
		OIDC: session.OIDC{
			Issuer: c.OIDC.Issuer, ClientID: c.OIDC.ClientID, ClientSecret: secret, RedirectURL: c.OIDC.RedirectURL,
			RolesClaim: c.OIDC.RolesClaim, GroupsClaim: c.OIDC.GroupsClaim,
		},
	}, nil
}

// probeMAAS proves that a site's region answers and what its key may do.
func (a *App) probeMAAS(ctx context.Context, siteID string, site spec.SiteSpec) (any, error) {
	ref, use := providers.SecretRef(site.MAASAPIKeyRef), providers.Use{Kind: spec.SecretMAASKey, Site: siteID, Address: site.MAASURL}
	rule, err := a.Secrets.AddressRule(ctx, ref, use)
	if err != nil {
		return nil, err
	}
	key, err := a.Secrets.Resolve(ctx, ref, use)
	if err != nil {
		return nil, err
	}
	m, err := maas.Opener{Options: maas.Options{Log: a.Log}}.OpenMAAS(providers.MAASSite{URL: site.MAASURL, APIKey: key, CAPEM: site.MAASCAPEM, Rule: rule})
	if err != nil {
		return nil, err
	}
	return m.Probe(ctx)
}

// checkPayments returns what checks webhooks, nil when payments are off. It fails when the key is
// of the other mode, test or live, or a secret is missing: the first payment would show it
// otherwise.
func (a *App) checkPayments(ctx context.Context) (*stripe.Verifier, error) {
	p := a.Config.Payment
	if !p.Enabled() {
		return nil, nil
	}
	if _, err := (stripe.Opener{}).Connect(ctx, a.Secrets, stripe.Settings{URL: p.StripeURL, KeyRef: p.StripeKeyRef, Live: p.StripeLive}); err != nil {
		return nil, fmt.Errorf("payment.stripe_key_ref: %w", err)
	}
	webhooks, err := stripe.LoadVerifier(ctx, a.Secrets, p.SecretRefs(), p.StripeLive)
	if err != nil {
		return nil, fmt.Errorf("payment.webhook_secret_refs: %w", err)
	}
	return webhooks, nil
}
