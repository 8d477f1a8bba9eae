package runplan

import (
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// The bounds of a plan.
const (
	MaxSteps          = 32
	MaxDisplayName    = 128
	MaxCommand        = 64 << 10
	MaxNetplan        = 64 << 10
	MaxTimeoutSeconds = 86_400
	MaxRetries        = 10

	minConfirmSeconds, maxConfirmSeconds = 120, 1800
	defaultConfirm                       = 3 * time.Minute
	// confirmSlack is how much longer than the time for the confirmation a step takes that finds
	// out what became of the change.
	confirmSlack = 4 * time.Minute

	maxPlanBytes = 1 << 20
)

var (
	validName    = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	validImage   = regexp.MustCompile(`^[a-z0-9][a-z0-9._/-]{0,127}$`)
	validKubelet = regexp.MustCompile(`^v1\.[0-9]{1,3}\.[0-9]{1,3}$`)
	validTicket  = regexp.MustCompile(`^[A-Za-z0-9._/#-]{0,64}$`)
)

// problems collects what is wrong with a plan.
type problems []spec.Invalid

func (p *problems) add(field, format string, args ...any) {
	*p = append(*p, spec.Invalid{Field: field, Problem: fmt.Sprintf(format, args...)})
}

// Check returns a *spec.InvalidError that lists everything that is wrong with the plan.
func (p Plan) Check() error {
	var bad problems
	if !spec.ValidMachineID(p.ID) {
		bad.add("plan_id", "must be 1 to 128 of A-Z, a-z, 0-9, '.', '_' and '-'")
	}
	checkText(&bad, "display_name", p.DisplayName, MaxDisplayName)
	if strings.ContainsAny(p.DisplayName, "\r\n\t") {
		bad.add("display_name", "must be one line")
	}
	switch p.StartableBy {
	case "", StartableByOperator, StartableByCustomer:
	default:
		bad.add("startable_by", "must be %s or %s", StartableByOperator, StartableByCustomer)
	}
	if len(p.Steps) < 1 || len(p.Steps) > MaxSteps {
		bad.add("steps", "must be 1 to %d steps", MaxSteps)
	}
	names := map[string]int{}
	for i, s := range p.Steps[:min(len(p.Steps), MaxSteps)] {
		at := fmt.Sprintf("steps[%d]", i)
		if first, taken := names[s.Name]; taken {
			bad.add(at+".name", "is also the name of steps[%d]; names are unique in a plan", first)
		} else {
			names[s.Name] = i
		}
		s.check(&bad, at)
	}
	if len(bad) > 0 {
		return &spec.InvalidError{Fields: bad}
	}
	return nil
}

func (s Step) check(bad *problems, at string) {
	if !validName.MatchString(s.Name) {
		bad.add(at+".name", "must be 1 to 63 of a-z, 0-9 and '-', and begin and end with a letter or digit")
	}
	if t := s.TimeoutSeconds; t != nil && (*t < 1 || *t > MaxTimeoutSeconds) {
		bad.add(at+".timeout_seconds", "must be 1 to %d", MaxTimeoutSeconds)
	}
	if r := s.MaxRetries; r != nil && (*r < 0 || *r > MaxRetries) {
		bad.add(at+".max_retries", "must be 0 to %d", MaxRetries)
	}
	switch k := s.kinds(); len(k) {
	case 1:
		s.checkParameters(bad, at+"."+string(k[0]))
	case 0:
		bad.add(at, "has no kind, or one that is not known; the kinds are %s", list(Kinds()))
	default:
		bad.add(at, "has the kinds %s; write one step for each", list(k))
	}
}

// checkParameters checks the parameters of a step that has one kind.
func (s Step) checkParameters(bad *problems, at string) {
	switch {
	case s.SSH != nil:
		if strings.TrimSpace(s.SSH.Command) == "" {
			bad.add(at+".command", "must not be empty")
		}
		checkText(bad, at+".command", s.SSH.Command, MaxCommand)
		if !s.SSH.Idempotent && s.MaxRetries != nil && *s.MaxRetries > 0 {
			bad.add(at+".idempotent", "must be true where max_retries is not 0: a repeated attempt runs the command again")
		}
	case s.Reboot != nil:
		oneOf(bad, at+".mode", s.Reboot.Mode, RebootBMC, RebootInBand)
	case s.Netboot != nil:
		oneOf(bad, at+".mode", s.Netboot.Mode, NetbootPXE, NetbootUEFIHTTP, NetbootDisk)
	case s.Repave != nil:
		if !validImage.MatchString(s.Repave.Image) {
			bad.add(at+".image", "must be 1 to 128 of a-z, 0-9, '.', '_', '/' and '-', such as ubuntu-22.04")
		}
	case s.Join != nil:
		checkCluster(bad, at, s.Join.ClusterRef)
	case s.Verify != nil:
		checkCluster(bad, at, s.Verify.ClusterRef)
		if v := s.Verify.KubeletVersion; v != "" && !validKubelet.MatchString(v) {
			bad.add(at+".kubelet_version", "must be a release such as v1.34.1, or empty for any")
		}
	case s.Net != nil:
		checkText(bad, at+".netplan", s.Net.Netplan, MaxNetplan)
		if c := s.Net.ConfirmSeconds; c != 0 && (c < minConfirmSeconds || c > maxConfirmSeconds) {
			bad.add(at+".confirm_seconds", "must be %d to %d, or 0 for 180", minConfirmSeconds, maxConfirmSeconds)
		} else if least := s.Net.Confirm() + confirmSlack; s.TimeoutSeconds != nil && s.Timeout() < least {
			bad.add(at+".confirm_seconds", "leaves the step no time to find out what became of the change: its timeout must be at least %d s", int(least.Seconds()))
		}
		if field := spec.NetplanSecret(s.Net.Netplan); field != "" {
			bad.add(at+".netplan", "must hold no secret such as %s: plans and runs are shown", field)
		}
		if e := s.Net.SSHEndpoint; e != "" && !spec.ValidSSHEndpoint(e) {
			bad.add(at+".ssh_endpoint", "must be host:port")
		}
	case s.RMA != nil:
		if !validTicket.MatchString(s.RMA.Ticket) {
			bad.add(at+".ticket", "must be at most 64 of A-Z, a-z, 0-9, '.', '_', '/', '#' and '-'")
		}
	}
}

func checkCluster(bad *problems, at, ref string) {
	if ref != "" && !spec.ValidMachineID(ref) {
		bad.add(at+".cluster_ref", "must be 1 to 128 of A-Z, a-z, 0-9, '.', '_' and '-', or empty for the machine's own cluster")
	}
}

// checkText refuses what no terminal, shell or database column should get.
func checkText(bad *problems, field, text string, limit int) {
	switch {
	case len(text) > limit:
		bad.add(field, "must be at most %d bytes", limit)
	case !utf8.ValidString(text), strings.ContainsRune(text, 0):
		bad.add(field, "must be UTF-8 text without NUL")
	}
}

func oneOf(bad *problems, field, value string, allowed ...string) {
	for _, a := range allowed {
		if value == a {
			return
		}
	}
	bad.add(field, "must be one of %s", list(allowed))
}

func list[T ~string](items []T) string {
	parts := make([]string, len(items))
	for i, item := range items {
		parts[i] = string(item)
	}
	return strings.Join(parts, ", ")
}
