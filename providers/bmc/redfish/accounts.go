package redfish

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/providers"
)

var (
	_ providers.BMCLogin    = (*BMC)(nil)
	_ providers.BMCAccounts = (*BMC)(nil)
)

// maxAccountRequests bounds the requests of a login or a change of password. A BMC has dozens of
// account slots at most.
const maxAccountRequests = 96

// Login creates a session. With a BMC without sessions it reads the account service instead, which
// a factory login may read too.
func (b *BMC) Login(ctx context.Context) error {
	op := newOperation("login", maxAccountRequests)
	if err := b.conn.ready(ctx, op); err != nil {
		return err
	}
	if !b.conn.basic() {
		return nil
	}
	_, err := b.conn.get(ctx, op, b.accountService())
	if err != nil && (providers.IsKind(err, providers.KindNotFound) || refusedToRead(err)) {
		return nil // that answer shows that the login is valid
	}
	return err
}

// LoginSent reports whether the password may have reached the BMC.
func (b *BMC) LoginSent() bool { return b.conn.guard.passwordLeft.Load() }

func (b *BMC) accountService() string {
	if link := b.conn.root.link("AccountService"); link != "" {
		return link
	}
	return "/redfish/v1/AccountService"
}

// PasswordPolicy reads the account service.
func (b *BMC) PasswordPolicy(ctx context.Context) (providers.PasswordPolicy, error) {
	op := newOperation("password_policy", maxAccountRequests)
	if err := b.conn.ready(ctx, op); err != nil {
		return providers.PasswordPolicy{}, err
	}
	d, err := b.conn.get(ctx, op, b.accountService())
	if err != nil {
		return providers.PasswordPolicy{}, err
	}
	var p providers.PasswordPolicy
	whole := func(key string) int {
		n, _ := d.number(key)
		return int(max(0, min(n, 1e6)))
	}
	p.MinLength, p.MaxLength = whole("MinPasswordLength"), whole("MaxPasswordLength")
	if _, told := d.number("AccountLockoutThreshold"); told {
		n := whole("AccountLockoutThreshold")
		p.LockoutThreshold = &n
	}
	p.LockoutWindow = time.Duration(max(whole("AccountLockoutDuration"), whole("AccountLockoutCounterResetAfter"))) * time.Second
	return p, nil
}

// ChangePassword finds the login's own account and sets another password. It does not read the
// system, since a BMC with its factory password answers 403 there.
func (b *BMC) ChangePassword(ctx context.Context, fresh providers.Secret) error {
	op := newOperation("change_password", maxAccountRequests)
	b.secrets.add(fresh.Reveal())
	if err := b.conn.ready(ctx, op); err != nil {
		return err
	}
	own, err := b.ownAccount(ctx, op)
	if err != nil {
		return err
	}
	err = b.patchPassword(ctx, op, own, fresh)
	if own.action == "" || !providers.IsKind(err, providers.KindUnsupported) {
		return err
	}
	_, err = b.conn.send(ctx, op, http.MethodPost, own.action,
		map[string]string{"NewPassword": fresh.Reveal(), "SessionAccountPassword": b.target.Password.Reveal()}, nil)
	return sentChange(op, err)
}

// ownAccount is where the login's password is changed.
type ownAccount struct {
	uri, tag string
	action   string // target of ManagerAccount.ChangePassword, "" without
	anyTag   bool   // the vendor wants If-Match: *
}

// ownAccount finds the account by the vendor's rule if there is one, and otherwise by its user
// name. A BMC that demands a change of its factory password names the account itself.
func (b *BMC) ownAccount(ctx context.Context, op *operation) (ownAccount, error) {
	accounts := b.accountService() + "/Accounts"
	service, err := b.conn.get(ctx, op, b.accountService())
	switch {
	case err == nil && service.link("Accounts") != "":
		accounts = service.link("Accounts")
	case err != nil && !refusedToRead(err):
		return ownAccount{}, err
	}
	for _, guess := range b.guesses(strings.TrimSuffix(accounts, "/")) {
		own, ok, err := b.readAccount(ctx, op, guess)
		if err != nil || ok {
			return own, err
		}
	}
	uris, err := b.conn.members(ctx, op, accounts)
	if err != nil {
		return ownAccount{}, err
	}
	for _, u := range uris {
		own, ok, err := b.readAccount(ctx, op, guess{uri: u})
		if err != nil || ok {
			return own, err
		}
	}
	return ownAccount{}, &providers.Error{Kind: providers.KindNotFound, Op: op.name,
		Message: "the BMC lists no account of the user that logs in, so its password cannot be changed there"}
}

// guess is an account that is read first. A sure guess is the login's own account even when the BMC
// does not allow reading it.
type guess struct {
	uri    string
	sure   bool
	anyTag bool
}

