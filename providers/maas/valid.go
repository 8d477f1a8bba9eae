package maas

import (
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// Patterns of what goes into a path or a parameter. gomaasclient escapes no
// path, so an id that is not one never gets that far.
var (
	systemIDForm = regexp.MustCompile(`^[0-9a-z]{6}$`)
	hostForm     = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$`)
	nameForm     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]{0,127}$`)
	tagForm      = regexp.MustCompile(`^[A-Za-z0-9_-]{1,256}$`)
	layoutForm   = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,31}$`)
	scriptsForm  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9 ._,/-]{0,999}$`)
	annKeyForm   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
)

func checkID(op, systemID string) error {
	if !systemIDForm.MatchString(systemID) {
		return invalid("maas."+op, "a MAAS system id is six digits or lower case letters")
	}
	return nil
}

// checkIDs checks a machine and the numbers of things that belong to it.
func checkIDs(op, systemID string, numbers ...int) error {
	if err := checkID(op, systemID); err != nil {
		return err
	}
	for _, n := range numbers {
		if n <= 0 {
			return invalid("maas."+op, "the number of a disk, interface, link or subnet must be positive, not "+strconv.Itoa(n))
		}
	}
	return nil
}

// checkNames checks optional names, given as pairs of the field's own word for
// the message and its value.
func checkNames(op string, pairs ...string) error {
	for i := 0; i+1 < len(pairs); i += 2 {
		if v := pairs[i+1]; v != "" && !nameForm.MatchString(v) {
			return invalid("maas."+op, "the "+pairs[i]+" holds characters that MAAS does not take")
		}
	}
	return nil
}

// hostLabel checks the first label of a host name.
func hostLabel(op, v string) error {
	if !hostForm.MatchString(v) {
		return invalid("maas."+op, "the host name must be one DNS label: letters, digits and hyphens, at most 63")
	}
	return nil
}

// macs normalises MAC addresses to lower case with colons, without repeats.
func macs(op string, in []string) ([]string, error) {
	if len(in) > 64 {
		return nil, invalid("maas."+op, "more than 64 MAC addresses for one machine")
	}
	seen := map[string]bool{}
	out := make([]string, 0, len(in))
	for _, m := range in {
		hw, err := net.ParseMAC(strings.TrimSpace(m))
		if err != nil || len(hw) != 6 {
			return nil, invalid("maas."+op, "a MAC address has six bytes, like 3c:ec:ef:00:00:01")
		}
		if s := hw.String(); !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out, nil
}

func checkIP(op, v string) error {
	if a, err := netip.ParseAddr(v); err != nil || a.Zone() != "" {
		return invalid("maas."+op, "the address must be an IPv4 or IPv6 address without prefix or zone")
	}
	return nil
}

// comment bounds a remark for MAAS's event log; it carries no meaning, so it
// is cut and not refused.
func comment(v string) string { return bounded(plain(v), 240) }

// printable reports whether v is a non-empty single line of at most n bytes.
func printable(v string, n int) bool {
	return v != "" && len(v) <= n && !strings.ContainsFunc(v, unicode.IsControl)
}
