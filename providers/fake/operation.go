package fake

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/slipway-cloud/slipway/providers"
)

// The exit statuses that a shell uses too.
const (
	exitTimeout    = 124
	exitUnknown    = 127
	exitKilled     = 137
	exitTerminated = 143
)

// operation is one script on one machine.
type operation struct {
	id, script string
	command    providers.RemoteCommand
	lost       chan struct{} // closed when the machine loses it
	stopped    chan struct{} // closed when it is to end

	mu        sync.Mutex
	kept      map[string][]byte // by stream
	truncated bool
	ended     bool
	exit      int
	changed   chan struct{} // closed at each change
}

func newOperation(c providers.RemoteCommand) *operation {
	return &operation{
		id: c.OpID, script: c.Script, command: c,
		lost: make(chan struct{}), stopped: make(chan struct{}), kept: map[string][]byte{}, changed: make(chan struct{}),
	}
}

// run does what the script says.
func (o *operation) run(released <-chan struct{}, count func(), join func(argument string) (string, int)) {
	lines := strings.Split(strings.TrimRight(o.script, "\n"), "\n")
	if lines[0] != "#fake" {
		o.write(providers.StreamStdout, []byte("simulated: nothing was run\n"))
		o.end(0)
		return
	}
	passed, stop := after(o.command.Timeout)
	defer stop()
	for i, line := range lines[1:] {
		word, argument, _ := strings.Cut(line, " ")
		text, _ := strconv.Unquote(argument)
		number, _ := strconv.Atoi(argument)
		switch word {
		case "count":
			count()
		case "stdout", "stderr":
			o.write(word, []byte(text))
		case "flood":
			o.flood(number)
		case "wait":
			select {
			case <-released:
				o.write(providers.StreamStdout, []byte("late"))
			case <-passed:
				o.end(exitTimeout)
				return
			case <-o.stopped:
				o.end(exitTerminated)
				return
			case <-o.lost:
				return
			}
		case "hang":
			select {
			case <-passed:
				o.end(exitTimeout)
			case <-o.stopped:
				o.end(exitKilled)
			case <-o.lost:
			}
			return
		case "join":
			says, exit := join(argument)
			o.write(providers.StreamStdout, []byte(says))
			o.end(exit)
			return
		case "exit":
			o.end(number)
			return
		default:
			o.write(providers.StreamStderr, fmt.Appendf(nil, "line %d is not known\n", i+2))
			o.end(exitUnknown)
			return
		}
	}
	o.end(0)
}

func (o *operation) flood(n int) {
	part := bytes.Repeat([]byte("x"), chunkSize)
	for n > 0 {
		o.write(providers.StreamStdout, part[:min(n, len(part))])
		n -= len(part)
	}
}

// write keeps output up to the command's bound.
func (o *operation) write(stream string, data []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if room := o.command.KeptOutput() - int64(len(o.kept[stream])); int64(len(data)) > room {
		data, o.truncated = data[:room], true
	}
	o.kept[stream] = append(o.kept[stream], data...)
	o.announce()
}

func (o *operation) end(exit int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.ended {
		o.ended, o.exit = true, exit
		o.announce()
	}
}

// lose ends an operation that has not ended, without a result.
func (o *operation) lose() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.ended {
		o.ended = true
		close(o.lost)
		o.announce()
	}
}

// stop asks the script to end.
func (o *operation) stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !isClosed(o.stopped) {
		close(o.stopped)
	}
}

// announce wakes who waits for a change. The caller holds the lock.
func (o *operation) announce() {
	close(o.changed)
	o.changed = make(chan struct{})
}

// state returns a channel that is closed at the next change, and whether the operation has ended.
func (o *operation) state() (changed <-chan struct{}, ended bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.changed, o.ended
}

// read returns at most limit bytes of a stream from an offset.
func (o *operation) read(stream string, from int64, limit int) []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	kept := o.kept[stream]
	if from >= int64(len(kept)) {
		return nil
	}
	return slices.Clone(kept[from:min(int64(len(kept)), from+int64(limit))])
}

// result returns how an ended operation ended.
func (o *operation) result() (providers.RemoteResult, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if isClosed(o.lost) {
		return providers.RemoteResult{}, lostError(o.id)
	}
	return providers.RemoteResult{
		ExitCode: o.exit, Truncated: o.truncated,
		Output: providers.RemoteOffsets{Stdout: int64(len(o.kept[providers.StreamStdout])), Stderr: int64(len(o.kept[providers.StreamStderr]))},
	}, nil
}
