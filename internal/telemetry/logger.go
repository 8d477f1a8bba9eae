// Package telemetry is how a Slipway process is watched: structured logs that
// hold no secrets, Prometheus metrics, and health and readiness answers.
package telemetry

import (
	"fmt"
	"io"
	"log/slog"

	"go.temporal.io/sdk/log"
)

// NewLogger returns a logger that writes to w at level (debug, info, warn, error) and above, as
// json or text. The values that r knows are replaced in every line; r must not be nil.
func NewLogger(w io.Writer, level, format string, r *Redactor) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("unknown log level %q: use debug, info, warn or error", level)
	}
	o := &slog.HandlerOptions{Level: l}
	out := &redactingWriter{to: w, redactor: r}
	switch format {
	case "json":
		return slog.New(&redactingHandler{next: slog.NewJSONHandler(out, o)}), nil
	case "text":
		return slog.New(&redactingHandler{next: slog.NewTextHandler(out, o)}), nil
	default:
		return nil, fmt.Errorf("unknown log format %q: use json or text", format)
	}
}

// TemporalLogger lets the Temporal SDK log through l.
func TemporalLogger(l *slog.Logger) log.Logger { return log.NewStructuredLogger(l) }
