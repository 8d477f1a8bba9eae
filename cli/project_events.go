package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
	"github.com/slipway-cloud/slipway/internal/poll"
)

const (
	// streamSilence is how long a stream may be silent, in which the server sends several
	// heartbeats.
	streamSilence = time.Minute
	// streamPause is the pause before a stream is opened again.
	streamPause = time.Second
	// streamEnded begins the last line of a stream whose reader has lost its access.
	streamEnded = ": ended"
)

// projectEvent is an event of a project.
type projectEvent struct {
	Cursor  int64
	Type    string
	Payload json.RawMessage
	At      time.Time
}

func (a *app) projectEventsCommand() *cobra.Command {
	var follow bool
	var after int64
	var reason string
	cmd := &cobra.Command{
		Use: "events [PROJECT] --follow", Short: "Follow what happens in a project, until Ctrl-C", Args: cobra.MaximumNArgs(1),
		Long: "Prints a line for each event; with -o json a JSON object in each line. A connection that breaks is opened again after the last event.",
	}
	f := cmd.Flags()
	f.BoolVar(&follow, "follow", false, "wait for what comes; events are a stream, so this is required")
	f.Int64Var(&after, "after", 0, "begin after the event with this cursor; 0 begins with the oldest that is kept (default: with what comes next)")
	f.StringVar(&reason, "reason", "", "why you act on a customer's project, for operators; its owners see it")
	cmd.RunE = a.withProject(cmd, 0, func(cmd *cobra.Command, project string, _ []string) error {
		if !follow {
			return fail(ExitUsage, "give --follow: the events of a project are a stream, which ends with Ctrl-C")
		}
		if after < 0 {
			return fail(ExitUsage, "--after must not be negative")
		}
		last := ""
		if cmd.Flags().Changed("after") {
			last = strconv.FormatInt(after, 10)
		}
		return a.followEvents(cmd.Context(), project, last, reason)
	})
	return cmd
}

// followEvents prints the events after the cursor last until ctx ends or the reader has no access
// any more. It opens the stream again when it ends, unless the server was away for longer than
// patience.
func (a *app) followEvents(ctx context.Context, project, last, reason string) error {
	heard := time.Now()
	for {
		err := asFailure(a.readEvents(ctx, project, reason, &last, &heard))
		var f *failure
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && (!errors.As(err, &f) || f.code != ExitUnreachable || time.Since(heard) > patience):
			return err
		}
		if poll.Sleep(ctx, streamPause) != nil {
			return nil
		}
	}
}

// readEvents prints the events of one connection. It returns nil when the connection ended.
func (a *app) readEvents(ctx context.Context, project, reason string, last *string, heard *time.Time) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(streamSilence, cancel)
	defer silence.Stop()
	res, err := a.api.FollowProjectEvents(ctx, project, nil, client.After(*last), client.Because(reason))
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	id := *last
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, client.MaxAnswer)
	for lines.Scan() {
		*heard = time.Now()
		silence.Reset(streamSilence)
		if strings.HasPrefix(lines.Text(), streamEnded) {
			return fail(ExitUnauthorised, "your access to the project has ended; sign in again with slipway login")
		}
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			if err := a.printEvent([]byte(data)); err != nil {
				return err
			}
			*last = id
		}
		if v, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
			id = v // of the event that follows
		}
	}
	return nil // a connection that breaks is opened again
}

func (a *app) printEvent(raw []byte) error {
	e, err := client.Answer[projectEvent]{Raw: raw}.Decode()
	if err != nil {
		return err
	}
	switch a.output {
	case "json":
		_, err := io.WriteString(a.Out, escapeJSON(string(raw))+"\n")
		return err
	case "yaml":
		if _, err := io.WriteString(a.Out, "---\n"); err != nil {
			return err
		}
		return writeYAML(a.Out, raw)
	}
	_, err = fmt.Fprintln(a.Out, oneLine(fmt.Sprintf("%d  %s  %s  %s", e.Cursor, moment(e.At), e.Type, e.Payload)))
	return err
}
