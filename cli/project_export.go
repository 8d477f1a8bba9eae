package cli

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
)

// exportEnd is the last line of an export that is whole.
const exportEnd = `"complete":true}`

func (a *app) projectExportCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "export [PROJECT]", Short: "Write everything that is stored of a project, as JSON", Args: cobra.MaximumNArgs(1),
		Example: "  slipway project export training > training.json",
		Long: "An export has no limit of size. One that breaks off exits with an error, and its file lacks the last member, complete.\n" +
			"For members with role billing it holds project, billing account, members, group roles, quotas and notices.",
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why you act on a customer's project, for operators; its owners see it")
	cmd.RunE = a.withProject(cmd, 0, func(cmd *cobra.Command, project string, _ []string) error {
		return a.writeExport(cmd.Context(), func(ctx context.Context) (*http.Response, error) {
			return a.api.ExportProject(ctx, project, client.Because(reason))
		})
	})
	return cmd
}

// opener opens an answer that has no bound.
type opener func(ctx context.Context) (*http.Response, error)

// writeExport writes the lines of a JSON export as they come, and fails when the last one is
// missing.
func (a *app) writeExport(ctx context.Context, open opener) error {
	return a.writeLines(ctx, open, escapeJSON, func(last string) bool { return strings.HasSuffix(last, exportEnd) })
}

// writeLines writes the lines of an answer as they come, each made fit for a terminal. It fails
// when the last one does not end the answer.
func (a *app) writeLines(ctx context.Context, open opener, printable func(string) string, ends func(last string) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(streamSilence, cancel)
	defer silence.Stop()
	res, err := open(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, client.MaxAnswer)
	last := ""
	for lines.Scan() {
		silence.Reset(streamSilence)
		last = lines.Text()
		if _, err := io.WriteString(a.Out, printable(last)+"\n"); err != nil {
			return err
		}
	}
	if !ends(last) {
		cause := lines.Err()
		if cause == nil {
			cause = errors.New("its last member, complete or total, is missing")
		}
		return fail(ExitUnreachable, "the answer is cut short, and what was written is a part of it: %w\n  repeat the command", bare(cause))
	}
	return nil
}
