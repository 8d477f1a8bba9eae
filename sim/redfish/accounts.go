package redfishsim

import (
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
)

const accountsPath = root + "/AccountService/Accounts"

// account is a BMC login. The first one is the machine's own (simhw keeps its
// name and password, so that MAAS sees a rotation); others live here only.
type account struct {
	id, user, password, role string
	main, enabled            bool
	inBand                   bool // software on the host made it: simhw holds it too, so that MAAS sees a change
	failures                 int
	lastFailure, lockedUntil time.Time
}

func (s *Server) firstAccounts() []*account {
	a := &account{id: s.p.AccountID, main: true, enabled: true, role: "Administrator"}
	a.user = s.m.Spec().BMCUser
	if s.p.AccountByName {
		a.id = a.user
	}
	list := []*account{a}
	for i := range s.p.AccountSlots {
		if id := itoa(i + 1); id != a.id {
			list = append(list, &account{id: id, role: "None"})
		}
	}
	return list
}

// takeInBand shows the logins that software on the host made since: each in the slot of its name,
// in a free one, or in a new one where slots are not fixed.
func (s *Server) takeInBand() {
	logins := s.m.BMCLogins()
	s.mu.Lock()
	defer s.mu.Unlock()
	for user, password := range logins {
		a := s.slotOf(user)
		if a == nil {
			continue // all slots are taken
		}
		a.user, a.password, a.role, a.enabled, a.inBand = user, password, "Administrator", true, true
	}
}

func (s *Server) slotOf(user string) *account {
	var free *account
	highest := 0
	for _, a := range s.accounts {
		switch n, _ := strconv.Atoi(a.id); {
		case a.user == user && !a.main:
			return a
		case a.user == "" && !a.main && free == nil && n != 1: // slot 1 is the anonymous one
			free = a
		default:
			highest = max(highest, n)
		}
	}
	if free == nil && s.p.AccountSlots == 0 {
		free = &account{id: itoa(highest + 1)}
		if s.p.AccountByName {
			free.id = user
		}
		s.accounts = append(s.accounts, free)
	}
	return free
}

func (s *Server) accountByUser(user string) *account {
	s.takeInBand()
	mainUser := s.m.Spec().BMCUser
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.accounts {
		if a.main {
			a.user = mainUser
		}
		if a.user == user && user != "" {
			return a
		}
	}
	return nil
}

