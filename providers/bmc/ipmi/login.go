package ipmi

import (
	"context"
	"crypto/hmac"
	"encoding/binary"
	"errors"

	"github.com/bougou/go-ipmi/pkg/crypto"
	"github.com/bougou/go-ipmi/pkg/rmcpplus"
	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/slipway-cloud/slipway/providers"
)

// privilege is what every session asks for: enough for power and boot flags,
// and not enough to change accounts or the LAN configuration.
const privilege = types.PrivilegeLevelOperator

// handshake is one run of Open Session and RAKP 1 to 4 (section 13.15). Each
// of its messages is sent once: a BMC that answers a repeated message with a
// new random number would leave both sides with different keys, which looks
// like a wrong password. A message that is lost begins the handshake anew.
type handshake struct {
	link     *link
	op       string
	suite    suite
	user     string
	password providers.Secret
	tag      uint8

	consoleID, bmcID uint32
	consoleRand      [16]byte
	bmcRand, guid    [16]byte
	role             uint8
}

// login opens a session: a handshake, again if an answer was lost, and the
// privilege level. The password is proven by the BMC first (RAKP 2), so a
// wrong one is noticed here and never sent on as a failed login.
func (b *BMC) login(ctx context.Context, op string) (*session, error) {
	l, err := dial(ctx, b.address, b.opts.Timeout)
	if err != nil {
		return nil, lost(op, err, false)
	}
	var quiet silence
	for range b.opts.Retries + 1 {
		h := &handshake{link: l, op: op, suite: b.suite, user: b.target.User, password: b.target.Password}
		k, err := h.run(ctx)
		if err == nil {
			s := &session{link: l, keys: k, tries: b.opts.Retries + 1}
			if err := s.raise(ctx, op); err != nil {
				s.end(ctx, b.opts.LogoutTimeout)
				return nil, err
			}
			return s, nil
		}
		var unanswered silence
		if !errors.As(err, &unanswered) {
			l.close()
			var pe *providers.Error
			if errors.As(err, &pe) {
				return nil, pe
			}
			return nil, lost(op, err, false)
		}
		quiet.spoiled += unanswered.spoiled
	}
	l.close()
	return nil, lost(op, quiet, false)
}

func (h *handshake) run(ctx context.Context) (*keys, error) {
	for h.consoleID == 0 {
		h.consoleID = binary.LittleEndian.Uint32(crypto.RandomBytes(4))
	}
	copy(h.consoleRand[:], crypto.RandomBytes(16))
	if err := h.openSession(ctx); err != nil {
		return nil, err
	}
	if err := h.rakp1(ctx); err != nil {
		return nil, err
	}
	return h.rakp3(ctx)
}

// send sends one message with a tag of its own and takes the answer that
// carries this tag and our session id. Both kinds of answer begin alike: tag,
// status, two bytes, console session id.
func (h *handshake) send(ctx context.Context, message types.PayloadType, body []byte, answer types.PayloadType, read func([]byte) error) error {
	body[0] = h.tag
	take := func(d []byte) verdict {
		p, ok := unwrapPlain(d, answer)
		switch {
		case !ok:
			return spoiled
		case len(p) < 8 || p[0] != h.tag || binary.LittleEndian.Uint32(p[4:]) != h.consoleID:
			return ignored
		case read(p) != nil:
			return spoiled
		}
		return taken
	}
	return h.link.ask(ctx, 1, func() ([]byte, error) { return wrapPlain(message, body), nil }, take)
}

func (h *handshake) openSession(ctx context.Context) error {
	a, i, c := rmcpplus.NewAlgorithmPayloads(h.suite.auth, h.suite.integ, h.suite.crypt)
	req := rmcpplus.OpenSessionRequest{RemoteConsoleSessionID: h.consoleID, AuthenticationPayload: a, IntegrityPayload: i, ConfidentialityPayload: c}
	h.tag = 1
	var res rmcpplus.OpenSessionResponse
	if err := h.send(ctx, types.PayloadTypeRmcpOpenSessionRequest, req.Pack(), types.PayloadTypeRmcpOpenSessionResponse, res.Unpack); err != nil {
		return err
	}
	if res.RmcpStatusCode != types.RmcpStatusCodeNoErrors {
		return loginRefused(h.op, h.suite, res.RmcpStatusCode)
	}
	// RAKP does not cover the algorithms, so this is the only guard against
	// one in between who swaps them for weaker ones.
	if types.AuthAlg(res.AuthAlg) != h.suite.auth || types.IntegrityAlg(res.IntegrityAlg) != h.suite.integ || types.CryptAlg(res.CryptAlg) != h.suite.crypt {
		return noSuite(h.op, h.suite, ": it answered with other algorithms than were asked for")
	}
	h.bmcID = res.ManagedSystemSessionID
	return nil
}

