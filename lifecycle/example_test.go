package lifecycle_test

import (
	"errors"
	"fmt"

	"github.com/slipway-cloud/slipway/lifecycle"
)

// A transition names its states, its owners and the facts that must be proven. The caller passes
// what it has established; a refusal says what is allowed instead.
func ExampleMachine_Check() {
	machine := lifecycle.NodeMAAS
	proof := lifecycle.Proof{lifecycle.NeedEnrolled, lifecycle.NeedHealthy}
	fmt.Println(machine.Check(lifecycle.NodeActivate, lifecycle.NodeEnrolling, lifecycle.OwnerOnboarding, proof))
	fmt.Println(machine.Check(lifecycle.NodeActivate, lifecycle.NodeEnrolling, lifecycle.OwnerOnboarding, nil))
	fmt.Println(machine.Check(lifecycle.NodeActivate, lifecycle.NodeEnrolling, lifecycle.OwnerReconciler, proof))
	err := machine.Check(lifecycle.NodeActivate, lifecycle.NodeDeleted, lifecycle.OwnerOnboarding, proof)
	fmt.Println(err, errors.Is(err, lifecycle.ErrIllegalTransition))
	// Output:
	// <nil>
	// node cannot go from enrolling to active: it needs agent_enrolled, which is not established; allowed now: active, quarantined
	// node cannot go from enrolling to active: reconciler may not cause it; allowed now: active, quarantined
	// node cannot go from deleted to active: there is no such transition true
}

// A resource gets a lifecycle by declaring it. Edges are the rows of the database table that
// refuses every other change; Reachable is what an operator is shown.
func ExampleMachine() {
	type status string
	const queued, sent, failed status = "queued", "sent", "failed"
	letter := lifecycle.Machine[status]{
		Resource: "letter", Initial: []status{queued},
		States: []lifecycle.StateInfo[status]{{State: queued, Transitional: true}, {State: sent, Terminal: true}, {State: failed}},
		Transitions: []lifecycle.Transition[status]{
			{Name: "send", From: []status{queued}, To: sent, Owners: []lifecycle.Owner{lifecycle.OwnerSystem}},
			{Name: "fail", From: []status{queued}, To: failed, Owners: []lifecycle.Owner{lifecycle.OwnerSystem}},
			{Name: "retry", From: []status{failed}, To: queued, Owners: []lifecycle.Owner{lifecycle.OwnerAdmin}},
		},
	}
	for _, edge := range letter.Edges() {
		fmt.Printf("%s: %q -> %q\n", edge.Name, edge.From, edge.To)
	}
	fmt.Println(letter.Reachable(queued), letter.Terminal(sent))
	// Output:
	// create: "" -> "queued"
	// send: "queued" -> "sent"
	// fail: "queued" -> "failed"
	// retry: "failed" -> "queued"
	// [sent failed] true
}
