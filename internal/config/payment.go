package config

import (
	"net/url"
	"time"
)

// Payment is the account at the payment provider Stripe. Without a key customers cannot pay: an
// operator credits accounts by adjustments.
type Payment struct {
	// StripeURL is empty for Stripe itself.
	StripeURL    string `yaml:"stripe_url"`
	StripeKeyRef string `yaml:"stripe_key_ref"`
	// StripeLive says that real money moves.
	StripeLive bool `yaml:"stripe_live"`
	// WebhookSecretRefs name the secrets that sign webhooks, separated by commas: one, or two while
	// one is rolled.
	WebhookSecretRefs string `yaml:"webhook_secret_refs"`
	SessionTTLSeconds int    `yaml:"session_ttl_seconds"`
	CreditMaxAttempts int    `yaml:"credit_max_attempts"`
	// RedirectHosts are hosts to which payers may be sent, separated by commas, besides that of
	// api.public_url.
	RedirectHosts string `yaml:"redirect_hosts"`
	// MinAmount and MaxAmount are in whole units of the currency.
	MinAmount       int `yaml:"min_amount"`
	MaxAmount       int `yaml:"max_amount"`
	SessionsPerHour int `yaml:"sessions_per_hour"`
	// AccountSessionsPerHour bounds all users of a billing account together.
	AccountSessionsPerHour int `yaml:"account_sessions_per_hour"`
}

// Enabled reports whether customers can pay.
func (p Payment) Enabled() bool { return p.StripeKeyRef != "" }

// SessionTTL is how long a payment page is open.
func (p Payment) SessionTTL() time.Duration { return time.Duration(p.SessionTTLSeconds) * time.Second }

// SecretRefs returns the members of WebhookSecretRefs.
func (p Payment) SecretRefs() []string { return splitList(p.WebhookSecretRefs) }

// Hosts returns the hosts to which payers may be sent; publicURL is that of the API.
func (p Payment) Hosts(publicURL string) []string {
	hosts := splitList(p.RedirectHosts)
	if u, err := url.Parse(publicURL); err == nil && u.Host != "" {
		hosts = append(hosts, u.Host)
	}
	return hosts
}

func defaultPayment() Payment {
	return Payment{SessionTTLSeconds: 86400, CreditMaxAttempts: 10, MinAmount: 5, MaxAmount: 10000, SessionsPerHour: 20, AccountSessionsPerHour: 60}
}

func (p Payment) validate(v *validator) {
	v.between("payment.session_ttl_seconds", p.SessionTTLSeconds, 1800, 86400) // what Stripe allows
	v.between("payment.credit_max_attempts", p.CreditMaxAttempts, 1, 100)
	v.between("payment.min_amount", p.MinAmount, 1, 1_000_000)
	v.between("payment.max_amount", p.MaxAmount, p.MinAmount, 10_000_000)
	v.between("payment.sessions_per_hour", p.SessionsPerHour, 1, 1000)
	v.between("payment.account_sessions_per_hour", p.AccountSessionsPerHour, 1, 10_000)
	for _, host := range splitList(p.RedirectHosts) {
		if u, err := url.Parse("https://" + host); err != nil || u.Host != host || u.Hostname() == "" {
			v.add("payment.redirect_hosts", "must be hosts separated by commas, such as portal.example.com, without https:// and without a path")
			break
		}
	}
	if p.StripeURL != "" {
		v.url("payment.stripe_url", p.StripeURL, "https", "http")
		if u, err := url.Parse(p.StripeURL); err == nil && u.Scheme == "http" && !isLoopback(u.Hostname()) {
			v.add("payment.stripe_url", "must be an https URL: the key would cross the network readable")
		}
	}
	refs := len(p.SecretRefs())
	switch {
	case !p.Enabled() && (refs > 0 || p.StripeLive):
		v.add("payment.stripe_key_ref", "is missing while payment.webhook_secret_refs or payment.stripe_live is set; name the secret that holds the key, or remove them")
	case p.Enabled() && (refs < 1 || refs > 2):
		v.add("payment.webhook_secret_refs", "must name the secret that signs webhooks, or two while one is rolled: without one anybody could send events")
	}
}
