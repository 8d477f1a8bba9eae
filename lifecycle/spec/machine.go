package spec

import (
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MachineSpec is what operators state about a machine of the API for automation.
type MachineSpec struct {
	SSHEndpoint      string   `json:"ssh_endpoint,omitempty"` // host:port
	BMCEndpoint      string   `json:"bmc_endpoint,omitempty"` // host, host:port or https://host:port
	TargetClusterRef string   `json:"target_cluster_ref,omitempty"`
	MACAddresses     []string `json:"mac_addresses,omitempty"`
	Provider         string   `json:"provider,omitempty"` // names the adapter that carries out runs
	Location         string   `json:"location,omitempty"`
	Rack             string   `json:"rack,omitempty"`
	Serial           string   `json:"serial,omitempty"`
	// Netplan is the network configuration that is kept for the machine, for the steps of a run
	// that state none.
	Netplan string `json:"netplan,omitempty"`
}

// The bounds of a machine.
const (
	MaxLabels      = 64
	maxLabelValue  = 256
	maxMACs        = 16
	maxEndpoint    = 255
	maxNetplan     = 4 << 10 // a list of machines shows it
	providerLabel  = "provider"
	plainNameChars = "A-Z, a-z, 0-9, '.', '_' and '-'"
)

var (
	machineID    = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)
	labelName    = regexp.MustCompile(`^[A-Za-z0-9._:/-]{1,128}$`)
	providerName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	netplanKeys  = regexp.MustCompile(`(?mi)(?:^|[\s,{\-"'])(password|client-key-password|psk|private|shared|private-key|ephemeral-key)["']?\s*:`)
	hostName     = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$`)
)

// ValidMachineID reports whether text can be the id of a machine, plan or cluster.
func ValidMachineID(text string) bool { return machineID.MatchString(text) }

// ValidSSHEndpoint reports whether text is host:port of an SSH server.
func ValidSSHEndpoint(text string) bool { return validEndpoint(text, true) }

// NetplanSecret returns the name of a field of a netplan document that holds a secret, "" for none.
// Secrets travel by reference, and a configuration of the network is shown.
func NetplanSecret(text string) string {
	if m := netplanKeys.FindStringSubmatch(text); m != nil {
		return strings.ToLower(m[1])
	}
	return ""
}

// NormalMachine returns the machine as it is kept: MAC addresses and serial in their usual form,
// and the provider from the label of that name where the specification states none. It returns an
// *InvalidError that lists everything that is wrong.
func NormalMachine(s MachineSpec, labels map[string]string) (MachineSpec, error) {
	var bad problems
	checkLabels(&bad, labels)
	if s.SSHEndpoint != "" && !validEndpoint(s.SSHEndpoint, true) {
		bad.add("spec.ssh_endpoint", "must be host:port")
	}
	if s.BMCEndpoint != "" && !validBMCEndpoint(s.BMCEndpoint) {
		bad.add("spec.bmc_endpoint", "must be host, host:port or https://host:port, without a login or a path")
	}
	if s.TargetClusterRef != "" && !ValidMachineID(s.TargetClusterRef) {
		bad.add("spec.target_cluster_ref", "must be at most 128 of "+plainNameChars)
	}
	switch field := NetplanSecret(s.Netplan); {
	case len(s.Netplan) > maxNetplan || !utf8.ValidString(s.Netplan) || strings.ContainsRune(s.Netplan, 0):
		bad.add("spec.netplan", "must be at most %d bytes of UTF-8 text without NUL", maxNetplan)
	case field != "":
		bad.add("spec.netplan", "must hold no secret such as %s: machines are shown", field)
	}
	s.MACAddresses = normalMACs(&bad, s.MACAddresses)
	if label := labels[providerLabel]; s.Provider == "" {
		s.Provider = label
	} else if label != "" && label != s.Provider {
		bad.add("spec.provider", "differs from the label provider; state one of them")
	}
	if s.Provider != "" && !providerName.MatchString(s.Provider) {
		bad.add("spec.provider", "must be 1 to 63 of a-z, 0-9 and '-'")
	}
	for field, text := range map[string]string{"spec.location": s.Location, "spec.rack": s.Rack} {
		if text != CleanText(text, MaxFact) {
			bad.add(field, "must be at most %d letters, digits, blanks and . _ : / + , ( ) @ = -", MaxFact)
		}
	}
	if serial := NormalSerial(s.Serial); s.Serial != "" && serial != strings.TrimSpace(s.Serial) {
		bad.add("spec.serial", "is no serial number; leave it empty where the machine has none")
	} else {
		s.Serial = serial
	}
	return s, bad.sorted().err()
}

// sorted returns the problems by field, since a map was walked.
func (p problems) sorted() problems {
	slices.SortStableFunc(p, func(a, b Invalid) int { return strings.Compare(a.Field, b.Field) })
	return p
}

func checkLabels(bad *problems, labels map[string]string) {
	if len(labels) > MaxLabels {
		bad.add("labels", "must be at most %d", MaxLabels)
		return
	}
	for name, value := range labels {
		switch {
		case !labelName.MatchString(name):
			bad.add("labels", "a name must be 1 to 128 of A-Z, a-z, 0-9, '.', '_', ':', '/' and '-'")
		case len(value) > maxLabelValue || !utf8.ValidString(value) || strings.ContainsFunc(value, unicode.IsControl):
			bad.add("labels."+name, "must be at most %d bytes of UTF-8 text without control characters", maxLabelValue)
		}
	}
}

// normalMACs returns each address once, in the usual form and sorted: a machine is found by them.
func normalMACs(bad *problems, addresses []string) []string {
	if len(addresses) > maxMACs {
		bad.add("spec.mac_addresses", "must be at most %d", maxMACs)
		return nil
	}
	var out []string
	for i, text := range addresses {
		mac, ok := NormalMAC(text)
		if !ok {
			bad.add("spec.mac_addresses["+strconv.Itoa(i)+"]", "is no address of a network card, such as 52:54:00:12:34:56")
			continue
		}
		out = append(out, mac)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// validEndpoint reports whether text is host:port, or, where no port is needed, a host.
func validEndpoint(text string, port bool) bool {
	if len(text) > maxEndpoint {
		return false
	}
	host, number, err := net.SplitHostPort(text)
	if err != nil && port {
		return false
	}
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")
	} else if n, nerr := strconv.ParseUint(number, 10, 16); nerr != nil || n == 0 {
		return false
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Zone() == "" && !ip.IsUnspecified() && !ip.IsMulticast()
	}
	return hostName.MatchString(host)
}

func validBMCEndpoint(text string) bool {
	rest, https := strings.CutPrefix(text, "https://")
	if !https {
		return validEndpoint(text, false)
	}
	u, err := url.Parse(text)
	return err == nil && u.User == nil && strings.Trim(u.Path, "/") == "" && u.RawQuery == "" && u.Fragment == "" &&
		validEndpoint(strings.TrimRight(rest, "/"), false)
}

// ChangedAccess lists the fields that say which machine it is and how it is reached, where they
// differ. Only an operator may change them, and not while a run is active; a changed SSH endpoint
// drops the pinned host key.
func (s MachineSpec) ChangedAccess(next MachineSpec) []string {
	var out []string
	for _, f := range []struct {
		name    string
		differs bool
	}{
		{"spec.ssh_endpoint", s.SSHEndpoint != next.SSHEndpoint}, {"spec.bmc_endpoint", s.BMCEndpoint != next.BMCEndpoint},
		{"spec.mac_addresses", !slices.Equal(s.MACAddresses, next.MACAddresses)}, {"spec.provider", s.Provider != next.Provider},
		{"spec.serial", s.Serial != next.Serial},
	} {
		if f.differs {
			out = append(out, f.name)
		}
	}
	return out
}

// NormalHostKey returns a pinned host key as it is kept: its type and the key, without a comment.
// An empty one stays empty.
func NormalHostKey(line string) (string, error) {
	if strings.TrimSpace(line) == "" {
		return "", nil
	}
	words := strings.Fields(line)
	key := strings.Join(words[:min(len(words), 2)], " ")
	if err := CheckTenantKey(key); err != nil {
		return "", &InvalidError{Fields: []Invalid{{Field: "ssh_host_key", Problem: err.Error()}}}
	}
	return key, nil
}
