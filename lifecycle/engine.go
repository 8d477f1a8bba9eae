package lifecycle

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// State is the state type of a resource: a string type of its own.
type State interface{ ~string }

// Owner is a party that may cause a transition. The audit row names it as the owner, and
// TriggeredBy derives triggered_by from it.
type Owner string

// The owners of transitions.
const (
	OwnerAdmin        Owner = "admin"        // an administrator or operator through the API
	OwnerOnboarding   Owner = "onboarding"   // the onboarding workflow
	OwnerDecommission Owner = "decommission" // the decommission workflow
	OwnerDrain        Owner = "drain"        // the drain lifecycle operation
	OwnerHeartbeat    Owner = "heartbeat"    // heartbeat policy and its sweeper
	OwnerReconciler   Owner = "reconciler"   // the drift reconciler
	OwnerNodeReport   Owner = "node_report"  // a PXE node's own report
	OwnerCustomer     Owner = "customer"     // a customer through the API
	OwnerJob          Owner = "job"          // the staged-job runner, on its own job row
	OwnerEngine       Owner = "engine"       // somebody with access to Temporal, by an action without a valid proof
	OwnerSystem       Owner = "system"       // sweepers and migrations
)

// TriggeredBy returns the coarse actor that the audit log shows: admin, system, node_report,
// workflow or customer.
func (o Owner) TriggeredBy() string {
	switch o {
	case OwnerAdmin:
		return "admin"
	case OwnerNodeReport:
		return "node_report"
	case OwnerCustomer:
		return "customer"
	case OwnerOnboarding, OwnerDecommission, OwnerDrain, OwnerJob, OwnerEngine:
		return "workflow"
	case OwnerHeartbeat, OwnerReconciler, OwnerSystem:
		return "system"
	}
	return "system"
}

// Need is a fact that must hold before a transition. The caller proves it by
// passing it in Proof; the engine refuses the transition when one is missing.
type Need string

// The proofs that transitions require.
const (
	NeedEnrolled      Need = "agent_enrolled"      // a live agent identity exists
	NeedHealthy       Need = "health_proven"       // a fresh report meets what the SKU expects
	NeedOwningJob     Need = "owning_job"          // a job that owns the state is created or resumed with it
	NeedIdentityKept  Need = "identity_kept"       // the installed identity was not removed
	NeedRevoked       Need = "identity_revoked"    // the agent's identity is refused for good
	NeedInCluster     Need = "in_customer_cluster" // the machine was seen in its cluster
	NeedStateDeadline Need = "heartbeat_overdue"   // last heartbeat is older than the policy allows
)

// Proof is the set of needs that the caller has established.
type Proof []Need

// Transition is one named, owned, guarded move. Transitions are package
// variables so that call sites name an intent and never a pair of strings.
type Transition[S State] struct {
	Name   string
	From   []S
	To     S
	Owners []Owner
	Needs  []Need
	Doc    string
}

// StateInfo describes one state for the documentation and its diagrams.
type StateInfo[S State] struct {
	State    S
	Doc      string
	Terminal bool
	// Transitional states must have an owning job and a deadline.
	Transitional bool
}

// Machine is the whole lifecycle of one kind of resource.
type Machine[S State] struct {
	Resource    string // "node", "job"
	Lifecycle   string // "maas", "pxe", "" when the resource has only one
	Initial     []S
	States      []StateInfo[S]
	Transitions []Transition[S]
}

// Edge is a transition without its type parameter. The database table lifecycle_edges holds edges,
// and db.Transition takes one.
type Edge struct {
	Resource  string
	Lifecycle string
	Name      string
	From      string // "" for creation
	To        string
}

// ErrIllegalTransition matches every IllegalTransitionError with errors.Is; the API answers 409.
var ErrIllegalTransition = errors.New("illegal transition")

// IllegalTransitionError says what was refused and what is allowed instead.
type IllegalTransitionError struct {
	Resource string
	From, To string
	Reason   string
	Allowed  []string // states reachable now
}

