package ssh

import (
	"strconv"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/providers"
)

const opRun = "ssh.run"

// exitTimeout and exitKilled are what timeout(1) answers when the time was up:
// the second when SIGTERM did not suffice.
const (
	exitTimeout = 124
	exitKilled  = 137
)

// command is a checked SSHCommand in the form that goes over the wire.
type command struct {
	line      string // what the login shell gets
	stdin     []byte
	timeout   time.Duration
	maxOutput int // bytes of each stream the caller wants
	keep      int // bytes of each stream to keep while reading
	op        *operation
}

// prepare checks c and fills in the defaults.
func (r *Runner) prepare(c providers.SSHCommand) (command, error) {
	cmd := command{stdin: c.Stdin, timeout: c.Timeout, maxOutput: c.MaxOutput}
	switch {
	case len(c.Argv) == 0 || c.Argv[0] == "":
		return cmd, failure(providers.KindInvalid, opRun, nil, "the command is empty")
	case strings.ContainsRune(strings.Join(c.Argv, ""), 0):
		return cmd, failure(providers.KindInvalid, opRun, nil, "a word of the command holds a NUL byte")
	case c.Timeout < 0 || c.Timeout > maxTimeout:
		return cmd, failure(providers.KindInvalid, opRun, nil, "the command's time limit must lie between 0 and %s", maxTimeout)
	case c.MaxOutput < 0 || c.MaxOutput > maxOutputCap:
		return cmd, failure(providers.KindInvalid, opRun, nil, "the command's output limit must lie between 0 and %d bytes", maxOutputCap)
	}
	if cmd.timeout == 0 {
		cmd.timeout = defaultTimeout
	}
	if cmd.maxOutput == 0 {
		cmd.maxOutput = defaultMaxOutput
	}
	cmd.keep = cmd.maxOutput
	if c.OpID == "" {
		cmd.line = quote(append([]string{"timeout", "-k", seconds(killAfter), seconds(cmd.timeout)}, c.Argv...))
		return cmd, nil
	}
	return r.prepareOp(cmd, c)
}

// seconds rounds up to whole seconds: not every timeout(1) takes fractions.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}

// quote makes one shell line in which every word stands for itself.
func quote(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}
