package spec

import (
	"regexp"
	"slices"
	"strings"
)

// A marker is a text that firmware shows in the place of a serial number or a UUID. Many machines
// show the same one, so it tells none from another.
type marker struct {
	text   string
	source string // the public report or list that names it
	date   string // when it was taken from there
}

const (
	fromBefore    = "the lists that Slipway's agent and MAAS client had"
	fromNICo      = "NVIDIA/infra-controller, report 1017"
	fromInstaller = "openshift/assisted-installer-agent, report 354"
	fromXCAT      = "xcat2/xcat-core, report 2296"
	fromOSQuery   = "osquery/osquery, report 4374; oshi/oshi, report 2417"
	fromCrowbar   = "crowbar/barclamp-nova, report 317"
	fromFreeBSD   = "FreeBSD, libexec/rc/rc.d/hostid"
)

// noSerials returns the texts that stand for no serial number, in small letters and without what is
// neither a letter nor a digit. NormalSerial has rules for rows of one character and for rows of
// digits that count on. A migration blanks what is stored already when a text is added.
func noSerials() []marker {
	return []marker{
		{"none", fromBefore, "2026-11-30"},
		{"na", fromNICo, "2026-11-30"},
		{"unknown", fromBefore, "2026-11-30"},
		{"notspecified", fromBefore, "2026-11-30"},
		{"notapplicable", fromBefore, "2026-11-30"},
		{"notavailable", fromInstaller, "2026-11-30"},
		{"null", fromBefore, "2026-11-30"},
		{"nil", fromInstaller, "2026-11-30"},
		{"empty", fromXCAT, "2026-11-30"},
		{"blank", fromXCAT, "2026-11-30"},
		{"oem", fromBefore, "2026-11-30"},
		{"invalid", fromBefore, "2026-11-30"},
		{"undefined", fromInstaller, "2026-11-30"},
		{"unspecified", fromInstaller, "2026-11-30"},
		{"default", fromBefore, "2026-11-30"},
		{"defaultstring", fromBefore, "2026-11-30"},
		{"notset", fromInstaller, "2026-11-30"},
		{"notsettable", fromCrowbar, "2026-11-30"},
		{"notpresent", fromInstaller, "2026-11-30"},
		{"notprovided", fromInstaller, "2026-11-30"},
		{"tbd", fromInstaller, "2026-11-30"},
		{"tobefilled", fromBefore, "2026-11-30"},
		{"tobefilledbyoem", fromBefore, "2026-11-30"},
		{"tobefilledbyoemserialnumber", fromInstaller, "2026-11-30"},
		{"filledbyoem", fromInstaller, "2026-11-30"},
		{"serial", fromInstaller, "2026-11-30"},
		{"serialnumber", fromBefore, "2026-11-30"},
		{"noserialnumber", fromInstaller, "2026-11-30"},
		{"systemserialnumber", fromBefore, "2026-11-30"},
		{"productserialnumber", fromXCAT, "2026-11-30"},
		{"baseboardserialnumber", fromBefore, "2026-11-30"},
		{"boardserialnumber", fromBefore, "2026-11-30"},
		{"mbserialnumber", fromXCAT, "2026-11-30"},
		{"chassisserialnumber", fromXCAT, "2026-11-30"},
		{"01234567890123456789", fromBefore, "2026-11-30"},
	}
}

// noUUIDs returns the UUIDs that stand for none, in small letters and in one of the two byte
// orders. NormalUUID has a rule for rows of one byte.
func noUUIDs() []marker {
	return []marker{
		{"03000200-0400-0500-0006-000700080009", fromOSQuery, "2026-11-30"},
		{"12345678-1234-5678-90ab-cddeefaabbcc", fromCrowbar, "2026-11-30"},
		{"07090201-0103-0301-0807-060504030201", fromFreeBSD, "2026-11-30"},
		{"11111111-2222-3333-4444-555555555555", fromFreeBSD, "2026-11-30"},
		{"4c4c4544-0000-2010-8020-80c04f202020", fromFreeBSD, "2026-11-30"}, // a Dell without a service tag
		{"890e2d14-cacd-45d1-ae66-bc80e8bfeb0f", fromFreeBSD, "2026-11-30"},
		{"8e275844-178f-44a8-aceb-a7d7e5178c63", fromFreeBSD, "2026-11-30"},
		{"dc698397-fa54-4cf2-82c8-b1b5307a6a7f", fromFreeBSD, "2026-11-30"},
	}
}

// NormalSerial returns a serial number as it is kept and compared, whoever names it: cleaned, and
// "" for what firmware says of a machine that was given none.
func NormalSerial(text string) string {
	s := CleanText(text, MaxFact)
	bare := bareText(s)
	if bare == "" || strings.Trim(bare, bare[:1]) == "" || countsOn(bare) || isMarker(noSerials(), bare) {
		return ""
	}
	return s
}

