package redfishsim

import (
	"net/http"
	"time"
)

const sessionsPath = root + "/SessionService/Sessions"

type session struct {
	id, token string
	acct      *account
	created   time.Time
	used      time.Time
}

// lockout is the account policy. Threshold 0 locks nobody.
type lockout struct {
	threshold int
	duration  time.Duration
}

// verdict of a login attempt.
type verdict int

const (
	accepted verdict = iota
	rejected
	lockedOut
)

// check tries a user and password and keeps the failure count. A locked
// account is refused with the right password too, and the attempt is a failed
// login.
func (s *Server) check(c *call, user, password string) (*account, verdict) {
	a := s.accountByUser(user)
	if a != nil && s.take(FaultLockout, c) != nil {
		s.mu.Lock()
		a.lockedUntil = s.now().Add(orDefault(s.policy.duration, 10*time.Minute))
		s.mu.Unlock()
	}
	good := a != nil && a.enabled && s.passwordIs(a, password)
	if good && s.take(FaultAuthReject, c) != nil {
		good = false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if a != nil && now.Before(a.lockedUntil) {
		s.counts.FailedLogins++
		return nil, lockedOut
	}
	if good {
		a.failures = 0
		return a, accepted
	}
	s.counts.FailedLogins++
	if a != nil && s.policy.threshold > 0 {
		if now.Sub(a.lastFailure) > s.policy.duration {
			a.failures = 0
		}
		a.failures, a.lastFailure = a.failures+1, now
		if a.failures >= s.policy.threshold {
			a.failures, a.lockedUntil = 0, now.Add(s.policy.duration)
			s.counts.Lockouts++
		}
	}
	return nil, rejected
}

// unauthorized is the answer to a refused login. Few BMCs tell a locked
// account from a wrong password.
func (s *Server) unauthorized(v verdict) reply {
	if v == lockedOut && s.p.SaysLocked {
		return s.fail(http.StatusUnauthorized, "AccountLocked", "The account is locked out after too many failed logins.")
	}
	rep := s.fail(http.StatusUnauthorized, "NoValidSession", "There is no valid session established with the implementation.")
	rep.header = map[string]string{"WWW-Authenticate": `Basic realm="Redfish"`}
	return rep
}

// authenticate lets a request in by token or by Basic; nil when it is in.
func (s *Server) authenticate(c *call) *reply {
	refuse := func(v verdict) *reply { rep := s.unauthorized(v); return &rep }
	if token := c.r.Header.Get("X-Auth-Token"); token != "" {
		drop := s.take(FaultSessionDropped, c) != nil
		if drop {
			s.endSessions(func(x *session) bool { return x.token == token })
		}
		s.mu.Lock()
		s.expireLocked()
		c.sess = s.sessions[token]
		if c.sess != nil {
			c.sess.used, c.acct = s.now(), c.sess.acct
		}
		s.mu.Unlock()
		if c.sess == nil || s.take(FaultAuthReject, c) != nil {
			return refuse(rejected)
		}
		return nil
	}
	user, password, ok := c.r.BasicAuth()
	if !ok {
		return refuse(rejected)
	}
	a, v := s.check(c, user, password)
	if v != accepted {
		return refuse(v)
	}
	c.acct = a
	s.mu.Lock()
	s.counts.BasicLogins++
	s.mu.Unlock()
	return nil
}

// expireLocked removes sessions that were idle for too long.
func (s *Server) expireLocked() {
	now := s.now()
	for t, x := range s.sessions {
		if now.Sub(x.used) > s.p.SessionTimeout {
			delete(s.sessions, t)
		}
	}
}

func (s *Server) endSessions(which func(*session) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for t, x := range s.sessions {
		if which(x) {
			delete(s.sessions, t)
		}
	}
}

func (s *Server) createSession(c *call) reply {
	o, ok := c.object()
	if !ok {
		return s.malformed()
	}
	user, okUser := o["UserName"].(string)
	password, okPassword := o["Password"].(string)
	if !okUser || !okPassword {
		return s.fail(http.StatusBadRequest, "PropertyMissing", "UserName and Password are required.", "UserName")
	}
	a, v := s.check(c, user, password)
	if v != accepted {
		return s.unauthorized(v)
	}
	s.mu.Lock()
	s.expireLocked()
	full := len(s.sessions) >= s.p.SessionLimit
	s.mu.Unlock()
	if full || s.take(FaultSessionsFull, c) != nil {
		rep := s.fail(http.StatusServiceUnavailable, "SessionLimitExceeded", "The session establishment failed: all sessions are in use.")
		rep.header = map[string]string{"Retry-After": "60"}
		return rep
	}
	x := &session{token: s.rand.hex(16), acct: a, created: s.now(), used: s.now()}
	s.mu.Lock()
	s.nextID++
	x.id = itoa(s.nextID)
	s.sessions[x.token] = x
	s.counts.Logins++
	s.mu.Unlock()
	return s.sessionCreated(c, x)
}

func (s *Server) sessionCreated(c *call, x *session) reply {
	o := s.sessionNode(x.id).get()
	if s.armed(FaultPasswordChange, c) {
		o["@Message.ExtendedInfo"] = []any{s.passwordMessage(x.acct)}
	}
	rep := reply{status: http.StatusCreated, body: o, header: map[string]string{
		"X-Auth-Token": x.token, "Location": sessionsPath + "/" + x.id,
	}}
	if s.take(FaultNoToken, c) != nil {
		delete(rep.header, "X-Auth-Token")
	}
	if s.take(FaultNoLocation, c) != nil {
		delete(rep.header, "Location")
	}
	if f := s.take(FaultForeignLink, c); f != nil {
		rep.header["Location"] = f.URL
	}
	return rep
}

// sessionNode is one session by id; nil when it has ended.
func (s *Server) sessionNode(id string) *node {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expireLocked()
	for _, x := range s.sessions {
		if x.id != id {
			continue
		}
		user, created := x.acct.user, x.created
		return &node{
			get: func() obj {
				o := resource(sessionsPath+"/"+id, "Session.v1_3_0.Session", id, "User Session")
				o["UserName"], o["CreatedTime"] = user, stamp(created)
				return o
			},
			del: func(*call) reply {
				s.endSessions(func(y *session) bool { return y.id == id })
				return s.done()
			},
		}
	}
	return nil
}

func (s *Server) sessionIDs() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expireLocked()
	ids := make([]string, 0, len(s.sessions))
	for _, x := range s.sessions {
		ids = append(ids, x.id)
	}
	return sortedIDs(ids)
}
