package chaos

import (
	"bytes"
	"io"
	"regexp"
	"sync"
)

// logCapture forwards the product's log and keeps, by job, the last lines that tell of problems: a
// finding is worth little without what the product said then. The workers' processes write into it
// too.
type logCapture struct {
	to io.Writer // nil drops

	mu   sync.Mutex
	said map[string][]string // by job id
	rest []byte              // of an unfinished line
}

const (
	linesOfJob  = 8
	longestLine = 600
	longestRest = 64 << 10
)

var (
	aJob     = regexp.MustCompile(`job_[0-9a-f-]{36}`)
	aTrouble = regexp.MustCompile(`level=(WARN|ERROR)|"level":"(WARN|ERROR)"`)
)

// Write implements io.Writer; it takes any part of a line.
func (d *logCapture) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.to != nil {
		_, _ = d.to.Write(p)
	}
	d.rest = append(d.rest, p...)
	for {
		line, rest, whole := bytes.Cut(d.rest, []byte("\n"))
		if !whole {
			break
		}
		d.note(line)
		d.rest = append([]byte(nil), rest...)
	}
	if len(d.rest) > longestRest {
		d.rest = nil
	}
	return len(p), nil
}

// note keeps a line of a job; what the harness itself does to a job
// is no news.
func (d *logCapture) note(line []byte) {
	id := aJob.Find(line)
	if id == nil || !aTrouble.Match(line) || bytes.Contains(line, []byte("chaos:")) {
		return
	}
	if d.said == nil {
		d.said = map[string][]string{}
	}
	kept := append(d.said[string(id)], string(line[:min(len(line), longestLine)]))
	d.said[string(id)] = kept[max(0, len(kept)-linesOfJob):]
}

// of lists what was kept of a job, oldest first.
func (d *logCapture) of(jobID string) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string(nil), d.said[jobID]...)
}
