package pxesim

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"
)

// The commands that Slipway's templates write into user-data. They are the only
// lines of user-data that the simulation does, and it does them itself: no shell
// sees them.
var (
	reportCommand = regexp.MustCompile(`-H 'Authorization: Bearer (pxe_[A-Za-z0-9_-]+)' -d '(\{[^']*\})' '(https?://[^\s']+/api/v1/report)'`)
	agentCommand  = regexp.MustCompile(`https?://[^\s"']+/install-agent\b`)
	bootToken     = regexp.MustCompile(`pxe_[A-Za-z0-9_-]+`)
)

func isReport(line string) bool { return reportCommand.MatchString(line) }

// shellLimit is how long a command tries again, as those commands do.
const shellLimit = 90 * time.Second

// shell does one line of user-data, as simnode.Options.Shell wants it. A report
// that cannot be delivered fails nothing, as its command says.
func (s *Server) shell(ctx context.Context, line string) (script []byte, done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, shellLimit)
	defer cancel()
	m := &Machine{Server: s.opt.Slipway, Client: s.opt.Client}
	if at := agentCommand.FindString(line); at != "" {
		for {
			script, err = m.get(ctx, at, maxLoad)
			if err == nil || s.again(ctx) != nil {
				return script, true, err
			}
		}
	}
	if part := reportCommand.FindStringSubmatch(line); part != nil {
		for {
			err := m.post(ctx, part[3], part[1], []byte(part[2]))
			if err == nil {
				return nil, true, nil
			}
			if s.again(ctx) != nil {
				s.log.Warn("a report could not be delivered", "error", err)
				return nil, true, nil
			}
		}
	}
	return nil, false, nil
}

func (m *Machine) post(ctx context.Context, at, token string, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := m.client().Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxScript))
	if res.StatusCode >= http.StatusInternalServerError || res.StatusCode == http.StatusTooManyRequests {
		return fmt.Errorf("the report was answered with %d", res.StatusCode)
	}
	return nil // what is refused stays refused
}

// hostname is that of NoCloud's meta-data.
func hostname(meta string) string {
	for line := range strings.Lines(meta) {
		if name, ok := strings.CutPrefix(line, "local-hostname:"); ok {
			return strings.TrimSpace(name)
		}
	}
	return "localhost"
}

func withoutTokens(line string) string { return bootToken.ReplaceAllString(line, "pxe_...") }
