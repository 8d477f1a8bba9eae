package nodework

import (
	"os"
	"strconv"
	"strings"
)

// account is a line of passwd.
type account struct {
	name string
	uid  int
	home string
}

func (h Host) accounts() ([]account, error) {
	raw, err := h.read("/etc/passwd")
	if err != nil {
		return nil, err
	}
	var out []account
	for line := range strings.Lines(string(raw)) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) < 7 {
			continue
		}
		if uid, err := strconv.Atoi(f[2]); err == nil {
			out = append(out, account{f[0], uid, f[5]})
		}
	}
	return out, nil
}

// kept are the uids that are never touched: the platform's accounts and whoever
// runs this program.
func (h Host) kept() ([]int, error) {
	all, err := h.accounts()
	if err != nil {
		return nil, err
	}
	out := []int{os.Geteuid()}
	for _, a := range all {
		if a.name == AgentUser || contains(h.KeepUsers, a.name) {
			out = append(out, a.uid)
		}
	}
	return out, nil
}

func contains(list []string, s string) bool {
	for _, l := range list {
		if l == s {
			return true
		}
	}
	return false
}