func (s *Server) passwordIs(a *account, password string) bool {
	if a.main {
		return s.m.CheckBMC(a.user, password) == nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return a.password == password && password != ""
}

func (s *Server) accountIDs() []string {
	s.takeInBand()
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := make([]string, 0, len(s.accounts))
	for _, a := range s.accounts {
		ids = append(ids, a.id)
	}
	return sortedIDs(ids)
}

func (s *Server) accountNode(id string) *node {
	s.takeInBand()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.accounts {
		if a.id == id {
			n := &node{get: func() obj { return s.accountObject(a) }}
			n.patch = func(c *call, o obj) reply { return s.patchAccount(c, n, a, o) }
			if s.p.AccountSlots == 0 {
				n.del = func(*call) reply { return s.deleteAccount(a) }
			}
			return n
		}
	}
	return nil
}

func (s *Server) accountObject(a *account) obj {
	mainUser := s.m.Spec().BMCUser
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.main {
		a.user = mainUser
	}
	path := accountsPath + "/" + a.id
	o := resource(path, "ManagerAccount.v1_8_0.ManagerAccount", a.id, "User Account")
	o["UserName"], o["RoleId"], o["Enabled"], o["Password"] = a.user, a.role, a.enabled, nil
	o["Locked"] = s.now().Before(a.lockedUntil)
	o["AccountTypes"] = []string{"Redfish"}
	if s.p.ChangePassword {
		o["Actions"] = obj{"#ManagerAccount.ChangePassword": obj{"target": path + "/Actions/ManagerAccount.ChangePassword"}}
	}
	return o
}

// patchAccount checks everything before it changes anything.
func (s *Server) patchAccount(c *call, n *node, a *account, o obj) reply {
	for k, v := range o {
		switch v.(type) {
		case string:
			if k == "UserName" || k == "Password" || k == "RoleId" {
				continue
			}
		case bool:
			if k == "Enabled" || k == "Locked" {
				continue
			}
		}
		return s.fail(http.StatusBadRequest, "PropertyUnknown", "The property "+k+" is not a valid property of the account.", k)
	}
	password, hasPassword := o["Password"].(string)
	if hasPassword && s.refusesPassword(c, password) {
		return s.weakPassword()
	}
	s.mu.Lock()
	was, inBand := a.user, a.inBand
	if v, ok := o["UserName"].(string); ok {
		a.user = v
	}
	if v, ok := o["RoleId"].(string); ok {
		a.role = v
	}
	if v, ok := o["Enabled"].(bool); ok {
		a.enabled = v
	}
	if v, ok := o["Locked"].(bool); ok && !v {
		a.failures, a.lockedUntil = 0, time.Time{}
	}
	user, isMain := a.user, a.main
	if inBand && (user != was || !a.enabled) {
		s.m.DropBMCLogin(was)
		a.inBand = false
	}
	s.mu.Unlock()
	if spec := s.m.Spec(); isMain {
		s.m.SetBMC(spec.BMCAddress, user, spec.BMCPassword)
	}
	if hasPassword {
		s.setPassword(c, a, password)
	}
	return s.patched(n)
}

// refusesPassword checks the length and the sorts of characters.
func (s *Server) refusesPassword(c *call, password string) bool {
	sorts := 0
	for _, in := range []func(rune) bool{unicode.IsUpper, unicode.IsLower, unicode.IsDigit, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}} {
		if strings.ContainsFunc(password, in) {
			sorts++
		}
	}
	return len(password) < s.p.MinPassword || s.p.MaxPassword > 0 && len(password) > s.p.MaxPassword || sorts < s.p.PasswordSorts ||
		s.take(FaultPasswordRefused, c) != nil
}

func (s *Server) weakPassword() reply {
	return s.fail(http.StatusBadRequest, "PropertyValueFormatError", "The password does not meet the requirements of the implementation.", "Password")
}

// setPassword changes a password, ends the account's other sessions and lifts
// the duty to change it.
func (s *Server) setPassword(c *call, a *account, password string) {
	if s.take(FaultPasswordIgnored, c) != nil {
		return
	}
	if spec := s.m.Spec(); a.main {
		s.m.SetBMC(spec.BMCAddress, spec.BMCUser, password)
	} else {
		s.mu.Lock()
		a.password = password
		if a.inBand {
			s.m.AddBMCLogin(a.user, password)
		}
		s.mu.Unlock()
	}
	s.endSessions(func(x *session) bool { return x.acct == a && (x != c.sess || s.p.ChangeEndsOwn) })
	s.mu.Lock()
	s.counts.PasswordChanges++
	s.mu.Unlock()
	s.disarm(FaultPasswordChange)
	s.log("OK", "The password of an account was changed.")
}

func (s *Server) changePassword(c *call, a *account) reply {
	o, ok := c.object()
	if !ok {
		return s.malformed()
	}
	fresh, okNew := o["NewPassword"].(string)
	old, okOld := o["SessionAccountPassword"].(string)
	if !okNew || !okOld {
		return s.fail(http.StatusBadRequest, "ActionParameterMissing", "NewPassword and SessionAccountPassword are required.", "NewPassword")
	}
	if !s.passwordIs(c.acct, old) {
		return s.fail(http.StatusBadRequest, "ActionParameterValueError", "SessionAccountPassword is wrong.", "SessionAccountPassword")
	}
	if s.refusesPassword(c, fresh) {
		return s.weakPassword()
	}
	s.setPassword(c, a, fresh)
	return s.done()
}

func (s *Server) deleteAccount(a *account) reply {
	if a.main {
		return s.fail(http.StatusBadRequest, "ResourceCannotBeDeleted", "The last administrator cannot be deleted.")
	}
	s.mu.Lock()
	for i, b := range s.accounts {
		if a == b {
			s.accounts = append(s.accounts[:i:i], s.accounts[i+1:]...)
			break
		}
	}
	s.mu.Unlock()
	s.endSessions(func(x *session) bool { return x.acct == a })
	return s.done()
}

