package lifecycle

import (
	"slices"
	"strings"
)

// The kinds of notices that the members of a project get.
const (
	NoticeLowBalance      = string(BalanceLow)
	NoticeDepleted        = string(BalanceDepleted)
	NoticeBalanceShort    = "balance_short"
	NoticeBudgetWarning   = "budget_warning"
	NoticeBudgetSpent     = "budget_spent"
	NoticeWebhookDisabled = "webhook_disabled"
	NoticeWebhookFailing  = "webhook_failing"
)

// Types of events that follow no transition.
const (
	EventKeysChanged       = "allocation.keys_changed"
	EventConnectionChanged = "allocation.connection_changed"
	EventInstanceProgress  = "instance.progress"
)

// EventType is the type of the event that tells of a status. That of releasing is a request, since
// a job acts on it.
func (s AllocationStatus) EventType() string {
	if s == AllocationReleasing {
		return "allocation.releasing.requested"
	}
	return Allocation.Resource + "." + string(s)
}

// EventType is the type of the event that tells of a status.
func (s InstanceStatus) EventType() string { return Instance.Resource + "." + string(s) }

// EventType is the type of the event that tells of a status.
func (s PaymentStatus) EventType() string { return Payment.Resource + "." + string(s) }

// NoticeEventType is the type of the event that tells of a notice.
func NoticeEventType(kind string) string { return "notice." + kind }

var projectEventTypes = listProjectEventTypes() //nolint:gochecknoglobals // constant

// ProjectEventTypes lists the types of the events that members of a project can read and webhooks
// can ask for, sorted. The trigger audit_project_event makes the events of changes that a member
// makes to the project.
func ProjectEventTypes() []string { return slices.Clone(projectEventTypes) }

func listProjectEventTypes() []string {
	types := []string{
		"invitation.created", "invitation.revoked", "key.added", "key.deleted", "member.added", "member.group_role_deleted", "member.group_role_set",
		"member.removed", "member.role_changed", "project.closed", "project.closing", "project.created", "project.deleted", "project.updated",
		"quota.deleted", "quota.set", "token.created", "token.deleted", "webhook.created", "webhook.deleted", "webhook.secret_rotated", "webhook.updated",
		EventKeysChanged, EventConnectionChanged, EventInstanceProgress,
	}
	for _, kind := range []string{
		NoticeLowBalance, NoticeDepleted, NoticeBalanceShort, NoticeBudgetWarning, NoticeBudgetSpent, NoticeWebhookDisabled, NoticeWebhookFailing,
	} {
		types = append(types, NoticeEventType(kind))
	}
	for _, s := range Allocation.States {
		types = append(types, s.State.EventType())
	}
	for _, s := range Instance.States {
		types = append(types, s.State.EventType())
	}
	for _, s := range Payment.States {
		types = append(types, s.State.EventType())
	}
	slices.Sort(types)
	return types
}

// MatchesProjectEvents reports whether asked, a type or a kind with ".*" such as member.*, matches
// at least one type of the events of projects.
func MatchesProjectEvents(asked string) bool {
	if kind, all := strings.CutSuffix(asked, ".*"); all {
		return slices.ContainsFunc(projectEventTypes, func(t string) bool {
			of, _, _ := strings.Cut(t, ".")
			return of == kind
		})
	}
	return IsProjectEvent(asked)
}

// IsProjectEvent reports whether an event of a project can have the type.
func IsProjectEvent(eventType string) bool { return slices.Contains(projectEventTypes, eventType) }
