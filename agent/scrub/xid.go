package scrub

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-cloud/slipway/agent/task"
)

// applicationXIDs are the errors of a GPU that a program causes by its own mistake and that end
// with it. Every other number keeps the node from service, also one that is not known here: drivers
// get new ones with each branch. Source: NVIDIA, "XID Errors" of the GPU deployment documents,
// branch R580, table of immediate actions (RESTART_APP); read in November 2026.
func applicationXIDs() []int {
	return []int{
		13, // graphics engine exception
		31, // memory page fault
		43, // the GPU stopped a program's work
		45, // clean-up after a program that ended
	}
}

var (
	// driverLine is a line of the NVIDIA drivers in the kernel's log; other drivers have an "xid"
	// too.
	driverLine = regexp.MustCompile(`NVRM:|nvidia-nvswitch|nvidia-nvlink|\bSXid\b`)
	xidWord    = regexp.MustCompile(`\bS?Xid\b`)
	xidLine    = regexp.MustCompile(`\b(S?Xid)\s*\(([^)]*)\)\s*:\s*(\d+)`)
	fatalWord  = regexp.MustCompile(`(?i)\bfatal\b`)
	nonFatal   = regexp.MustCompile(`(?i)\bnon-?\s?fatal\b`)
)

// parseXIDs finds the errors in the kernel's log that keep a node from service: each XID that no
// program's mistake explains, each SXid (an error of an NVSwitch), each line in which the driver
// itself says fatal, and an error whose number cannot be read.
func parseXIDs(log []byte) []string {
	var out []string
	for line := range strings.Lines(string(log)) {
		if !driverLine.MatchString(line) {
			continue
		}
		fatal := fatalWord.MatchString(nonFatal.ReplaceAllString(line, ""))
		m := xidLine.FindStringSubmatch(line)
		switch {
		case m != nil:
			name := map[string]string{"Xid": "XID"}[m[1]]
			n, err := strconv.Atoi(m[3])
			if name == "" || fatal || err != nil || !slices.Contains(applicationXIDs(), n) {
				out = append(out, fmt.Sprintf("%s %s at %s", cmp.Or(name, m[1]), task.Clip(m[3], 10), task.Clip(m[2], 40)))
			}
		case fatal || xidWord.MatchString(line):
			out = append(out, "an error whose number cannot be read: "+task.Clip(line, 120))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
