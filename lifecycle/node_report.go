package lifecycle

// InstallStatus is the `installation_status` in a node's report; "" is a report without one.
type InstallStatus string

// The statuses of an installation.
const (
	InstallStarted  InstallStatus = "started"
	InstallProgress InstallStatus = "progress"
	InstallComplete InstallStatus = "complete"
	InstallFailure  InstallStatus = "failed"
)

// InstallStatuses lists them.
func InstallStatuses() []InstallStatus {
	return []InstallStatus{InstallStarted, InstallProgress, InstallComplete, InstallFailure}
}

// InstallFacts is the progress of an installation. Round counts how often the node was queued.
// Attempts counts the failures within the round (`install_attempts` in the API), so that the
// running attempt is Attempts+1.
type InstallFacts struct {
	Status   NodeStatus
	Round    int64
	Attempts int
	// Started is whether the running attempt was reported as started.
	Started  bool
	Progress int // percent, of the running attempt
	// Netboot is what a job boots the node from the network for; "" while none
	// does, and once the installer has said that it is complete.
	Netboot Netboot
	// Warnings is how many failures were counted in the round that a job boots.
	Warnings int
}

// MaxWarnings is how many failures count in one round that a job boots: what a
// machine says after that changes nothing until the job arms the next.
const MaxWarnings = 8

// Report is what a node says of its installation, and how old its word is.
type Report struct {
	Status         InstallStatus
	InstallAttempt InstallAttempt
	Progress       int // percent; counts with `progress` only

	// Of what a job boots, where each boot has a token of its own.
	Stale bool // its token is older than that of the boot that began last
	Fresh bool // its token is newer than the last failure
	Said  bool // its error counted already, of the same boot
}

// Netboot is what a job boots a node from the network for, whatever the node's
// state: each time that it arms one is a round of its own.
type Netboot string

// The purposes.
const (
	NetbootInstall Netboot = "install" // an installer, until it says that it is complete
	NetbootErase   Netboot = "erase"   // a live system in memory, at every boot
)

// InstallAttempt is the attempt of an installation that a boot token was issued for.
type InstallAttempt struct {
	Round   int64
	Attempt int
}

// InstallAttempt returns the attempt that runs, or the next one when none runs. A netboot of a job
// is one attempt, however often the node boots: the job counts its own tries.
func (f InstallFacts) InstallAttempt() InstallAttempt {
	if f.Netboot != "" {
		return InstallAttempt{f.Round, 1}
	}
	return InstallAttempt{f.Round, f.Attempts + 1}
}

// Runs reports whether there is an attempt that runs or is next: whether a
// ticket is good for anything.
func (f InstallFacts) Runs() bool {
	return f.Status != NodeRetired && f.Netboot != "" || f.Status == NodePending || f.Status == NodeInstalling
}

// ReportEffect is what a report does.
type ReportEffect string

// The effects. Every one but ReportIgnored and ReportHeard happens at most once
// for an attempt, progress aside, which only grows.
const (
	ReportIgnored  ReportEffect = "ignored"  // too late, not in this state, or said already: nothing is kept of it
	ReportHeard    ReportEffect = "heard"    // a sign of life of what runs: its deadline moves, within bounds
	ReportStarts   ReportEffect = "starts"   // pending becomes installing, attempts are 0
	ReportRestarts ReportEffect = "restarts" // the next attempt runs; no state changes
	ReportAdvances ReportEffect = "advances" // progress grows
	ReportFinishes ReportEffect = "finishes" // installing becomes installed, attempts are 0
	ReportFails    ReportEffect = "fails"    // one more attempt failed; installing stays
	ReportExhausts ReportEffect = "exhausts" // the last attempt failed: install_failed

	// While a job boots the node. No state changes, nor any counter.
	ReportBegins ReportEffect = "begins" // what the job boots has started
	ReportWarns  ReportEffect = "warns"  // it failed: the error is kept for the job
	ReportLeaves ReportEffect = "leaves" // its installer is done: the disk boots next
)

// ClassifyReport returns the effect of a report on an installation, by its status and the node's
// state. The report came with the token of an attempt. A report of another attempt than the running
// one has no effect, so repeated, replayed and reordered reports are harmless. A report of a system
// that a job boots moves no state, since the job does.
func ClassifyReport(f InstallFacts, r Report) ReportEffect {
	if r.InstallAttempt != f.InstallAttempt() || !f.Runs() {
		return ReportIgnored
	}
	if f.Netboot != "" {
		return f.classifyNetbootReport(r)
	}
	switch {
	case r.Status == InstallStarted && f.Status == NodePending:
		return ReportStarts
	case r.Status == InstallStarted && f.Status == NodeInstalling && !f.Started:
		return ReportRestarts
	case r.Status == InstallProgress && f.Status == NodeInstalling && r.Progress > f.Progress:
		return ReportAdvances
	case r.Status == InstallComplete && f.Status == NodeInstalling:
		return ReportFinishes
	case r.Status == InstallFailure && f.Status == NodeInstalling:
		return FailedAttempt(f)
	case f.Status == NodeInstalling || r.Status == "":
		return ReportHeard
	}
	return ReportIgnored
}

// classifyNetbootReport does the same for a system that a job boots. All boots of a round are one
// attempt, and their tokens give their order. A report of an older boot has no effect. After a
// failure only a later boot starts again.
func (f InstallFacts) classifyNetbootReport(r Report) ReportEffect {
	spent := f.Warnings >= MaxWarnings
	runs := f.Started || f.Warnings == 0
	switch {
	case r.Stale:
		return ReportIgnored
	case r.Status == InstallStarted && !f.Started && !spent && (runs || r.Fresh):
		return ReportBegins
	case r.Status == InstallProgress && runs && r.Progress > f.Progress:
		return ReportAdvances
	case r.Status == InstallFailure && !spent && !r.Said:
		return ReportWarns
	case r.Status == InstallComplete && f.Netboot == NetbootInstall: // a live system is never done by its own word
		return ReportLeaves
	case r.Status == "" || f.Started && (r.Status == InstallStarted || r.Status == InstallProgress):
		return ReportHeard
	}
	return ReportIgnored
}

// FailedAttempt is the effect of one more failure while installing.
func FailedAttempt(f InstallFacts) ReportEffect {
	if f.Attempts+1 >= MaxInstallAttempts {
		return ReportExhausts
	}
	return ReportFails
}
