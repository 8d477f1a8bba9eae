package temporal

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	tailOfLog    = 4 << 10 // bytes of the server's log that an error quotes
	maxReadyLine = 64 << 10
)

var errEndedEarly = errors.New("the Temporal server ended while starting")

// readiness is what the program prints behind the word ready; see dev/cmd/devtemporal.
type readiness struct {
	Frontend string `json:"frontend"`
	UI       string `json:"ui"`
}

// child is one run of the program. cmd holds the writing end of its standard input: when we die the
// kernel closes it, and the program ends.
type child struct {
	cmd  *exec.Cmd
	done chan struct{}
	log  *logTail
}

// startChild runs the program and waits for its ready line, until ctx ends.
func startChild(ctx context.Context, opts Options) (*child, readiness, error) {
	cmd := exec.Command(opts.Binary, arguments(opts)...)  //nolint:forbidigo // outlives this call; stop, kill or our own death ends it
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C in a terminal reaches us first, and we stop it in order
	cmd.WaitDelay = time.Second
	c := &child{cmd: cmd, done: make(chan struct{}), log: &logTail{also: opts.Log}}
	cmd.Stderr = c.log
	if _, err := cmd.StdinPipe(); err != nil { // never written to, and closed by Wait
		return nil, readiness{}, fmt.Errorf("start Temporal: %w", err)
	}
	out, outWriter, err := os.Pipe()
	if err != nil {
		return nil, readiness{}, fmt.Errorf("start Temporal: %w", err)
	}
	cmd.Stdout = outWriter
	if err := cmd.Start(); err != nil {
		return nil, readiness{}, errors.Join(fmt.Errorf("start Temporal: %w", err), out.Close(), outWriter.Close())
	}
	_ = outWriter.Close() // the child holds its own
	go func() {
		_ = cmd.Wait() // its log says why it ended
		close(c.done)
	}()
	ready, err := awaitReady(ctx, out, c)
	if err != nil {
		return nil, readiness{}, errors.Join(err, c.kill(context.WithoutCancel(ctx)))
	}
	return c, ready, nil
}

func arguments(opts Options) []string {
	args := []string{
		"--exit-on-stdin-close",
		"--frontend-port", strconv.Itoa(opts.FrontendPort),
		"--ui-port", strconv.Itoa(opts.UIPort),
		"--ready-within", startLimit.String(),
	}
	if opts.DB != "" {
		args = append(args, "--db", opts.DB)
	}
	for _, name := range opts.Namespaces {
		args = append(args, "--namespace", name)
	}
	for _, name := range slices.Sorted(maps.Keys(opts.SearchAttributes)) {
		args = append(args, "--search-attribute", name+"="+opts.SearchAttributes[name])
	}
	return args
}

func awaitReady(ctx context.Context, out io.ReadCloser, c *child) (readiness, error) {
	line := make(chan string, 1)
	go func() {
		defer func() { _ = out.Close() }()
		text, _ := bufio.NewReader(io.LimitReader(out, maxReadyLine)).ReadString('\n')
		line <- text
	}()
	select {
	case <-ctx.Done():
		return readiness{}, fmt.Errorf("wait for Temporal to serve: %w; its log says:\n%s", ctx.Err(), c.log)
	case text := <-line:
		document, ok := strings.CutPrefix(strings.TrimSpace(text), "ready ")
		if !ok {
			<-waitShort(c.done) // so that its last words are in the log
			return readiness{}, fmt.Errorf("%w; its log says:\n%s", errEndedEarly, c.log)
		}
		var ready readiness
		if err := json.Unmarshal([]byte(document), &ready); err != nil {
			return readiness{}, fmt.Errorf("read the ready line of Temporal: %w", err)
		}
		return ready, nil
	}
}

// waitShort is closed when done is, or after two seconds.
func waitShort(done <-chan struct{}) <-chan struct{} {
	short := make(chan struct{})
	go func() {
		defer close(short)
		select {
		case <-done:
		case <-time.After(2 * time.Second):
		}
	}()
	return short
}

func (c *child) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

func (c *child) stop(ctx context.Context) error {
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop Temporal: %w", err)
	}
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
	defer cancel()
	return c.kill(last)
}

func (c *child) kill(ctx context.Context) error {
	if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill Temporal: %w", err)
	}
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for Temporal to end: %w", ctx.Err())
	}
}

func portOf(address string) (int, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return 0, fmt.Errorf("the address that Temporal printed: %w", err)
	}
	return strconv.Atoi(port)
}

// logTail keeps the end of what is written to it, and passes everything on.
type logTail struct {
	mu   sync.Mutex
	end  []byte
	also io.Writer
}

func (l *logTail) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end = append(l.end, p...)
	if extra := len(l.end) - tailOfLog; extra > 0 {
		l.end = slices.Delete(l.end, 0, extra)
	}
	if l.also != nil {
		_, _ = l.also.Write(p) // a broken log must not stop the server
	}
	return len(p), nil
}

func (l *logTail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.end) == 0 {
		return "(nothing)"
	}
	return strings.TrimSpace(string(l.end))
}
