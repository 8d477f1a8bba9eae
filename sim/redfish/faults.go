package redfishsim

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	simcontrol "github.com/slipway-cloud/slipway/sim/control"
)

// FaultName names one way to misbehave.
type FaultName string

// The faults. "Default" says which requests bite when a fault names neither
// Method nor Path; service root and login are never hit by default unless said.
const (
	// Logins.
	FaultAuthReject     FaultName = "auth_reject"              // 401 to good credentials; default: login and every authenticated request
	FaultLockout        FaultName = "lockout"                  // the account is locked at its next use, as if others had guessed
	FaultPasswordChange FaultName = "password_change_required" // 403 outside one's own account until the password changes
	FaultNoToken        FaultName = "session_no_token"         // login answers 201 without X-Auth-Token
	FaultNoLocation     FaultName = "session_no_location"      // login answers 201 without Location
	FaultSessionsFull   FaultName = "session_table_full"       // login answers 503
	FaultSessionDropped FaultName = "session_dropped"          // the session ends before the request: 401

	// Changes of a password.
	FaultPasswordRefused FaultName = "password_refused" // 400: the password does not meet the policy
	FaultPasswordIgnored FaultName = "password_ignored" // a change answers well and changes nothing

	// Mutations that do something else; default: as named.
	FaultConflictOn      FaultName = "conflict_on"       // 409 to reset On
	FaultWeakETag        FaultName = "weak_etag"         // sends weak ETags and refuses them in If-Match with 412
	FaultAsyncAbsolute   FaultName = "async_absolute"    // an action answers 202 with an absolute Location
	FaultAsyncNoLocation FaultName = "async_no_location" // an action answers 202 without Location
	FaultDelayedPower    FaultName = "delayed_power"     // a reset begins only after Delay
	FaultIgnoredPower    FaultName = "ignored_power"     // a reset answers well and does nothing
	FaultIgnoredGraceful FaultName = "ignored_graceful"  // a graceful shutdown or restart answers well and does nothing
	FaultIgnoredOverride FaultName = "ignored_override"  // a boot PATCH answers well and changes nothing
	FaultPOST            FaultName = "post_in_progress"  // a boot PATCH is refused: the host is in POST
	FaultEcho            FaultName = "echo_body"         // a mutation is refused with its own body in the error text; default: also login

	// Transport and form; default: any GET that needs a login.
	FaultHangBody     FaultName = "hang_body"      // headers and half a body, then silence for Delay (0 = until the client goes)
	FaultHugeBody     FaultName = "huge_body"      // a body of Bytes (0 = 64 MiB)
	FaultGarbage      FaultName = "garbage_body"   // 200 with a body that is not JSON
	FaultRedirect     FaultName = "redirect"       // 307 to URL + path (default: another path of this host)
	FaultNextLinkLoop FaultName = "next_link_loop" // a collection's nextLink points to itself; default: any collection
	FaultForeignLink  FaultName = "foreign_link"   // members, or a login's Location, point to URL; default: any collection

	// The BMC itself; default: any mutation but login.
	FaultUnavailable       FaultName = "unavailable"        // 503 with Retry-After, before any effect
	FaultLostAnswer        FaultName = "lost_answer"        // the effect happens, then the connection is reset
	FaultBMCReset          FaultName = "bmc_reset"          // the effect happens, the BMC restarts and is away for Delay (0 = 60 s)
	FaultCertificateChange FaultName = "certificate_change" // the next TLS handshake shows a new certificate
)

// Fault is one armed fault.
type Fault struct {
	Name   FaultName     `json:"name"`
	Count  int           `json:"count,omitempty"`  // how often it bites; 0 = until cleared
	Method string        `json:"method,omitempty"` // only this method
	Path   string        `json:"path,omitempty"`   // only paths that contain this
	Delay  time.Duration `json:"delay,omitempty"`  // virtual, in nanoseconds over JSON
	Status int           `json:"status,omitempty"` // another status for unavailable, redirect and conflict_on
	URL    string        `json:"url,omitempty"`
	Bytes  int64         `json:"bytes,omitempty"`
}

// faultDefaults is where a fault without Method and Path bites.
var faultDefaults = map[FaultName]func(*call) bool{
	FaultAuthReject: anyCall, FaultLockout: anyCall, FaultPasswordChange: anyCall,
	FaultNoToken: anyCall, FaultNoLocation: anyCall, FaultSessionsFull: anyCall, FaultSessionDropped: anyCall,
	FaultPasswordRefused: anyCall, FaultPasswordIgnored: anyCall,
	FaultConflictOn: anyCall, FaultWeakETag: anyCall, FaultAsyncAbsolute: anyCall, FaultAsyncNoLocation: anyCall,
	FaultDelayedPower: anyCall, FaultIgnoredPower: anyCall, FaultIgnoredGraceful: anyCall,
	FaultIgnoredOverride: anyCall, FaultPOST: anyCall, FaultCertificateChange: anyCall,
	FaultEcho:     func(c *call) bool { return c.mutates() },
	FaultHangBody: privateRead, FaultHugeBody: privateRead, FaultGarbage: privateRead, FaultRedirect: privateRead,
	FaultNextLinkLoop: isRead, FaultForeignLink: isRead,
	FaultUnavailable: realMutation, FaultLostAnswer: realMutation, FaultBMCReset: realMutation,
}