// guesses returns the account ids that vendors use, as NVIDIA's controller knows them: Lenovo has
// its administrator in slot 1; AMI has it in slot 2 and requires If-Match: *; NVIDIA names accounts
// after their users.
func (b *BMC) guesses(accounts string) []guess {
	var out []guess
	if own := b.conn.ownAccount; own != "" {
		out = append(out, guess{uri: own, sure: true})
	}
	vendor := strings.ToLower(b.conn.root.text("Vendor"))
	for name := range b.conn.root.sub("Oem") {
		vendor += " " + strings.ToLower(name)
	}
	switch {
	case strings.Contains(vendor, "lenovo"):
		out = append(out, guess{uri: accounts + "/1"})
	case slices.Contains(strings.Fields(vendor), "ami"), strings.Contains(vendor, "megarac"):
		out = append(out, guess{uri: accounts + "/2", anyTag: true})
	case strings.Contains(vendor, "nvidia"), strings.Contains(vendor, "openbmc"):
		if plainName(b.target.User) {
			out = append(out, guess{uri: accounts + "/" + b.target.User, sure: true})
		}
	}
	return out
}

// plainName keeps a user name from being anything else in a path.
func plainName(s string) bool {
	for _, c := range s {
		ok := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
		if !ok {
			return false
		}
	}
	return s != ""
}

// readAccount reports whether an account is the login's own.
func (b *BMC) readAccount(ctx context.Context, op *operation, g guess) (ownAccount, bool, error) {
	d, tag, err := b.conn.getTagged(ctx, op, g.uri)
	switch {
	case err != nil && refusedToRead(err):
		return ownAccount{uri: g.uri, anyTag: true}, g.sure, nil
	case err != nil && passable(err):
		return ownAccount{}, false, nil
	case err != nil:
		return ownAccount{}, false, err
	}
	own := ownAccount{uri: g.uri, tag: tag, anyTag: g.anyTag, action: d.sub("Actions", "#ManagerAccount.ChangePassword").text("target")}
	return own, d.text("UserName") == b.target.User, nil
}

// refusedToRead reports whether the login is valid but may not read the resource.
func refusedToRead(err error) bool {
	return providers.IsKind(err, providers.KindForbidden) || providers.IsKind(err, providers.KindPasswordChangeRequired)
}

// patchPassword sends only the property of the password. A condition that was refused (412, 428)
// has changed nothing, so the next form of If-Match is tried.
func (b *BMC) patchPassword(ctx context.Context, op *operation, own ownAccount, fresh providers.Secret) error {
	var err error
	for _, tag := range own.conditions() {
		var header map[string]string
		if tag != "" {
			header = map[string]string{"If-Match": tag}
		}
		var a *answer
		a, err = b.conn.send(ctx, op, http.MethodPatch, own.uri, map[string]string{"Password": fresh.Reveal()}, header)
		if err == nil && a.Status == http.StatusAccepted {
			return uncertainChange(op, a.Status, nil)
		}
		if err = sentChange(op, err); err == nil || !conditionRefused(err) {
			return err
		}
	}
	return err
}

func (o ownAccount) conditions() []string {
	switch {
	case o.anyTag:
		return []string{"*", ""}
	case o.tag == "":
		return []string{"", "*"}
	case strings.HasPrefix(o.tag, "W/"):
		return []string{o.tag, strings.TrimPrefix(o.tag, "W/"), "*", ""}
	}
	return []string{o.tag, "*", ""}
}

func conditionRefused(err error) bool {
	var pe *providers.Error
	return errors.As(err, &pe) && (pe.Status == http.StatusPreconditionFailed || pe.Status == http.StatusPreconditionRequired)
}

// sentChange checks the error of a change that was sent. Only a plain refusal shows that the old
// password is still valid. After a server error, an ended session or an unreadable answer the
// password is unknown.
func sentChange(op *operation, err error) error {
	var pe *providers.Error
	if err == nil || !errors.As(err, &pe) {
		return err
	}
	switch {
	case pe.Kind == providers.KindUnreachable, pe.Kind == providers.KindPinMismatch:
		return err // nothing was sent
	case pe.Kind == providers.KindUncertain:
		return err
	case pe.Status >= 400 && pe.Status < 500 && pe.Status != http.StatusUnauthorized && pe.Status != http.StatusRequestTimeout:
		return err
	}
	return uncertainChange(op, pe.Status, pe)
}

func uncertainChange(op *operation, status int, cause error) error {
	return &providers.Error{Kind: providers.KindUncertain, Op: op.name, Status: status, Err: cause,
		Message: "the new password was sent and the BMC did not say clearly whether it took it; log in again to know"}
}