func (h *handshake) rakp1(ctx context.Context) error {
	req := rmcpplus.RAKPMessage1{
		ManagedSystemSessionID: h.bmcID, RemoteConsoleRandomNumber: h.consoleRand, NameOnlyLookup: true,
		RequestedMaximumPrivilegeLevel: privilege, UsernameLength: uint8(len(h.user)), Username: []byte(h.user), //nolint:gosec // at most 16
	}
	h.role, h.tag = req.Role(), 2
	res := rmcpplus.RAKPMessage2{AuthAlg: h.suite.auth}
	if err := h.send(ctx, types.PayloadTypeRAKPMessage1, req.Pack(), types.PayloadTypeRAKPMessage2, res.Unpack); err != nil {
		return err
	}
	if res.RmcpStatusCode != types.RmcpStatusCodeNoErrors {
		return loginRefused(h.op, h.suite, res.RmcpStatusCode)
	}
	h.bmcRand, h.guid = res.ManagedSystemRandomNumber, res.ManagedSystemGUID
	want, err := crypto.RAKP2AuthCode(h.suite.auth, h.consoleID, h.bmcID, h.consoleRand[:], h.bmcRand[:], h.guid[:], h.role, h.user, h.kuid())
	if err == nil {
		want, err = crypto.TruncateRAKP2AuthCode(h.suite.auth, want)
	}
	if err != nil {
		return err
	}
	if !hmac.Equal(want, res.KeyExchangeAuthenticationCode) {
		return &providers.Error{Kind: providers.KindUnauthorized, Op: h.op, Message: rejectedLogin + " (its proof does not fit the stored password)"}
	}
	return nil
}

func (h *handshake) rakp3(ctx context.Context) (*keys, error) {
	proof, err := crypto.RAKP3AuthCode(h.suite.auth, h.bmcRand[:], h.consoleID, h.role, h.user, h.kuid())
	if err != nil {
		return nil, err
	}
	sik, k1, k2, err := crypto.DeriveSessionKeys(h.suite.auth, h.consoleRand[:], h.bmcRand[:], h.role, h.user, h.kuid())
	if err != nil {
		return nil, err
	}
	req := rmcpplus.RAKPMessage3{ManagedSystemSessionID: h.bmcID, KeyExchangeAuthenticationCode: proof}
	h.tag = 3
	res := rmcpplus.RAKPMessage4{AuthAlg: h.suite.auth}
	if err := h.send(ctx, types.PayloadTypeRAKPMessage3, req.Pack(), types.PayloadTypeRAKPMessage4, res.Unpack); err != nil {
		return nil, err
	}
	if res.RmcpStatusCode != types.RmcpStatusCodeNoErrors {
		return nil, loginRefused(h.op, h.suite, res.RmcpStatusCode)
	}
	want, err := crypto.RAKP4ICV(h.suite.auth, h.consoleRand[:], h.bmcID, h.guid[:], sik)
	if err != nil {
		return nil, err
	}
	if !hmac.Equal(want, res.IntegrityCheckValue) {
		// The password was right (RAKP 2), so the keys differ by a BMC key.
		return nil, &providers.Error{Kind: providers.KindUnsupported, Op: h.op,
			Message: "the BMC took the login and signs with another key; it probably has a BMC key (K_G) set, which is not supported: clear it"}
	}
	return &keys{suite: h.suite, consoleID: h.consoleID, bmcID: h.bmcID, k1: k1, k2: k2}, nil
}

// kuid is the password as a key.
func (h *handshake) kuid() []byte { return crypto.PadPassword20([]byte(h.password.Reveal())) }
