package ipmi

import (
	"context"
	"crypto/hmac"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/bougou/go-ipmi/pkg/command/app"
	"github.com/bougou/go-ipmi/pkg/crypto"
	"github.com/bougou/go-ipmi/pkg/rmcpplus"
	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/slipway-cloud/slipway/providers"
)

// privilege is what a session asks for: enough for power and boot flags, and
// not enough to change accounts or the LAN configuration.
const privilege = types.PrivilegeLevelOperator

// errDoubted marks a refusal after the BMC itself has proven the password: its
// account is locked or disabled, or it saw RAKP 1 twice and lost the thread.
var errDoubted = errors.New("refused after RAKP 2")

// handshake is one run of Open Session and RAKP 1 to 4 (section 13.15).
//
// Each try of a message has a tag of its own and only the answer to the latest
// counts: a BMC may answer a repeated RAKP 1 with a new random number, and
// keys made from an older one would look like a wrong password. Open Session
// and RAKP 3 are sent once a run, since both change the BMC's side; when their
// answer is lost the handshake begins again.
type handshake struct {
	link     *link
	op       string
	suite    suite
	user     string
	password providers.Secret
	level    types.PrivilegeLevel
	tries    int
	tag      uint8
	proven   *atomic.Bool // set when the password's proof is sent

	consoleID, bmcID uint32
	consoleRand      [16]byte
	bmcRand, guid    [16]byte
	role             uint8
}

// login opens a session: a handshake, again if an answer was lost, and the
// privilege level. The password is proven by the BMC first (RAKP 2), so a
// wrong one is noticed here and never sent on as a failed login.
func (b *BMC) login(ctx context.Context, op string, level types.PrivilegeLevel) (*session, error) {
	l, err := dial(ctx, b.address, b.target.Rule, b.opts.Timeout)
	if err != nil {
		return nil, lost(op, err, false)
	}
	var last error
	doubted := false
	for range b.opts.Retries + 1 {
		h := &handshake{link: l, op: op, suite: b.suite, user: b.target.User, password: b.target.Password, level: level, tries: b.opts.Retries + 1, proven: &b.proofSent}
		k, again, err := h.run(ctx)
		if err == nil {
			s := &session{link: l, keys: k, tries: b.opts.Retries + 1}
			if err := s.raise(ctx, op, level); err != nil {
				s.end(ctx, b.opts.LogoutTimeout)
				return nil, err
			}
			return s, nil
		}
		last = err
		if errors.Is(err, errDoubted) && !doubted {
			doubted = true // one more run: the network may have doubled a datagram
			continue
		}
		if !again {
			break
		}
	}
	defer l.close()
	return nil, b.loginFailed(ctx, l, op, last)
}

// loginFailed says why there is no session.
func (b *BMC) loginFailed(ctx context.Context, l *link, op string, err error) error {
	var pe *providers.Error
	if errors.As(err, &pe) {
		return pe
	}
	var quiet silence
	if errors.As(err, &quiet) && quiet.spoiled == 0 && ctx.Err() == nil && b.speaks(ctx, l, op) {
		return &providers.Error{Kind: providers.KindUnavailable, Op: op, Err: quiet, Message: fmt.Sprintf(
			"the BMC answers IPMI and not the login; check that it offers cipher suite %d, and that not all of its sessions are taken", b.suite.id)}
	}
	return lost(op, err, false)
}

// speaks reports whether anything at all answers in IPMI.
func (b *BMC) speaks(ctx context.Context, l *link, op string) bool {
	var can app.GetChannelAuthenticationCapabilitiesResponse
	return b.before(ctx, l, op, 1, channelRequest(), &can) == nil
}

// run reports with again whether another run may succeed.
func (h *handshake) run(ctx context.Context) (k *keys, again bool, err error) {
	for h.consoleID == 0 {
		h.consoleID = binary.LittleEndian.Uint32(crypto.RandomBytes(4))
	}
	copy(h.consoleRand[:], crypto.RandomBytes(16))
	if err := h.openSession(ctx); err != nil {
		return nil, unanswered(err), err
	}
	if err := h.rakp1(ctx); err != nil {
		return nil, false, err
	}
	k, err = h.rakp3(ctx)
	return k, unanswered(err), err
}

func unanswered(err error) bool {
	var quiet silence
	return errors.As(err, &quiet)
}

// send sends one message and takes the answer that carries the tag of its
// latest try and our session id. All answers begin alike: tag, status, two
// bytes, console session id.
func (h *handshake) send(ctx context.Context, tries int, message types.PayloadType, body []byte, answer types.PayloadType, read func([]byte) error) error {
	build := func() ([]byte, error) {
		h.tag++
		body[0] = h.tag
		return wrapPlain(message, body), nil
	}
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
	return h.link.ask(ctx, tries, build, take)
}

func (h *handshake) openSession(ctx context.Context) error {
	a, i, c := rmcpplus.NewAlgorithmPayloads(h.suite.auth, h.suite.integ, h.suite.crypt)
	req := rmcpplus.OpenSessionRequest{RemoteConsoleSessionID: h.consoleID, AuthenticationPayload: a, IntegrityPayload: i, ConfidentialityPayload: c}
	var res rmcpplus.OpenSessionResponse
	if err := h.send(ctx, 1, types.PayloadTypeRmcpOpenSessionRequest, req.Pack(), types.PayloadTypeRmcpOpenSessionResponse, res.Unpack); err != nil {
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
		RequestedMaximumPrivilegeLevel: h.level, UsernameLength: uint8(len(h.user)), Username: []byte(h.user), //nolint:gosec // at most 16
	}
	h.role = req.Role()
	res := rmcpplus.RAKPMessage2{AuthAlg: h.suite.auth}
	if err := h.send(ctx, h.tries, types.PayloadTypeRAKPMessage1, req.Pack(), types.PayloadTypeRAKPMessage2, res.Unpack); err != nil {
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
	res := rmcpplus.RAKPMessage4{AuthAlg: h.suite.auth}
	h.proven.Store(true)
	if err := h.send(ctx, 1, types.PayloadTypeRAKPMessage3, req.Pack(), types.PayloadTypeRAKPMessage4, res.Unpack); err != nil {
		return nil, err
	}
	if res.RmcpStatusCode != types.RmcpStatusCodeNoErrors {
		e := loginRefused(h.op, h.suite, res.RmcpStatusCode)
		if e.Kind == providers.KindUnauthorized { // RAKP 2 has shown that the password fits
			e.Message = fmt.Sprintf("the stored password fits and the BMC refuses the login all the same; its account may be locked, disabled or kept from the LAN (status 0x%02x)", uint8(res.RmcpStatusCode))
			e.Err = errDoubted
		}
		return nil, e
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
	return &keys{suite: h.suite, consoleID: h.consoleID, bmcID: h.bmcID, k1: k1, k2: k2, guid: h.guid}, nil
}

// kuid is the password as a key.
func (h *handshake) kuid() []byte { return crypto.PadPassword20([]byte(h.password.Reveal())) }