func (s *Server) createAccount(c *call) reply {
	o, ok := c.object()
	if !ok {
		return s.malformed()
	}
	user, _ := o["UserName"].(string)
	password, _ := o["Password"].(string)
	role, _ := o["RoleId"].(string)
	if user == "" || role == "" {
		return s.fail(http.StatusBadRequest, "PropertyMissing", "UserName, Password and RoleId are required.", "UserName")
	}
	if s.refusesPassword(c, password) {
		return s.weakPassword()
	}
	if s.accountByUser(user) != nil {
		return s.fail(http.StatusBadRequest, "ResourceAlreadyExists", "An account of that name exists.", "ManagerAccount", "UserName", user)
	}
	s.mu.Lock()
	s.nextID++
	a := &account{id: itoa(100 + s.nextID), user: user, password: password, role: role, enabled: true}
	if s.p.AccountByName {
		a.id = user
	}
	s.accounts = append(s.accounts, a)
	s.mu.Unlock()
	return reply{status: http.StatusCreated, body: s.accountObject(a), header: map[string]string{"Location": accountsPath + "/" + a.id}}
}

// passwordGate refuses all but one's own account, the sessions and the service
// roots while the password must be changed.
func (s *Server) passwordGate(c *call) *reply {
	own := accountsPath + "/" + c.acct.id
	if c.sessionPath() || c.path == own || strings.HasPrefix(c.path, own+"/") || c.path == accountsPath || c.path == root+"/AccountService" {
		return nil
	}
	if s.take(FaultPasswordChange, c) == nil {
		return nil
	}
	m := s.passwordMessage(c.acct)
	return &reply{status: http.StatusForbidden, body: obj{"error": obj{
		"code": m["MessageId"], "message": m["Message"], "@Message.ExtendedInfo": []any{m},
	}}}
}

func (s *Server) passwordMessage(a *account) obj {
	own := accountsPath + "/" + a.id
	return s.message("PasswordChangeRequired", "The password provided for this account must be changed before access is granted. PATCH the Password property of "+own+".", own)
}

func (s *Server) accountService() obj {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := resource(root+"/AccountService", "AccountService.v1_9_0.AccountService", "AccountService", "Account Service")
	o["ServiceEnabled"], o["Accounts"] = true, link(accountsPath)
	o["AccountLockoutThreshold"] = s.policy.threshold
	o["AccountLockoutDuration"] = int(s.policy.duration / time.Second)
	o["AccountLockoutCounterResetAfter"] = int(s.policy.duration / time.Second)
	o["MinPasswordLength"], o["MaxPasswordLength"] = s.p.MinPassword, s.p.MaxPassword
	o["LDAP"] = obj{"AccountProviderType": "LDAPService", "ServiceEnabled": s.directory != "", "ServiceAddresses": s.directoryServers()}
	o["Status"] = obj{"State": "Enabled", "Health": "OK"}
	return o
}

func (s *Server) patchAccountService(n *node, o obj) reply {
	next := map[string]int{}
	for k, v := range o {
		f, ok := v.(float64)
		if k != "AccountLockoutThreshold" && k != "AccountLockoutDuration" && k != "AccountLockoutCounterResetAfter" {
			return s.fail(http.StatusBadRequest, "PropertyUnknown", "The property "+k+" cannot be written.", k)
		}
		if !ok || f < 0 || f > 86400 {
			return s.fail(http.StatusBadRequest, "PropertyValueTypeError", "The value of "+k+" is out of range.", k)
		}
		next[k] = int(f)
	}
	s.mu.Lock()
	if v, ok := next["AccountLockoutThreshold"]; ok {
		s.policy.threshold = v
	}
	if v, ok := next["AccountLockoutDuration"]; ok {
		s.policy.duration = time.Duration(v) * time.Second
	}
	s.mu.Unlock()
	return s.patched(n)
}
