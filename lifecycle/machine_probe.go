package lifecycle

import "time"

// The reasons of conditions that follow from probes of a machine that is linked to no node. Those
// of its BMC are ReasonBMCAnswers and ReasonBMCSilent.
const (
	ReasonSSHAnswers     = "SSHAnswers"
	ReasonSSHSilent      = "SSHSilent"
	ReasonHostKeyChanged = "HostKeyChanged"
)

// ProbeResult is what came of one probe. The zero value says that nothing is known.
type ProbeResult string

// The results of probes.
const (
	ProbeUnknown  ProbeResult = ""
	ProbeAnswered ProbeResult = "answered"
	ProbeSilent   ProbeResult = "silent"
	ProbeOtherKey ProbeResult = "other_key" // another host key than the pinned one
)

// ProbeFacts are what the probes of a machine that is linked to no node have found.
type ProbeFacts struct{ SSH, BMC ProbeResult }

// ObserveProbes returns the conditions of a machine after its probes. The other conditions are no
// facts of them and stay as they are.
func (c Conditions) ObserveProbes(f ProbeFacts, now time.Time) Conditions {
	c = c.observeProbe(ReachableCondition, f.SSH, ReasonSSHAnswers, ReasonSSHSilent, now)
	return c.observeProbe(BMCReachableCondition, f.BMC, ReasonBMCAnswers, ReasonBMCSilent, now)
}

func (c Conditions) observeProbe(t ConditionType, found ProbeResult, answers, silent string, now time.Time) Conditions {
	switch found {
	case ProbeAnswered:
		return c.Observe(t, true, answers, now)
	case ProbeSilent:
		return c.Observe(t, false, silent, now)
	case ProbeOtherKey:
		return c.Observe(t, false, ReasonHostKeyChanged, now)
	case ProbeUnknown:
	}
	return c.Fail(t)
}
