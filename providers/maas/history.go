package maas

import (
	"context"
	"encoding/base64"
	"errors"
	"net/url"
	"sort"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/canonical/gomaasclient/entity"
	"github.com/canonical/gomaasclient/entity/event"

	"github.com/slipway-cloud/slipway/providers"
)

const (
	maxEvents  = 1000     // MAAS's own page limit
	maxOutput  = 16 << 10 // bytes of one script's output
	maxScripts = 500      // of one run
)

// Events lists a machine's events, newest first. Curtin's and cloud-init's
// progress is at DEBUG, which the default level of MAAS hides.
func (c *client) Events(ctx context.Context, systemID, level string, limit int) ([]providers.MAASEvent, error) {
	if err := checkID("events", systemID); err != nil {
		return nil, err
	}
	if limit < 1 || limit > maxEvents {
		return nil, invalid("maas.events", "the limit must be between 1 and 1000")
	}
	level = strings.ToUpper(level)
	switch level {
	case "DEBUG", "INFO", "WARNING", "ERROR":
	default:
		return nil, invalid("maas.events", "the level must be DEBUG, INFO, WARNING or ERROR")
	}
	var out []providers.MAASEvent
	err := c.call(ctx, read("events"), func(s *session) error {
		resp, err := s.api.Events.Get(&entity.EventParams{ID: systemID, Level: event.LogLevel(level), Limit: strconv.Itoa(limit)})
		if err != nil {
			return err
		}
		for _, e := range resp.Events {
			if e.Node != "" && e.Node != systemID {
				continue
			}
			out = append(out, providers.MAASEvent{
				ID: e.ID, Level: string(e.Level), Type: bounded(plain(e.Type), 200),
				Description: bounded(plain(e.Description), 2000), At: eventTime(e.Created),
			})
		}
		return nil
	})
	sort.SliceStable(out, func(i, j int) bool { return out[i].ID > out[j].ID })
	if len(out) > limit {
		out = out[:limit]
	}
	return out, err
}

// eventTime reads MAAS's form "Fri, 07 Dec. 2018 20:11:08", which is UTC. An
// unknown form gives the zero time; the id still orders the events.
func eventTime(v string) time.Time {
	for _, layout := range []string{"Mon, 02 Jan. 2006 15:04:05", time.RFC1123Z, time.RFC1123, time.RFC3339Nano} {
		if t, err := time.Parse(layout, v); err == nil {
			return t.UTC()
		}
	}
	return time.Time{}
}

// scriptSet is one run of scripts; gomaasclient has only the endpoint that
// MAAS deprecated.
type scriptSet struct {
	ID      int `json:"id"`
	Results []struct {
		Name   string `json:"name"`
		Status int    `json:"status"`
		Output string `json:"output"` // base64
	} `json:"results"`
}

// Results lists the scripts of the newest run of a type: commissioning, testing
// or installation. No run yet gives none. Each output holds the last 16 KiB,
// where the error is; where all outputs together are over the size limit of an
// answer they are left out and the statuses remain.
func (c *client) Results(ctx context.Context, systemID, resultType string) ([]providers.MAASResult, error) {
	if err := checkID("results", systemID); err != nil {
		return nil, err
	}
	switch resultType {
	case "commissioning", "testing", "installation":
	default:
		return nil, invalid("maas.results", "the type must be commissioning, testing or installation")
	}
	newest, err := c.newestRun(ctx, systemID, resultType)
	if err != nil || newest == nil {
		return nil, err
	}
	var full scriptSet
	err = c.call(ctx, read("results"), func(s *session) error {
		if err := s.get("", url.Values{"include_output": {"true"}}, &full, "nodes", systemID, "results", strconv.Itoa(newest.ID)); err != nil {
			return err
		}
		if full.ID != newest.ID {
			return errors.New("the answer is about another run")
		}
		return nil
	})
	switch {
	case providers.IsKind(err, providers.KindTooBig):
		full = *newest
	case err != nil:
		return nil, err
	}
	if len(full.Results) > maxScripts {
		full.Results = full.Results[:maxScripts]
	}
	out := make([]providers.MAASResult, 0, len(full.Results))
	for _, r := range full.Results {
		out = append(out, providers.MAASResult{Name: bounded(plain(r.Name), 200), Status: r.Status, Output: scriptOutput(r.Output)})
	}
	return out, nil
}

// newestRun lists the runs without their output, which for ten runs would be
// tens of megabytes, and picks the last.
func (c *client) newestRun(ctx context.Context, systemID, resultType string) (*scriptSet, error) {
	var newest *scriptSet
	err := c.call(ctx, read("results"), func(s *session) error {
		var sets []scriptSet
		if err := s.get("", url.Values{"type": {resultType}}, &sets, "nodes", systemID, "results"); err != nil {
			return err
		}
		for i := range sets {
			if sets[i].ID <= 0 {
				return errors.New("a run has no id")
			}
			if newest == nil || sets[i].ID > newest.ID {
				newest = &sets[i]
			}
		}
		return nil
	})
	return newest, err
}

// scriptOutput decodes an output and keeps its end as text.
func scriptOutput(v string) string {
	data, err := base64.StdEncoding.DecodeString(v)
	if err != nil {
		data = []byte(v)
	}
	if strings.IndexByte(string(data), 0) >= 0 {
		return "(binary, " + strconv.Itoa(len(data)) + " bytes)"
	}
	if len(data) > maxOutput {
		data = data[len(data)-maxOutput:]
		for len(data) > 0 && !utf8.RuneStart(data[0]) {
			data = data[1:]
		}
	}
	// A replacement of one byte keeps the bound.
	return strings.ToValidUTF8(string(data), "?")
}