// SameSerial reports whether two serial numbers are those of one machine.
func SameSerial(a, b string) bool {
	a, b = NormalSerial(a), NormalSerial(b)
	return a != "" && strings.EqualFold(a, b)
}

// bareText returns the letters and digits of a text, the letters small.
func bareText(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, strings.ToLower(text))
}

// countsOn reports a row of at least five digits each of which is one more than the one before.
func countsOn(bare string) bool {
	const least = 5
	for i := range bare {
		if bare[i] < '0' || bare[i] > '9' || i > 0 && (bare[i-1]-'0'+1)%10 != bare[i]-'0' {
			return false
		}
	}
	return len(bare) >= least
}

// IdentifiesNothing lists the texts of both tables, for the test that compares them with what a
// migration blanks.
func IdentifiesNothing() []string {
	var out []string
	for _, m := range slices.Concat(noSerials(), noUUIDs()) {
		out = append(out, m.text)
	}
	return out
}

func isMarker(list []marker, text string) bool {
	return slices.ContainsFunc(list, func(m marker) bool { return m.text == text })
}

var systemUUID = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// NormalUUID returns a system UUID in lower case. It returns false for what is none, and for the
// values that vendors leave in: nothing is identified by them.
func NormalUUID(text string) (string, bool) {
	uuid := strings.ToLower(strings.TrimSpace(text))
	if !systemUUID.MatchString(uuid) {
		return "", false
	}
	digits := strings.ReplaceAll(uuid, "-", "")
	oneByte := strings.Repeat(digits[:2], len(digits)/2) == digits
	fixedEnd := strings.HasSuffix(uuid, "-ffff-ffff-ffff-ffffffffffff")
	if oneByte || fixedEnd || isMarker(noUUIDs(), uuid) || isMarker(noUUIDs(), swapped(uuid)) {
		return "", false
	}
	return uuid, true
}

// SameUUID reports whether two system UUIDs are those of one machine. Some firmware gives the first
// three fields in the other byte order.
func SameUUID(a, b string) bool {
	a, okA := NormalUUID(a)
	b, okB := NormalUUID(b)
	return okA && okB && (a == b || swapped(a) == b)
}

// SwappedUUID returns a system UUID as firmware gives it that has the first three fields in the
// other byte order. It returns false for what is no UUID, and where both are the same.
func SwappedUUID(u string) (string, bool) {
	u, ok := NormalUUID(u)
	if !ok || swapped(u) == u {
		return "", false
	}
	return swapped(u), true
}

// swapped returns a UUID with its first three fields in the other byte order.
func swapped(u string) string {
	return u[6:8] + u[4:6] + u[2:4] + u[0:2] + "-" + u[11:13] + u[9:11] + "-" + u[16:18] + u[14:16] + u[18:]
}

// MachineKeys are the facts by which one machine is told from another. MACs have colons.
type MachineKeys struct {
	Serial, UUID string
	MACs         []string
}

// The keys, as findings and messages name them.
const (
	KeySerial = "serial number"
	KeyUUID   = "hardware UUID"
	KeyMAC    = "MAC address"
)

// Normal returns the keys as they are stored: a value that identifies nothing is "".
func (k MachineKeys) Normal() MachineKeys {
	k.Serial = NormalSerial(k.Serial)
	k.UUID, _ = NormalUUID(k.UUID)
	macs := make([]string, 0, len(k.MACs))
	for _, mac := range k.MACs {
		macs = append(macs, strings.ToLower(mac))
	}
	k.MACs = macs
	return k
}

// Likeness says which keys of two machines are the same, and which differ. A key that one of them
// does not tell is in neither list.
type Likeness struct{ Same, Differ []string }

// Compare returns which keys two machines have in common. Sets of MAC addresses are the same when
// they share one.
func (k MachineKeys) Compare(o MachineKeys) Likeness {
	k, o = k.Normal(), o.Normal()
	var l Likeness
	put := func(key string, known, same bool) {
		switch {
		case !known:
		case same:
			l.Same = append(l.Same, key)
		default:
			l.Differ = append(l.Differ, key)
		}
	}
	put(KeySerial, k.Serial != "" && o.Serial != "", SameSerial(k.Serial, o.Serial))
	put(KeyUUID, k.UUID != "" && o.UUID != "", SameUUID(k.UUID, o.UUID))
	put(KeyMAC, len(k.MACs) > 0 && len(o.MACs) > 0, slices.ContainsFunc(k.MACs, func(mac string) bool { return slices.Contains(o.MACs, mac) }))
	return l
}

// SameMachine reports that two keys are the same and that none differs. One key alone joins no two
// machines: vendors give serial numbers and UUIDs twice, and cards move.
func (l Likeness) SameMachine() bool {
	const enough = 2
	return len(l.Same) >= enough && len(l.Differ) == 0
}
