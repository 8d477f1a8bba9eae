package privileged

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/agent/task"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// The bounds of a line each way.
const (
	maxRequest = 1 << 20
	maxAnswer  = 16 << 20 // all open results at once
	writeTime  = 10 * time.Second
)

// operation is what a request asks for.
type operation string

const (
	opPending     operation = "pending"
	opExecute     operation = "execute"
	opAcknowledge operation = "acknowledge"
	opDrop        operation = "drop"
	opTrust       operation = "trust"
	opHealthy     operation = "healthy"
	opInService   operation = "in_service"
	opMounts      operation = "mounts"
)

// request is a line to the privileged process. After one that executes come
// lines that halt or answer a fetch.
type request struct {
	Op         operation            `json:"op,omitempty"`
	Signed     *protocol.SignedTask `json:"signed,omitempty"`
	Generation int64                `json:"generation,omitempty"`
	TaskID     string               `json:"task_id,omitempty"`
	Keys       []protocol.TaskKey   `json:"keys,omitempty"`
	Version    string               `json:"version,omitempty"`

	Halt    bool     `json:"halt,omitempty"`
	Fetched *fetched `json:"fetched,omitempty"`
}

type fetched struct {
	Path  string `json:"path,omitempty"`
	Error string `json:"error,omitempty"`
}

// answer is a line back; the last one has Final. Version is of the privileged
// process.
type answer struct {
	Final    bool                  `json:"final,omitempty"`
	Mounts   []spec.MountReport    `json:"mounts,omitempty"`
	Version  string                `json:"version,omitempty"`
	Mark     string                `json:"mark,omitempty"`
	Progress string                `json:"progress,omitempty"`
	Fetch    *task.File            `json:"fetch,omitempty"`
	Result   *lifecycle.TaskResult `json:"result,omitempty"`
	Pending  []task.Entry          `json:"pending,omitempty"`
	Code     string                `json:"code,omitempty"` // of an error
	Error    string                `json:"error,omitempty"`
}

// coded are the errors that have a meaning on both sides.
func coded() map[string]error {
	return map[string]error{
		"restart": task.ErrRestart, "uninstalled": task.ErrUninstalled, "interrupted": task.ErrInterrupted,
		"forgotten": task.ErrForgotten, "busy": task.ErrBusy, "journal_full": task.ErrJournalFull,
	}
}

func (a *answer) fail(err error) {
	a.Code, a.Error = "other", err.Error()
	for code, known := range coded() {
		if errors.Is(err, known) {
			a.Code = code
		}
	}
}

func (a *answer) err() error {
	if a.Code == "" {
		return nil
	}
	if known := coded()[a.Code]; known != nil {
		return known
	}
	return fmt.Errorf("the privileged process: %s", a.Error)
}

// line is a connection of bounded lines. Writing is safe for concurrent use.
type line struct {
	conn net.Conn
	in   *bufio.Reader
	most int

	mu sync.Mutex
}

func newLine(c net.Conn, most int) *line { return &line{conn: c, in: bufio.NewReader(c), most: most} }

func (l *line) write(v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.conn.SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
		return err
	}
	_, err = l.conn.Write(append(raw, '\n'))
	return err
}

var errTooLong = errors.New("a line on the socket is too long")

func (l *line) read(into any) error {
	var raw []byte
	for {
		part, err := l.in.ReadSlice('\n')
		raw = append(raw, part...)
		switch {
		case len(raw) > l.most:
			return errTooLong
		case err == nil:
			return json.Unmarshal(raw, into)
		case !errors.Is(err, bufio.ErrBufferFull):
			if errors.Is(err, io.EOF) && len(raw) > 0 {
				return io.ErrUnexpectedEOF
			}
			return err
		}
	}
}
