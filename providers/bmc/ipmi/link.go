package ipmi

import (
	"context"
	"errors"
	"net"
	"os"
	"time"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// maxDatagram bounds one answer; IPMI messages are far smaller, and a longer
// one fails its check.
const maxDatagram = 2048

// maxStray bounds the datagrams that are looked at for one try.
const maxStray = 512

// verdict is what became of one datagram.
type verdict int

const (
	ignored verdict = iota // another message, such as a late answer
	spoiled                // ours by its address, but it fails a check
	taken                  // the answer
)

// link is a UDP socket connected to the BMC, so that the kernel drops what
// comes from elsewhere. It is used by one caller at a time.
type link struct {
	conn    net.Conn
	timeout time.Duration
}

// silence says that no answer came. Spoiled counts answers that failed a
// check: then something does answer, and it is not what was asked.
type silence struct{ spoiled int }

func (silence) Error() string { return "no answer" }

func dial(ctx context.Context, address string, rule spec.AddressRule, timeout time.Duration) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := providers.NewDialer(rule, timeout).DialContext(ctx, "udp", address)
	if err != nil {
		return nil, err
	}
	return &link{conn: conn, timeout: timeout}, nil
}

// ask sends what build makes, up to tries times, until take takes an answer.
// It ends with ctx. build is called for each try, since a repetition must not
// look like a duplicate to the BMC.
func (l *link) ask(ctx context.Context, tries int, build func() ([]byte, error), take func([]byte) verdict) error {
	stop := context.AfterFunc(ctx, func() { _ = l.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var quiet silence
	for range tries {
		packet, err := build()
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := l.conn.Write(packet); err != nil {
			return err
		}
		answered, err := l.listen(ctx, take, &quiet)
		if err != nil || answered {
			return err
		}
	}
	return quiet
}

// listen reads until take takes a datagram or the time of one try is over.
func (l *link) listen(ctx context.Context, take func([]byte) verdict, quiet *silence) (bool, error) {
	if err := l.conn.SetReadDeadline(time.Now().Add(l.timeout)); err != nil {
		return false, err
	}
	buf := make([]byte, maxDatagram)
	for range maxStray {
		if err := ctx.Err(); err != nil { // also when it ended just before the deadline was set
			return false, err
		}
		n, err := l.conn.Read(buf)
		switch {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case errors.Is(err, os.ErrDeadlineExceeded):
			return false, nil
		case err != nil:
			return false, err
		}
		switch take(buf[:n]) {
		case taken:
			return true, nil
		case spoiled:
			quiet.spoiled++
		case ignored:
		}
	}
	return false, nil
}

func (l *link) close() { _ = l.conn.Close() }
