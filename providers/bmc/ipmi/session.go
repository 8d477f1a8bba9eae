package ipmi

import (
	"context"
	"errors"
	"time"

	"github.com/bougou/go-ipmi/pkg/command/app"
	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/slipway-cloud/slipway/providers"
)

// session is an active RMCP+ session.
type session struct {
	link  *link
	keys  *keys
	tries int
	seq   uint8 // of the last request, 6 bits
	used  time.Time
}

// effect says what a command does, and with it whether it may be sent twice.
type effect int

const (
	reads   effect = iota // changes nothing: repeated
	changes               // the same again leads to the same: repeated; a lost answer is uncertain
	counted               // each one counts: sent once; a lost answer is uncertain
)

// command sends one command and returns the data of its answer.
func (s *session) command(ctx context.Context, op string, c types.Command, data []byte, e effect) ([]byte, error) {
	s.seq = (s.seq + 1) & types.IPMIRequesterSequenceMax
	tries := s.tries
	if e == counted {
		tries = 1
	}
	sent := false
	build := func() ([]byte, error) {
		d, err := s.keys.seal(request(c, s.seq, data))
		sent = err == nil
		return d, err
	}
	var code byte
	var answer []byte
	take := func(d []byte) verdict {
		message, v := s.keys.open(d)
		if v != taken {
			return v
		}
		var ok bool
		if code, answer, ok = response(message, c, s.seq); !ok {
			return ignored
		}
		return taken
	}
	if err := s.link.ask(ctx, tries, build, take); err != nil {
		return nil, lost(op, err, sent && e != reads)
	}
	s.used = time.Now()
	if code != 0 {
		return nil, refused(op, completion(code))
	}
	return answer, nil
}

// raise asks for the level; a session begins as a user's.
func (s *session) raise(ctx context.Context, op string, level types.PrivilegeLevel) error {
	req := &app.SetSessionPrivilegeLevelRequest{PrivilegeLevel: level}
	_, err := s.command(ctx, op, req.Command(), req.Pack(), reads)
	if code, ok := codeOf(err); ok && (code == 0x80 || code == 0x81) {
		return loginRefused(op, s.keys.suite, types.RmcpStatusCodeUnauthorizedRoleOfPriLevel)
	}
	return err
}

// end closes the session, once and briefly: a BMC that does not answer drops
// it by itself after a minute.
func (s *session) end(ctx context.Context, limit time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	req := &app.CloseSessionRequest{SessionID: s.keys.bmcID}
	_, _ = s.command(ctx, "ipmi.close", req.Command(), req.Pack(), counted)
	s.link.close()
}

// take waits for the turn; the BMC is busy with another caller's request for
// at most the time of that request.
func (b *BMC) take(ctx context.Context, op string) (release func(), err error) {
	select {
	case <-b.turn:
		return func() { b.turn <- struct{}{} }, nil
	case <-ctx.Done():
		return nil, lost(op, ctx.Err(), false)
	}
}

// run sends one command in the session, which it opens when there is none.
func (b *BMC) run(ctx context.Context, op string, req types.Request, e effect) ([]byte, error) {
	release, err := b.take(ctx, op)
	if err != nil {
		return nil, err
	}
	defer release()
	s, err := b.current(ctx, op)
	if err != nil {
		return nil, err
	}
	data, err := s.command(ctx, op, req.Command(), req.Pack(), e)
	if _, answered := codeOf(err); err != nil && !answered {
		// The session may be gone on the other side; the next call opens one.
		b.session = nil
		s.link.close()
	}
	return data, err
}

// current is the open session, or a new one; the caller has the turn.
func (b *BMC) current(ctx context.Context, op string) (*session, error) {
	return b.currentAt(ctx, op, privilege)
}

func (b *BMC) currentAt(ctx context.Context, op string, level types.PrivilegeLevel) (*session, error) {
	switch {
	case b.closed:
		return nil, invalid(op, "the BMC was closed, or its password changed; open it again")
	case b.rejected != nil:
		again := *b.rejected
		again.Op = op
		return nil, &again
	case b.target.User == "" || b.target.Password.IsZero():
		return nil, invalid(op, "the BMC has no user name or no password; IPMI without them is not used")
	}
	if b.session != nil && time.Since(b.session.used) > b.opts.SessionIdle {
		b.session.end(ctx, b.opts.LogoutTimeout)
		b.session = nil
	}
	if b.session == nil {
		s, err := b.login(ctx, op, level)
		if err != nil {
			var pe *providers.Error
			if errors.As(err, &pe) && pe.Kind == providers.KindUnauthorized {
				b.rejected = pe
			}
			return nil, err
		}
		b.session = s
	}
	return b.session, nil
}

// ask runs a command of go-ipmi and decodes its answer.
func (b *BMC) ask(ctx context.Context, op string, req types.Request, res types.Response, e effect) error {
	data, err := b.run(ctx, op, req, e)
	if err != nil {
		return err
	}
	return decode(op, res, data)
}

// decode never lets an answer end the process: the codecs check most lengths
// and not all.
func decode(op string, res types.Response, data []byte) (err error) {
	bad := &providers.Error{Kind: providers.KindProtocol, Op: op, Message: "the BMC's answer is not what IPMI says it should be"}
	defer func() {
		if recover() != nil {
			err = bad
		}
	}()
	if res.Unpack(data) != nil {
		return bad
	}
	return nil
}

// Close ends the session, also when ctx is over; a second Close does nothing.
// A request under way ends first.
func (b *BMC) Close(ctx context.Context) error {
	b.closing.Do(func() {
		<-b.turn
		defer func() { b.turn <- struct{}{} }()
		b.closed = true
		if b.session != nil {
			b.session.end(ctx, b.opts.LogoutTimeout)
			b.session = nil
		}
	})
	return nil
}
