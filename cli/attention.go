package cli

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
)

func (a *app) attentionCommand() *cobra.Command {
	var site, kind string
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use: "attention", Short: "List everything that requires operator action, oldest first", Args: cobra.NoArgs,
		Long: "List everything that requires operator action, oldest first, each with what is wrong and what to do.\n\nExit code 0 also when there is something.",
	}
	f := cmd.Flags()
	f.StringVar(&site, "site", "", "only of this site, by name or id")
	f.StringVar(&kind, "kind", "", "only of this kind, such as parked_job")
	f.IntVar(&limit, "limit", 0, "at most so many; 0 is all")
	f.BoolVar(&asJSON, "json", false, "the same as --output json")
	cmd.RunE = does(func(cmd *cobra.Command, _ []string) error {
		if asJSON {
			a.output = "json"
		}
		filter := client.ListAttentionParams{Kind: optional[client.ListAttentionParamsKind](kind)}
		if site != "" {
			id, err := a.siteOf(cmd.Context(), site)
			if err != nil {
				return err
			}
			filter.SiteID = &id
		}
		r, err := listAll(cmd.Context(), list(a.api.ListAttention, &filter), limit)
		if err != nil {
			return err
		}
		return show(a, r, a.attentionTable)
	})
	return cmd
}

func (a *app) attentionTable(got client.ListAttention) error {
	if len(got.Data) == 0 {
		_, err := fmt.Fprintln(a.Out, "Nothing requires operator action.")
		return err
	}
	for _, i := range got.Data {
		about := []string{(time.Duration(i.AgeSeconds) * time.Second).String(), string(i.Kind), orDash(attentionAbout(i))}
		for _, more := range []string{i.Stage, i.FailureClass} {
			if more != "" {
				about = append(about, more)
			}
		}
		a.wrapped("", strings.Join(about, "  "))
		a.wrapped("    ", i.Message)
		next := i.NextAction
		if i.RecommendedAction != "" {
			next = i.RecommendedAction + ": " + next
		}
		a.wrapped("    next: ", next)
		a.wrapped("    see: ", i.Runbook)
	}
	return nil
}

// lineWidth is the longest line of a list that has whole sentences.
const lineWidth = 120

// wrapped prints a text after a label, in lines of at most lineWidth. A line that goes on is
// marked, so that no text can begin a line of its own.
func (a *app) wrapped(label, text string) {
	const goesOn = "    | "
	line, words := label, 0
	for _, word := range unbroken(oneLine(text)) {
		if words > 0 && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > lineWidth {
			_, _ = fmt.Fprintln(a.Out, line)
			line, words = goesOn, 0
		}
		if words > 0 {
			line += " "
		}
		line, words = line+word, words+1
	}
	if words > 0 {
		_, _ = fmt.Fprintln(a.Out, line)
	}
}

// unbroken returns the words of a text. A command, up to the next punctuation, is one of them, so
// that it can be copied from one line.
func unbroken(text string) []string {
	const punctuation = ".,;:)"
	var out []string
	inCommand := false
	for _, word := range strings.Fields(text) {
		last := len(out) - 1
		if inCommand && utf8.RuneCountInString(out[last])+1+utf8.RuneCountInString(word) < lineWidth/2 {
			out[last] += " " + word
		} else {
			out = append(out, word)
		}
		inCommand = (inCommand || word == "slipway") && !strings.ContainsAny(word[len(word)-1:], punctuation)
	}
	return out
}

// attentionAbout names the thing: the host where there is one, and the id that the next
// command takes.
func attentionAbout(i client.Attention) string {
	id := ""
	for _, v := range []string{i.BmcID, i.JobID, i.NodeID, i.TemporalWorkflowID} {
		if v != "" {
			id = v
			break
		}
	}
	return strings.TrimSpace(i.Hostname + " " + id)
}
