// Package intent holds what the intent packages share. An intent package holds one use case: it
// checks a request, decides, and writes the rows (job, node move, audit, outbox) in the transaction
// that it is given. Every API uses the same packages, so they know no HTTP, no path and no command
// line. They return a *Refusal for a request that cannot be accepted, and the API renders it.
package intent

import "errors"

// Kind is the kind of a refusal.
type Kind string

// The kinds.
const (
	Invalid           Kind = "invalid"            // the request itself is wrong; Fields name the wrong parts
	Conflict          Kind = "conflict"           // another thing prevents it
	LiveJob           Kind = "live_job"           // a live job prevents it
	ActionRefused     Kind = "action_refused"     // the node's state does not allow it
	IllegalTransition Kind = "illegal_transition" // the state does not lead there
	PlanMissing       Kind = "plan_missing"       // it can only be started with the hash of a plan
	PlanStale         Kind = "plan_stale"         // a plan made now would do something else
	NoCapacity        Kind = "no_capacity"        // no node is free
	RateLimited       Kind = "rate_limited"       // too many requests of this kind in a short time
)

// Reason says exactly what is missing when an API can name the call or command that helps.
type Reason string

// The reasons. Each names the subjects of the refusal that its hint needs.
const (
	ReasonSecretMissing     Reason = "secret_missing"
	ReasonSecretUse         Reason = "secret_use"
	ReasonSanitize          Reason = "sanitize" // Hostname
	ReasonPlanMissing       Reason = "plan_missing"
	ReasonMAASNode          Reason = "maas_node" // Hostname
	ReasonMAASNodeState     Reason = "maas_node_state"
	ReasonMAASBMC           Reason = "maas_bmc"
	ReasonNoProfile         Reason = "no_profile"
	ReasonPXENode           Reason = "pxe_node"            // NodeID, Hostname
	ReasonJobHoldsNode      Reason = "job_holds_node"      // JobID
	ReasonJobHoldsState     Reason = "job_holds_state"     // JobID
	ReasonLoginsBlocked     Reason = "logins_blocked"      // BMCID
	ReasonNoEraseWorkflow   Reason = "no_erase_workflow"   // Hostname, Group
	ReasonNoInstallWorkflow Reason = "no_install_workflow" // Hostname
	ReasonInstallUnassigned Reason = "install_unassigned"
	ReasonInstallFailed     Reason = "install_failed"
	ReasonNoMigration       Reason = "no_migration" // Hostname
	ReasonBMCOfOldHardware  Reason = "bmc_of_old_hardware"
	ReasonIdentityGone      Reason = "identity_gone"   // Hostname
	ReasonReissuePXE        Reason = "reissue_pxe"     // Hostname
	ReasonReissueByHand     Reason = "reissue_by_hand" // NodeID, Hostname
	ReasonReleaseMissing    Reason = "release_missing"
)

// Field is one field of a request that is wrong. Name is its path in the request, such as
// bmc.address.
type Field struct {
	Name    string
	Message string
	Reason  Reason // "" when the message is enough
}

// Advice is a reason together with the subjects that its hint names.
type Advice struct {
	Reason                                Reason // "" for none
	NodeID, Hostname, JobID, BMCID, Group string
}

// Refusal is the error for a request that is not accepted. Nothing has been written, so the
// transaction may continue.
type Refusal struct {
	Kind   Kind
	Detail string // what is wrong and what to do, as a sentence without its full stop
	Fields []Field

	Existing string   // the id of the thing that prevents it
	Allowed  []string // the states, actions or modes that are allowed now
	PlanHash string   // of the plan as it is now
	// Shortfall is how much money is missing, where whoever asks may read it.
	Shortfall *Shortfall
	Advice
}

// Shortfall is how much the balance of a billing account lacks for a claim.
type Shortfall struct {
	MissingMinor     int64
	RateMinorPerHour int64
	HoldMinor        int64
	Currency         string
	Exponent         int // of the currency
}

func (r *Refusal) Error() string {
	if r.Detail == "" && len(r.Fields) > 0 {
		return r.Fields[0].Name + " " + r.Fields[0].Message
	}
	return r.Detail
}

// InvalidIf returns a refusal that names the wrong fields, or nil when there are none.
func InvalidIf(fields []Field) error {
	if len(fields) == 0 {
		return nil
	}
	return &Refusal{Kind: Invalid, Fields: fields}
}

// Under returns the fields with the name of a part of the request before each name.
func Under(part string, fields []Field) []Field {
	for i := range fields {
		fields[i].Name = part + "." + fields[i].Name
	}
	return fields
}

// AsRefusal returns the refusal in an error, nil when it is another error.
func AsRefusal(err error) *Refusal {
	var r *Refusal
	if errors.As(err, &r) {
		return r
	}
	return nil
}
