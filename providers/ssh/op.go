package ssh

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	_ "embed" // op.sh
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/slipway-cloud/slipway/providers"
)

// opScript is what runs on the node; it says itself how it works.
//
//go:embed op.sh
var opText string

// ownerText stands before op.sh and follow.sh.
//
//go:embed owner.sh
var ownerText string

// followText is what a reader of an operation's output runs on the node.
//
//go:embed follow.sh
var followText string

var opScript = ownerText + opText

// operation is one run of the wrapper.
//
// The folder of an operation stays on the node: removing it would let the
// operation run again. It ends with the node's own disk, at release.
type operation struct {
	id     string
	digest string // of the command
	mark   string // random, so that words of a login script are not taken for the answer
}

// headerRoom is what may stand before the kept output: the answer line and what
// a login script prints ahead of it.
const headerRoom = 8 << 10

// prepareOp makes the line that runs c, and then shows as much of its output as is kept.
func (r *Runner) prepareOp(cmd command, c providers.SSHCommand) (command, error) {
	return r.prepareShown(cmd, c, cmd.maxOutput+1)
}

// prepareShown makes the line that runs c, and then shows so many bytes of its output.
func (r *Runner) prepareShown(cmd command, c providers.SSHCommand, show int) (command, error) {
	if !providers.ValidOpID(c.OpID) {
		return cmd, failure(providers.KindInvalid, opRun, nil,
			"an operation id is a letter or digit and then at most 127 letters, digits or any of _ . : -")
	}
	if !path.IsAbs(r.stateDir) {
		return cmd, failure(providers.KindInvalid, opRun, nil, "the folder for operation results must be an absolute path")
	}
	mark, err := newMark()
	if err != nil {
		return cmd, err
	}
	cmd.op = &operation{id: c.OpID, digest: digest(c), mark: mark}
	cmd.keep = show + headerRoom
	cmd.line = quote(append([]string{
		"sh", "-c", opScript, "slipway-op",
		path.Clean(r.stateDir), c.OpID, seconds(cmd.timeout), seconds(killAfter),
		strconv.Itoa(cmd.maxOutput), strconv.Itoa(show), strconv.Itoa(len(c.Stdin)), cmd.op.digest, cmd.op.mark,
	}, c.Argv...))
	return cmd, nil
}

// newMark returns a word that no login script writes.
func newMark() (string, error) {
	random := make([]byte, 16)
	if _, err := rand.Read(random); err != nil {
		return "", failure(providers.KindUnavailable, opRun, err, "the system gives no random numbers")
	}
	return "slipway-op-" + hex.EncodeToString(random), nil
}

// digest tells whether an operation id is used again for another command.
func digest(c providers.SSHCommand) string {
	h := sha256.New()
	part := func(b []byte) {
		_ = binary.Write(h, binary.BigEndian, uint64(len(b))) // a hash never fails to write
		h.Write(b)
	}
	part(binary.BigEndian.AppendUint64(nil, uint64(len(c.Argv))))
	for _, w := range c.Argv {
		part([]byte(w))
	}
	part(c.Stdin)
	return hex.EncodeToString(h.Sum(nil))
}

// answer is the wrapper's line.
type answer struct {
	state       string
	rc          int
	outN, errN  int
	stillOpened int
}

// parse reads the wrapper's answer out of what came back.
func (o *operation) parse(out outcome, maxOutput int) (providers.SSHResult, error) {
	a, body, err := o.answer(out)
	if err != nil {
		return providers.SSHResult{}, err
	}
	stderr, _ := out.stderr.take()
	// The kept error output stands last: a login script may have written before it.
	stderr = stderr[max(0, len(stderr)-min(a.errN, maxOutput+1)):]
	return providers.SSHResult{
		ExitCode:  a.rc,
		Stdout:    body[:min(len(body), maxOutput)],
		Stderr:    stderr[:min(len(stderr), maxOutput)],
		Truncated: a.outN > maxOutput || a.errN > maxOutput || a.stillOpened != 0 || out.cutShort,
	}, nil
}

// answer reads the wrapper's answer of an operation that is done, and what follows it.
func (o *operation) answer(out outcome) (answer, []byte, error) {
	stdout, _ := out.stdout.take()
	a, body, ok := o.split(stdout)
	if !ok {
		return answer{}, nil, failure(providers.KindUncertain, opRun, nil,
			"the node gave no account of operation %s (exit status %d); it needs sh, coreutils and /proc", o.id, out.exitCode)
	}
	if a.state != "done" {
		return answer{}, nil, o.refusal(a.state)
	}
	return a, body, nil
}

// split finds the answer line and returns what follows it.
func (o *operation) split(stdout []byte) (a answer, body []byte, ok bool) {
	_, rest, found := bytes.Cut(stdout, []byte(o.mark+" "))
	line, body, ended := bytes.Cut(rest, []byte("\n"))
	if !found || !ended {
		return a, nil, false
	}
	n, err := fmt.Fscan(strings.NewReader(string(line)), &a.state, &a.rc, &a.outN, &a.errN, &a.stillOpened)
	return a, body, err == nil && n == 5 && a.outN >= 0 && a.errN >= 0
}

func (o *operation) refusal(state string) error {
	switch state {
	case "running":
		return failure(providers.KindBusy, opRun, nil,
			"operation %s is still running on the node; repeat it with the same id to get its result", o.id)
	case "lost":
		return failure(providers.KindUncertain, opRun, nil,
			"operation %s began on the node and left no result (killed, or the node restarted); look at the node, then use a new id", o.id)
	case "conflict":
		return failure(providers.KindInvalid, opRun, nil,
			"operation id %s was used on this node for another command; use a new id", o.id)
	case "nostate":
		return failure(providers.KindStateConflict, opRun, nil,
			"the node cannot keep the result of operation %s; make the folder writable for the login user and free disk space", o.id)
	case "noinput":
		return failure(providers.KindUnreachable, opRun, nil,
			"the input of operation %s did not arrive whole; nothing was run", o.id)
	default:
		return failure(providers.KindProtocol, opRun, nil, "the node's answer for operation %s cannot be read", o.id)
	}
}
