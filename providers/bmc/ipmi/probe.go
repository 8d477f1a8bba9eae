package ipmi

import (
	"context"

	"github.com/bougou/go-ipmi/pkg/command/app"
	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/slipway-cloud/slipway/providers"
)

// Probe asks, without a login, whether IPMI 2.0 is spoken, and for the
// system's UUID where the BMC tells it without a login. There is no pin: IPMI has
// no certificate, and none of what Probe tells is proven.
//
// Errors: KindUnsupported for a BMC that speaks only IPMI 1.5 or has a BMC key
// (K_G) set.
func (b *BMC) Probe(ctx context.Context) (providers.BMCIdent, error) {
	const op = "ipmi.probe"
	l, err := dial(ctx, b.address, b.target.Rule, b.opts.Timeout)
	if err != nil {
		return providers.BMCIdent{}, lost(op, err, false)
	}
	defer l.close()
	var can app.GetChannelAuthenticationCapabilitiesResponse
	if err := b.before(ctx, l, op, b.opts.Retries+1, channelRequest(), &can); err != nil {
		return providers.BMCIdent{}, err
	}
	unsupported := func(message string) (providers.BMCIdent, error) {
		return providers.BMCIdent{}, &providers.Error{Kind: providers.KindUnsupported, Op: op, Message: message}
	}
	switch {
	case !can.SupportIPMIv20:
		return unsupported("the BMC does not speak IPMI 2.0 on this channel, and 1.5 does not encrypt; use Redfish for it")
	case can.KgStatus:
		return unsupported("the BMC has a BMC key (K_G) set, which is not supported; clear it")
	}
	ident := providers.BMCIdent{IPMIVersion: "2.0"}
	var g app.GetSystemGUIDResponse
	// Many BMCs tell their UUID only in a session; Identify asks there.
	if err := b.before(ctx, l, op, 1, &app.GetSystemGUIDRequest{}, &g); err == nil {
		ident.UUID = uuidOf(g.GUID)
	}
	return ident, ctx.Err()
}

// channelRequest asks what the channel it comes over can do.
func channelRequest() types.Request {
	return &app.GetChannelAuthenticationCapabilitiesRequest{IPMIv20Extended: true, ChannelNumber: types.ChannelNumberSelf, MaximumPrivilegeLevel: privilege}
}

// before sends one read outside of a session, in the IPMI 1.5 frame that
// section 13.15 asks for.
func (b *BMC) before(ctx context.Context, l *link, op string, tries int, req types.Request, res types.Response) error {
	const seq = 1
	build := func() ([]byte, error) {
		message := request(req.Command(), seq, req.Pack())
		d := append(rmcp(), byte(types.AuthTypeNone), 0, 0, 0, 0, 0, 0, 0, 0, byte(len(message)))
		return append(d, message...), nil
	}
	var code byte
	var data []byte
	take := func(d []byte) verdict {
		if !isRMCP(d) || len(d) < header15 || d[4] != byte(types.AuthTypeNone) || int(d[13]) > len(d)-header15 {
			return spoiled
		}
		c, answer, ok := response(d[header15:header15+int(d[13])], req.Command(), seq)
		if !ok {
			return spoiled
		}
		code, data = c, append([]byte(nil), answer...)
		return taken
	}
	if err := l.ask(ctx, tries, build, take); err != nil {
		return lost(op, err, false)
	}
	if code != 0 {
		return refused(op, completion(code))
	}
	return decode(op, res, data)
}
