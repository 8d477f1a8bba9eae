package redfish

import (
	"sync"
	"time"

	"github.com/slipway-cloud/slipway/providers"
)

// Options are the limits and waits of one opener. Zero fields take the
// defaults of DefaultOptions.
type Options struct {
	ConnectTimeout  time.Duration // TCP connect and TLS handshake, each
	RequestTimeout  time.Duration // one request with its whole body
	LogoutTimeout   time.Duration // Close, whatever became of the caller's context
	PollMin         time.Duration // first wait between two reads of a state
	PollMax         time.Duration // longest wait between two reads of a state
	PowerTimeout    time.Duration // from an accepted reset to the final state (on, force off)
	GracefulTimeout time.Duration // the same for a graceful shutdown
	ConflictWait    time.Duration // between two tries of On refused with 409
	ConflictRetries int           // how often On is tried again after a 409
	LostAnswerWait  time.Duration // how long a state is re-read after a lost answer
	VerifyWait      time.Duration // how long a boot override may take to read back
	TaskTimeout     time.Duration // how long a task of a 202 answer is followed
	MaxBody         int64         // bytes of one answer
	MaxRequests     int           // requests of one reading or boot operation
	MaxListRequests int           // requests of Health, Inventory and SetPower
}

// DefaultOptions are the values for real gear: power times from the power
// cycle procedure (120 s each way, On refused for up to a minute after off).
func DefaultOptions() Options {
	return Options{
		ConnectTimeout: 15 * time.Second, RequestTimeout: 60 * time.Second, LogoutTimeout: 10 * time.Second,
		PollMin: time.Second, PollMax: 5 * time.Second,
		PowerTimeout: 2 * time.Minute, GracefulTimeout: 5 * time.Minute,
		ConflictWait: 10 * time.Second, ConflictRetries: 6,
		LostAnswerWait: 30 * time.Second, VerifyWait: 10 * time.Second, TaskTimeout: time.Minute,
		MaxBody: 8 << 20, MaxRequests: 96, MaxListRequests: 1024,
	}
}

func orElse[T int | int64 | time.Duration](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}

func (o Options) withDefaults() Options {
	d := DefaultOptions()
	orElse(&o.ConnectTimeout, d.ConnectTimeout)
	orElse(&o.RequestTimeout, d.RequestTimeout)
	orElse(&o.LogoutTimeout, d.LogoutTimeout)
	orElse(&o.PollMin, d.PollMin)
	orElse(&o.PollMax, d.PollMax)
	orElse(&o.PowerTimeout, d.PowerTimeout)
	orElse(&o.GracefulTimeout, d.GracefulTimeout)
	orElse(&o.ConflictWait, d.ConflictWait)
	orElse(&o.ConflictRetries, d.ConflictRetries)
	orElse(&o.LostAnswerWait, d.LostAnswerWait)
	orElse(&o.VerifyWait, d.VerifyWait)
	orElse(&o.TaskTimeout, d.TaskTimeout)
	orElse(&o.MaxBody, d.MaxBody)
	orElse(&o.MaxRequests, d.MaxRequests)
	orElse(&o.MaxListRequests, d.MaxListRequests)
	return o
}

// Opener opens BMCs by Redfish. The zero value is ready.
type Opener struct{ Options Options }

var (
	_ providers.BMCOpener = Opener{}
	_ providers.BMC       = (*BMC)(nil)
)

// OpenBMC checks the target and returns a BMC without sending anything. Plain
// HTTP is used only for an address that says http://, where the rule allows it: for simulators.
// With a pin the leaf's key decides; without one the CA bundle does; with
// neither only Probe answers over https.
//
// Errors: KindInvalid for an address or bundle that cannot be used.
func (o Opener) OpenBMC(t providers.BMCTarget) (providers.BMC, error) {
	base, err := parseAddress(t.Address)
	if err != nil {
		return nil, err
	}
	if err := t.Rule.CheckURL(base.String()); err != nil {
		return nil, &providers.Error{Kind: providers.KindInvalid, Op: "redfish.open", Message: err.Error()}
	}
	opts := o.Options.withDefaults()
	secrets := newRedactor(t.User, t.Password)
	trust, err := newTrust(base, t)
	if err != nil {
		return nil, err
	}
	return &BMC{
		target: t, base: base, opts: opts, secrets: secrets,
		conn: newConn(base, trust, t, opts, secrets),
	}, nil
}

// BMC is one management controller. It logs in once, on the first call that
// needs it; after a rejected login every further call fails with the same
// error without sending anything. Open a new value to try again.
type BMC struct {
	target  providers.BMCTarget
	base    origin
	opts    Options
	secrets *redactor
	conn    *conn

	mu        sync.Mutex
	systemURI string // chosen once
}
