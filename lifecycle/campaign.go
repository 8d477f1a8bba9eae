package lifecycle

// CampaignState is how far a campaign is: the same plan over many machines.
type CampaignState string

// The states of a campaign, in the spelling of the API.
const (
	CampaignRunning   CampaignState = "RUNNING"
	CampaignPaused    CampaignState = "PAUSED"
	CampaignStopped   CampaignState = "STOPPED"
	CampaignCompleted CampaignState = "COMPLETED"
	CampaignCanceled  CampaignState = "CANCELED"
)

// The transitions of a campaign. Operators and members of its project control it; the worker that
// drives it stops and completes it.
var (
	CampaignPause = campaignMove("pause", CampaignPaused, "no run is started; those that are active go on. After a restore of the database, and when the project takes no new work, it happens by itself",
		[]Owner{OwnerAdmin, OwnerCustomer, OwnerSystem}, CampaignRunning)
	CampaignResume = campaignMove("resume", CampaignRunning, "runs are started again; of one that was stopped, failures are counted from zero",
		[]Owner{OwnerAdmin, OwnerCustomer}, CampaignPaused, CampaignStopped)
	CampaignStop = campaignMove("stop", CampaignStopped, "as many runs failed as it allows, and machines are left",
		[]Owner{OwnerSystem}, CampaignRunning, CampaignPaused)
	CampaignComplete = campaignMove("complete", CampaignCompleted, "no machine waits and no run is active",
		[]Owner{OwnerSystem}, CampaignRunning, CampaignPaused, CampaignStopped)
	CampaignCancel = campaignMove("cancel", CampaignCanceled, "machines that wait get no run; active runs go on",
		[]Owner{OwnerAdmin, OwnerCustomer}, CampaignRunning, CampaignPaused, CampaignStopped)
	CampaignRetry = campaignMove("retry", CampaignRunning, "machines whose run did not succeed get another one",
		[]Owner{OwnerAdmin, OwnerCustomer}, CampaignCompleted)
)

func campaignMove(name string, to CampaignState, doc string, owners []Owner, from ...CampaignState) Transition[CampaignState] {
	return Transition[CampaignState]{Name: name, From: from, To: to, Owners: owners, Doc: doc}
}

// RunCampaign is the lifecycle of a campaign.
var RunCampaign = Machine[CampaignState]{
	Resource: "run_campaign",
	Initial:  []CampaignState{CampaignRunning},
	States: []StateInfo[CampaignState]{
		{State: CampaignRunning, Doc: "runs are started, as many at a time as it allows"},
		{State: CampaignPaused, Doc: "nothing is started until it is resumed"},
		{State: CampaignStopped, Doc: "too many runs failed; it requires operator action"},
		{State: CampaignCompleted, Doc: "each machine had its run or was skipped; what did not succeed may be retried"},
		{State: CampaignCanceled, Doc: "cancelled; another campaign may be created", Terminal: true},
	},
	Transitions: []Transition[CampaignState]{CampaignPause, CampaignResume, CampaignStop, CampaignComplete, CampaignCancel, CampaignRetry},
}

// MemberState is the state of one machine of a campaign.
type MemberState string

// The states of a machine of a campaign, in the spelling of the API.
const (
	MemberWaiting   MemberState = "WAITING"
	MemberRunning   MemberState = "RUNNING"
	MemberSucceeded MemberState = "SUCCEEDED"
	MemberFailed    MemberState = "FAILED"
	MemberCanceled  MemberState = "CANCELED"
	MemberSkipped   MemberState = "SKIPPED"
)

// The transitions of a machine of a campaign. The worker that drives the campaign moves it, but for
// cancellation and retry.
var (
	MemberStart  = memberMove("start", MemberRunning, "its run was started", MemberWaiting)
	MemberFinish = memberMove("finish", MemberSucceeded, "its run succeeded", MemberRunning)
	MemberFail   = memberMove("fail", MemberFailed, "its run failed", MemberRunning)
	MemberCancel = memberMove("cancel", MemberCanceled, "its run or the campaign was cancelled", MemberWaiting, MemberRunning)
	MemberSkip   = memberMove("skip", MemberSkipped, "its run was refused: the machine is RETIRED, in another project or not able to", MemberWaiting)
	MemberRetry  = memberMove("retry", MemberWaiting, "it gets another run", MemberFailed, MemberCanceled, MemberSkipped)
)

func memberMove(name string, to MemberState, doc string, from ...MemberState) Transition[MemberState] {
	return Transition[MemberState]{Name: name, From: from, To: to, Owners: []Owner{OwnerAdmin, OwnerCustomer, OwnerSystem}, Doc: doc}
}

// CampaignMember is the lifecycle of one machine of a campaign.
var CampaignMember = Machine[MemberState]{
	Resource: "run_campaign_member",
	Initial:  []MemberState{MemberWaiting},
	States: []StateInfo[MemberState]{
		{State: MemberWaiting, Doc: "it has no run yet, or waits for what else runs on the machine"},
		{State: MemberRunning, Doc: "its run is active"},
		{State: MemberSucceeded, Doc: "its run succeeded", Terminal: true},
		{State: MemberFailed, Doc: "its run failed"},
		{State: MemberCanceled, Doc: "its run was cancelled, or it got none before the campaign was"},
		{State: MemberSkipped, Doc: "no run was possible; the message says why"},
	},
	Transitions: []Transition[MemberState]{MemberStart, MemberFinish, MemberFail, MemberCancel, MemberSkip, MemberRetry},
}

// MemberAfterRun returns how a member moves when its run has ended in a phase.
func MemberAfterRun(p RunPhase) Transition[MemberState] {
	switch p {
	case RunSucceeded:
		return MemberFinish
	case RunCanceled:
		return MemberCancel
	case RunFailed, RunPending, RunRunning:
	}
	return MemberFail
}

// CampaignRoom returns how many more runs a campaign may start, given how many of its machines are
// in each state. Until one run has succeeded it runs one at a time, unless it skips that.
func CampaignRoom(maxParallel int, skipCanary bool, counts map[MemberState]int) int {
	if !skipCanary && counts[MemberSucceeded] == 0 {
		maxParallel = 1
	}
	return max(maxParallel-counts[MemberRunning], 0)
}
