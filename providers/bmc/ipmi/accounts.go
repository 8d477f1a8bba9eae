package ipmi

import (
	"context"
	"fmt"
	"strings"

	"github.com/bougou/go-ipmi/pkg/command/app"
	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/slipway-cloud/slipway/providers"
)

var (
	_ providers.BMCLogin    = (*BMC)(nil)
	_ providers.BMCAccounts = (*BMC)(nil)
)

// shortPassword is the longest password that a BMC stores as one of IPMI 1.5.
const shortPassword = 16

// Login opens the session.
func (b *BMC) Login(ctx context.Context) error {
	const op = "ipmi.login"
	release, err := b.take(ctx, op)
	if err != nil {
		return err
	}
	defer release()
	_, err = b.current(ctx, op)
	return err
}

// LoginSent reports whether a proof of the password was sent (RAKP 3), which is
// what a BMC counts. The BMC proves it first, so a wrong password is noticed
// before that.
func (b *BMC) LoginSent() bool { return b.proofSent.Load() }

// PasswordPolicy knows the limit of IPMI 2.0 itself. Nothing else is told: not
// the shortest length, and not when an account is locked.
func (b *BMC) PasswordPolicy(context.Context) (providers.PasswordPolicy, error) {
	return providers.PasswordPolicy{MaxLength: MaxPassword}, nil
}

// ChangePassword finds the login's own account and gives it another password,
// in a session at the administrator level, which nothing else uses. Afterwards,
// and when the outcome is uncertain, this value is closed: it knows the old
// password only.
func (b *BMC) ChangePassword(ctx context.Context, fresh providers.Secret) error {
	const op = "ipmi.change_password"
	secret := fresh.Reveal()
	switch {
	case secret == "":
		return invalid(op, "the new BMC password is empty")
	case len(secret) > MaxPassword:
		return invalid(op, "the new BMC password is longer than the 20 bytes that IPMI 2.0 allows; choose a shorter one")
	case strings.ContainsRune(secret, 0):
		return invalid(op, "the new BMC password holds a zero byte, which IPMI takes for its end; choose another")
	}
	release, err := b.take(ctx, op)
	if err != nil {
		return err
	}
	defer release()
	if b.session != nil {
		b.session.end(ctx, b.opts.LogoutTimeout)
		b.session = nil
	}
	s, err := b.currentAt(ctx, op, types.PrivilegeLevelAdministrator)
	if err != nil {
		return err
	}
	defer func() { // no later call works at this level
		s.end(ctx, b.opts.LogoutTimeout)
		b.session = nil
	}()
	own, err := b.ownAccount(ctx, s, op)
	if err != nil {
		return err
	}
	req := &app.SetUserPasswordRequest{UserID: own, Stored20: len(secret) > shortPassword, Operation: app.PasswordOperationSetPassword, Password: secret}
	_, err = s.command(ctx, op, req.Command(), req.Pack(), counted)
	if err == nil || providers.IsKind(err, providers.KindUncertain) {
		b.closed = true
		return err
	}
	switch code, _ := codeOf(err); {
	case code >= 0x80 && code <= 0xbe, providers.IsKind(err, providers.KindInvalid):
		return &providers.Error{Kind: providers.KindInvalid, Op: op, Err: code, Message: fmt.Sprintf(
			"the BMC refused the new password (completion code 0x%02x); it may want another length or other characters", byte(code))}
	case providers.IsKind(err, providers.KindProtocol): // answers that failed their check: the command was sent
		b.closed = true
		return &providers.Error{Kind: providers.KindUncertain, Op: op, Err: err, Message: "the new password was sent and no proper answer came; log in again to know which one holds"}
	}
	return err
}

// ownAccount finds the slot of the login's user name.
func (b *BMC) ownAccount(ctx context.Context, s *session, op string) (uint8, error) {
	var own uint8
	err := b.eachAccount(func(req types.Request) ([]byte, error) { return s.command(ctx, op, req.Command(), req.Pack(), reads) }, op,
		func(id uint8, name string) bool {
			if name == b.target.User {
				own = id
			}
			return own == 0
		})
	if err == nil && own == 0 {
		err = &providers.Error{Kind: providers.KindNotFound, Op: op, Message: "the BMC lists no account of the user that logs in, so its password cannot be changed there"}
	}
	return own, err
}

// accountNames lists the names in use.
func (b *BMC) accountNames(ctx context.Context, op string) ([]string, error) {
	var out []string
	err := b.eachAccount(func(req types.Request) ([]byte, error) { return b.run(ctx, op, req, reads) }, op,
		func(_ uint8, name string) bool {
			if n := b.clean(name); n != "" {
				out = append(out, n)
			}
			return true
		})
	return out, err
}

// eachAccount walks the slots while more says so. A slot that cannot be read
// ends it with an error, so that a list is never shorter than it looks; one
// that never had a name is no error.
func (b *BMC) eachAccount(send func(types.Request) ([]byte, error), op string, more func(id uint8, name string) bool) error {
	last := uint8(1)
	for id := uint8(1); id <= last; id++ {
		data, err := send(&app.GetUserAccessRequest{ChannelNumber: types.ChannelNumberSelf, UserID: id})
		if err != nil {
			return err
		}
		var access app.GetUserAccessResponse
		if err := decode(op, &access, data); err != nil {
			return err
		}
		last = access.MaxUsersIDCount & 0x3f
		data, err = send(&app.GetUsernameRequest{UserID: id})
		if code, refused := codeOf(err); refused && code == completion(types.CodeRequestDataFieldInvalid) {
			continue
		}
		if err != nil {
			return err
		}
		var name app.GetUsernameResponse
		if err := decode(op, &name, data); err != nil {
			return err
		}
		if !more(id, name.Username) {
			return nil
		}
	}
	return nil
}
