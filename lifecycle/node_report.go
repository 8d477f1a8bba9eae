package lifecycle

// InstallStatus is what a node says of its installation (seed 000,
// `installation_status`); "" is a report that says nothing of one.
type InstallStatus string

// The statuses of seed 000.
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

// InstallFacts is where an installation stands. Round counts how often the node
// was queued, Attempts the failures within the round (seed 000
// `install_attempts`); the attempt that runs is Attempts+1.
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
}

// Netboot is what a job boots a node from the network for, whatever the node's
// state: each time that it arms one is a round of its own.
type Netboot string

// The purposes.
const (
	NetbootInstall Netboot = "install" // an installer, until it says that it is complete
	NetbootErase   Netboot = "erase"   // a live system in memory, at every boot
)

// Ticket names the attempt that a boot token was handed out for.
type Ticket struct {
	Round   int64
	Attempt int
}

// Ticket is that of the attempt that runs, or of the next one. What a job boots
// is one attempt, however often it boots: the job counts its own.
func (f InstallFacts) Ticket() Ticket {
	if f.Netboot != "" {
		return Ticket{f.Round, 1}
	}
	return Ticket{f.Round, f.Attempts + 1}
}

// Runs reports whether there is an attempt that runs or is next: whether a
// ticket is good for anything.
func (f InstallFacts) Runs() bool {
	return f.Status != NodeRetired && f.Netboot != "" || f.Status == NodePending || f.Status == NodeInstalling
}

// ReportEffect is what a report does.
type ReportEffect string

// The effects. Every one but ReportIgnored happens at most once for an attempt,
// progress aside, which only grows.
const (
	ReportIgnored  ReportEffect = "ignored"  // a repetition, too late, or not in this state
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

// JudgeReport is the table of seed 000 ("Report Handling Logic") over
// (installation_status, state), for a report that came with the token of an
// attempt. A report of another attempt than the one that runs changes nothing,
// which makes repeated, replayed and reordered reports harmless. progress is in
// percent and counts with `progress` only. What a job boots moves no state: the
// job does.
func JudgeReport(f InstallFacts, status InstallStatus, t Ticket, progress int) ReportEffect {
	if t != f.Ticket() || !f.Runs() {
		return ReportIgnored
	}
	if f.Netboot != "" {
		return f.judgeNetboot(status, progress)
	}
	switch {
	case status == InstallStarted && f.Status == NodePending:
		return ReportStarts
	case status == InstallStarted && f.Status == NodeInstalling && !f.Started:
		return ReportRestarts
	case status == InstallProgress && f.Status == NodeInstalling && progress > f.Progress:
		return ReportAdvances
	case status == InstallComplete && f.Status == NodeInstalling:
		return ReportFinishes
	case status == InstallFailure && f.Status == NodeInstalling:
		return FailedAttempt(f)
	}
	return ReportIgnored
}

func (f InstallFacts) judgeNetboot(status InstallStatus, progress int) ReportEffect {
	switch {
	case status == InstallStarted && !f.Started:
		return ReportBegins
	case status == InstallProgress && progress > f.Progress:
		return ReportAdvances
	case status == InstallFailure:
		return ReportWarns
	case status == InstallComplete && f.Netboot == NetbootInstall: // a live system is never done by its own word
		return ReportLeaves
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
