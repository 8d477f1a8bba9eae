package server

import (
	"context"
	"crypto/x509"
	"net/netip"
	"net/url"

	"github.com/slipway-cloud/slipway/assembly/server/deliver"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers/mail"
	"github.com/slipway-cloud/slipway/providers/webhook"
)

// LocalReceiver is one HTTPS endpoint on this machine, with the authorities of its certificate.
type LocalReceiver struct {
	Address netip.AddrPort
	Roots   *x509.CertPool
}

// webhookRule returns the rule for the addresses of webhooks: public ones, but for the networks of
// BMCs, the MAAS regions, the networks that the settings refuse, and the control plane itself.
func (a *App) webhookRule(ctx context.Context) (spec.AddressRule, error) {
	refused := spec.ParseNetworks(a.Config.Webhooks.Networks())
	for after := ""; ; {
		sites, err := a.Store.ListSites(ctx, after, 0)
		if err != nil {
			return spec.AddressRule{}, err
		}
		if len(sites) == 0 {
			rule := spec.PublicAddresses(refused, a.Secrets.OwnAddresses(ctx), a.Config.Webhooks.AllowedPorts())
			if a.Receiver != nil {
				rule.Also = []netip.AddrPort{a.Receiver.Address}
			}
			return rule, nil
		}
		for _, s := range sites {
			refused = append(refused, spec.ParseNetworks(s.Spec.BMCNetworks)...)
			_, host, _ := spec.SplitAddress(s.Spec.MAASURL)
			if ip, err := netip.ParseAddr(host); err == nil {
				refused = append(refused, netip.PrefixFrom(ip, ip.BitLen()))
			}
			after = s.ID
		}
	}
}

// noticeDomain ends the Message-ID of notices.
func (a *App) noticeDomain() string {
	if u, err := url.Parse(a.Config.API.PublicURL); err == nil && u.Hostname() != "" {
		return u.Hostname()
	}
	return "slipway"
}

// deliverer sends the events and notices of projects.
func (a *App) deliverer(name string) *deliver.Deliverer {
	c := a.Config
	d := &deliver.Deliverer{
		Store: a.Store, Secrets: a.Secrets, Name: name, Log: a.Log, RetryFor: c.Webhooks.RetryFor, Keep: c.Retention.Webhooks,
		KeepNotices: c.Retention.Notices, Domain: a.noticeDomain(),
		Options: func(ctx context.Context) (webhook.Options, error) {
			o := webhook.Options{}
			if a.Receiver != nil {
				o.Roots = a.Receiver.Roots
			}
			var err error
			o.Rule, err = a.webhookRule(ctx)
			return o, err
		},
	}
	if m := c.Mail; m.Host != "" {
		d.Mail = &mail.Sender{Secrets: a.Secrets, Host: m.Host, Port: m.Port, TLS: m.TLS, User: m.User, PasswordRef: m.PasswordRef, From: m.From}
	}
	return d
}