func anyCall(*call) bool        { return true }
func isRead(c *call) bool       { return c.r.Method == http.MethodGet }
func privateRead(c *call) bool  { return isRead(c) && !c.public() }
func realMutation(c *call) bool { return c.mutates() && !c.sessionPath() }

// FaultNames lists every fault, sorted.
func FaultNames() []FaultName {
	names := make([]FaultName, 0, len(faultDefaults))
	for n := range faultDefaults {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// AddFault arms a fault. Two faults of one name bite in the order added.
func (s *Server) AddFault(f Fault) error {
	if faultDefaults[f.Name] == nil {
		return fmt.Errorf("no fault %q: the names are %v", f.Name, FaultNames())
	}
	if f.Count < 0 || f.Delay < 0 || f.Bytes < 0 {
		return fmt.Errorf("fault %s: count, delay and bytes must not be negative", f.Name)
	}
	if f.Name == FaultForeignLink && f.URL == "" {
		f.URL = "https://127.0.0.1:9/redfish/v1/Systems/1"
	}
	if f.Name == FaultCertificateChange {
		if s.certs == nil {
			return fmt.Errorf("fault %s needs a server with TLS", f.Name)
		}
		if f.Count == 0 {
			f.Count = 1 // a new certificate at each handshake is no BMC
		}
	}
	s.mu.Lock()
	s.faults = append(s.faults, &f)
	s.mu.Unlock()
	if f.Name == FaultCertificateChange {
		s.dropIdle()
	}
	return nil
}

// ClearFaults disarms all faults. The effects of a fault stay.
func (s *Server) ClearFaults() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

// Faults lists what is armed, with the counts that are left.
func (s *Server) Faults() []Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	return simcontrol.ValuesOf(s.faults)
}

// take uses up one bite of the first fault of this name that fits the call; nil
// when none does. A nil call fits every fault.
func (s *Server) take(name FaultName, c *call) *Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, f := range s.faults {
		if f.Name != name || !f.fits(c) {
			continue
		}
		s.counts.Faults[string(name)]++
		hit := *f
		if f.Count > 0 {
			if f.Count--; f.Count == 0 {
				s.faults = slices.Delete(s.faults, i, i+1)
			}
		}
		return &hit
	}
	return nil
}

// armed reports whether a fault would bite, without using it up.
func (s *Server) armed(name FaultName, c *call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.faults, func(f *Fault) bool { return f.Name == name && f.fits(c) })
}

// disarm removes all faults of a name.
func (s *Server) disarm(name FaultName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = slices.DeleteFunc(s.faults, func(f *Fault) bool { return f.Name == name })
}

func (f *Fault) fits(c *call) bool {
	if c == nil {
		return true
	}
	if f.Method == "" && f.Path == "" {
		return faultDefaults[f.Name](c)
	}
	return (f.Method == "" || strings.EqualFold(f.Method, c.r.Method)) && strings.Contains(c.path, f.Path)
}

// Counters are what the BMC was asked and did.
type Counters struct {
	Requests     int `json:"requests"`
	Logins       int `json:"logins"`        // sessions created
	BasicLogins  int `json:"basic_logins"`  // requests let in by Basic
	FailedLogins int `json:"failed_logins"` // rejected, by session or Basic
	Lockouts     int `json:"lockouts"`      // accounts locked by wrong passwords
	// PasswordChanges are those that took effect.
	PasswordChanges int            `json:"password_changes"`
	Patches         int            `json:"patches"`      // PATCH requests that took effect
	PowerCycles     int            `json:"power_cycles"` // PowerCycle, ForceRestart and GracefulRestart that took effect
	BMCResets       int            `json:"bmc_resets"`
	Sessions        int            `json:"sessions"` // open now
	Resets          map[string]int `json:"resets"`   // by type, those that took effect
	Faults          map[string]int `json:"faults"`   // bites by fault
}

// Counters returns a copy of the counts so far.
func (s *Server) Counters() Counters {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expireLocked()
	c := s.counts
	c.Sessions = len(s.sessions)
	c.Resets, c.Faults = map[string]int{}, map[string]int{}
	for k, v := range s.counts.Resets {
		c.Resets[k] = v
	}
	for k, v := range s.counts.Faults {
		c.Faults[k] = v
	}
	return c
}