func (e *IllegalTransitionError) Error() string {
	msg := fmt.Sprintf("%s cannot go from %s to %s: %s", e.Resource, e.From, e.To, e.Reason)
	if len(e.Allowed) > 0 {
		msg += "; allowed now: " + strings.Join(e.Allowed, ", ")
	}
	return msg
}

// Is makes errors.Is(err, ErrIllegalTransition) hold.
func (e *IllegalTransitionError) Is(target error) bool { return target == ErrIllegalTransition }

// Check returns nil when the owner may apply transition t, with this proof, to a resource in state
// from. Otherwise it returns an *IllegalTransitionError.
func (m Machine[S]) Check(t Transition[S], from S, owner Owner, proof Proof) error {
	refuse := func(reason string) error {
		return &IllegalTransitionError{
			Resource: m.Resource, From: string(from), To: string(t.To),
			Reason: reason, Allowed: m.Reachable(from),
		}
	}
	if !slices.Contains(t.From, from) {
		return refuse("there is no such transition")
	}
	if !slices.Contains(t.Owners, owner) {
		return refuse(fmt.Sprintf("%s may not cause it", owner))
	}
	for _, n := range t.Needs {
		if !slices.Contains(proof, n) {
			return refuse(fmt.Sprintf("it needs %s, which is not established", n))
		}
	}
	return nil
}

// Reachable lists the states to which a transition leads from this one, in the order of
// declaration.
func (m Machine[S]) Reachable(from S) []string {
	var out []string
	for _, t := range m.Transitions {
		if slices.Contains(t.From, from) && !slices.Contains(out, string(t.To)) {
			out = append(out, string(t.To))
		}
	}
	return out
}

// Edges expands the machine to the rows of lifecycle_edges, creation included.
func (m Machine[S]) Edges() []Edge {
	var out []Edge
	for _, s := range m.Initial {
		out = append(out, Edge{m.Resource, m.Lifecycle, "create", "", string(s)})
	}
	seen := map[[2]string]bool{}
	for _, t := range m.Transitions {
		for _, f := range t.From {
			key := [2]string{string(f), string(t.To)}
			if seen[key] {
				continue // two transitions between the same states are one edge in the database
			}
			seen[key] = true
			out = append(out, Edge{m.Resource, m.Lifecycle, t.Name, string(f), string(t.To)})
		}
	}
	return out
}

// Has reports whether s is a state of the machine.
func (m Machine[S]) Has(s S) bool {
	return slices.ContainsFunc(m.States, func(i StateInfo[S]) bool { return i.State == s })
}

// Terminal reports whether s ends the lifecycle.
func (m Machine[S]) Terminal(s S) bool {
	return slices.ContainsFunc(m.States, func(i StateInfo[S]) bool { return i.State == s && i.Terminal })
}

// Between returns the first transition that leads from one state to another, or an
// *IllegalTransitionError.
func (m Machine[S]) Between(from, to S) (Transition[S], error) {
	for _, t := range m.Transitions {
		if t.To == to && slices.Contains(t.From, from) {
			return t, nil
		}
	}
	return Transition[S]{}, &IllegalTransitionError{
		Resource: m.Resource, From: string(from), To: string(to), Reason: "there is no such transition", Allowed: m.Reachable(from),
	}
}

// AllEdges returns the edges of all lifecycles: the content of lifecycle_edges.
func AllEdges() []Edge {
	return slices.Concat(NodeMAAS.Edges(), NodePXE.Edges(), Job.Edges(), NodeTask.Edges(), BMCRotation.Edges(), DriftFinding.Edges(),
		Project.Edges(), Invitation.Edges(), Allocation.Edges(), Payment.Edges(), MachinePhases.Edges(), Run.Edges(), Instance.Edges(),
		RunCampaign.Edges(), CampaignMember.Edges())
}
