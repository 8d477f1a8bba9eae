package ipmi

import (
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bougou/go-ipmi/pkg/rmcpplus"
	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/slipway-cloud/slipway/providers"
)

// The cipher suites that may be used. Both encrypt with AES-128-CBC; 17 signs
// with SHA-256, 3 with SHA-1. There is no choosing between them at run time:
// trying several would multiply the logins that count towards a lockout, and
// would let whoever is in between pick the weakest.
const (
	CipherSuite17 = 17
	CipherSuite3  = 3
)

// MaxPassword is the longest password of IPMI 2.0, in bytes.
const MaxPassword = 20

// defaultPort is the RMCP port.
const defaultPort = "623"

// Options are the limits and waits of one opener. Zero fields take the
// defaults of DefaultOptions.
type Options struct {
	Timeout         time.Duration // one try of one request
	Retries         int           // further tries of a request that may be repeated; negative is none
	LogoutTimeout   time.Duration // Close, whatever became of the caller's context
	SessionIdle     time.Duration // a session unused for longer is opened again; BMCs drop one after 60 s
	PollMin         time.Duration // first wait between two reads of a state
	PollMax         time.Duration // longest wait between two reads of a state
	PowerTimeout    time.Duration // from an accepted request to the final state (on, force off)
	GracefulTimeout time.Duration // the same for a graceful shutdown
	ConflictWait    time.Duration // between two tries of an On that was refused
	ConflictRetries int           // how often a refused On is tried again
	VerifyWait      time.Duration // how long a boot override may take to read back
	MaxRecords      int           // sensor records and accounts that are read
	// AcceptBareBootFlags counts an override as set when the device alone reads
	// back, without the valid and UEFI bits. OpenIPMI's ipmi_sim needs it; on a
	// real BMC it would hide an override that is not in force.
	AcceptBareBootFlags bool
}

// DefaultOptions are the values for real gear.
func DefaultOptions() Options {
	return Options{
		Timeout: 3 * time.Second, Retries: 2, LogoutTimeout: 2 * time.Second, SessionIdle: 30 * time.Second,
		PollMin: time.Second, PollMax: 5 * time.Second,
		PowerTimeout: 2 * time.Minute, GracefulTimeout: 5 * time.Minute,
		ConflictWait: 10 * time.Second, ConflictRetries: 6,
		VerifyWait: 10 * time.Second, MaxRecords: 1024,
	}
}

func orElse[T int | time.Duration](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}

func (o Options) withDefaults() Options {
	d := DefaultOptions()
	switch {
	case o.Retries == 0:
		o.Retries = d.Retries
	case o.Retries < 0:
		o.Retries = 0
	}
	orElse(&o.Timeout, d.Timeout)
	orElse(&o.LogoutTimeout, d.LogoutTimeout)
	orElse(&o.SessionIdle, d.SessionIdle)
	orElse(&o.PollMin, d.PollMin)
	orElse(&o.PollMax, d.PollMax)
	orElse(&o.PowerTimeout, d.PowerTimeout)
	orElse(&o.GracefulTimeout, d.GracefulTimeout)
	orElse(&o.ConflictWait, d.ConflictWait)
	orElse(&o.ConflictRetries, d.ConflictRetries)
	orElse(&o.VerifyWait, d.VerifyWait)
	orElse(&o.MaxRecords, d.MaxRecords)
	return o
}

// Opener opens BMCs by IPMI. The zero value is ready.
type Opener struct{ Options Options }

var (
	_ providers.BMCOpener = Opener{}
	_ providers.BMC       = (*BMC)(nil)
)

// BMC is one management controller. It logs in on the first call that needs
// it and holds at most one session; concurrent calls take turns in it. After a
// rejected login every further call fails with the same error without sending
// anything. Open a new value to try again.
type BMC struct {
	target  providers.BMCTarget
	address string
	suite   suite
	opts    Options

	turn chan struct{} // one token: who holds it may use what is below

	session  *session
	rejected *providers.Error // the login that was refused
	closed   bool

	closing   sync.Once
	proofSent atomic.Bool
}

// OpenBMC checks the target and returns a BMC without sending anything.
// SystemID and the pin are ignored: IPMI knows one system and no certificate.
//
// Errors: KindInvalid for an address, login or cipher suite that cannot be
// used. A target without a login is good for Probe only.
func (o Opener) OpenBMC(t providers.BMCTarget) (providers.BMC, error) {
	const op = "ipmi.open"
	address, err := parseAddress(t.Address)
	if err != nil {
		return nil, err
	}
	switch {
	case len(t.User) > rmcpplus.MaxUserNameLength:
		return nil, invalid(op, "the BMC user name is longer than the 16 bytes that IPMI allows; give the BMC an account with a shorter name")
	case len(t.Password.Reveal()) > MaxPassword:
		return nil, invalid(op, "the BMC password is longer than the 20 bytes that IPMI 2.0 allows; set a shorter one on the BMC and store it")
	case strings.ContainsRune(t.User+t.Password.Reveal(), 0):
		return nil, invalid(op, "the BMC login holds a zero byte, which IPMI takes for its end; choose another")
	}
	s, ok := suiteOf(t.CipherSuite)
	if !ok {
		return nil, invalid(op, "the IPMI cipher suite must be 17, or 3 for a device that has nothing better")
	}
	b := &BMC{target: t, address: address, suite: s, opts: o.Options.withDefaults(), turn: make(chan struct{}, 1)}
	b.turn <- struct{}{}
	return b, nil
}

// suite is one cipher suite with its algorithms.
type suite struct {
	id    int
	auth  types.AuthAlg
	integ types.IntegrityAlg
	crypt types.CryptAlg
}

func suiteOf(id int) (suite, bool) {
	switch id {
	case 0, CipherSuite17:
		return suite{CipherSuite17, types.AuthAlg_HMAC_SHA256, types.IntegrityAlg_HMAC_SHA256_128, types.CryptAlg_AES_CBC_128}, true
	case CipherSuite3:
		return suite{CipherSuite3, types.AuthAlg_HMAC_SHA1, types.IntegrityAlg_HMAC_SHA1_96, types.CryptAlg_AES_CBC_128}, true
	}
	return suite{}, false
}

// parseAddress reads "host" or "host:port"; the port is 623 when none is said.
func parseAddress(address string) (string, error) {
	bad := func(why string) (string, error) {
		return "", invalid("ipmi.open", "the BMC address "+why+"; give host or host:port for IPMI")
	}
	text := strings.TrimSpace(address)
	switch {
	case text == "":
		return bad("is empty")
	case strings.ContainsAny(text, "/@ ?#"):
		return bad("is a URL or carries a login or a path")
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = strings.Trim(text, "[]"), defaultPort
		if strings.Contains(host, ":") && net.ParseIP(host) == nil {
			return bad("cannot be read")
		}
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return bad("has a port that is none")
	}
	if host == "" {
		return bad("names no host")
	}
	return net.JoinHostPort(host, port), nil
}
