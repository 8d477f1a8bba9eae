package allocation

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/activities/agenttask"
	allocationact "github.com/slipway-cloud/slipway/activities/allocation"
	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	isolationact "github.com/slipway-cloud/slipway/activities/isolation"
	maasact "github.com/slipway-cloud/slipway/activities/maas"
	nodeact "github.com/slipway-cloud/slipway/activities/node"
	nodestateact "github.com/slipway-cloud/slipway/activities/nodestate"
	accessact "github.com/slipway-cloud/slipway/activities/tenantaccess"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// Nil pointers: their methods only name the activities.
var (
	agent    *agenttask.Activities
	allocs   *allocationact.Activities
	access   *accessact.Activities
	bmc      *bmcact.Activities
	maas     *maasact.Activities
	networks *isolationact.Activities
	node     *nodeact.Activities
	nodeActs *nodestateact.Activities
)

// claim waits for a node. A release that is asked for meanwhile ends the wait.
func claim(ctx workflow.Context, s *ProvisionState) error {
	f, err := s.claimWhenFree(ctx)
	if err != nil {
		return err
	}
	s.Facts, s.Job.NodeID = f, f.NodeID
	if f.SiteID != "" {
		s.Job.SiteID = f.SiteID
	}
	if f.ReleaseAsked() {
		return stage.Cancel("its release was asked for")
	}
	return nil
}

// claimWhenFree has Temporal look for a node later and later, and looks at once when the job is
// told that one became free. A try that is called off may have taken the node: the next one finds
// that.
func (s *ProvisionState) claimWhenFree(ctx workflow.Context) (contract.AllocationFacts, error) {
	free := workflow.GetSignalChannel(ctx, contract.SignalNodeFree)
	for {
		var f contract.AllocationFacts
		try, callOff := workflow.WithCancel(ctx)
		result := stage.Start(try, stage.KindQueue, "claim a node", allocs.ClaimNode, s.ref(lifecycle.StageClaimNode))
		told := false
		workflow.NewSelector(ctx).
			AddFuture(result, func(workflow.Future) {}).
			AddReceive(free, func(c workflow.ReceiveChannel, _ bool) { c.Receive(ctx, nil); told = true }).
			Select(ctx)
		callOff()
		err := result.Get(ctx, &f)
		if err == nil || !told || !temporal.IsCanceledError(err) || ctx.Err() != nil {
			return f, err
		}
		for free.ReceiveAsync(nil) { // what was told of other nodes meanwhile is one look
		}
		// A node that becomes free again and again, and that others are faster to take, wakes
		// without bound.
		if err := stage.CheckHistory(ctx); err != nil {
			return f, err
		}
	}
}

// unlessReleased runs a stage unless the release of the allocation has been asked for: between any
// two stages is a point at which a provision stops.
func unlessReleased(run func(workflow.Context, *ProvisionState) error) func(workflow.Context, *ProvisionState) error {
	return func(ctx workflow.Context, s *ProvisionState) error {
		f, err := stage.Do(ctx, stage.KindLocalWork, "is the allocation still wanted", allocs.ReadAllocation, s.ref(""))
		if err != nil {
			return err
		}
		s.Facts = f
		if f.ReleaseAsked() {
			return stage.Cancel("its release was asked for")
		}
		if f.IsLate(workflow.Now(ctx)) {
			return stage.Fail(lifecycle.FailStageDeadline, "the node was not the tenant's in time; it is taken back")
		}
		return run(ctx, s)
	}
}

// checkNode reads the node again: the claim saw it in the database alone.
func checkNode(ctx workflow.Context, s *ProvisionState) error {
	const at = lifecycle.StageCheckNode
	f, err := stage.Do(ctx, stage.KindLocalWork, "look at the node", nodeActs.ReadNodeFacts, s.Job.At(at))
	if err != nil {
		return err
	}
	s.Node = f
	if why := cmp.Or(s.unfit(), s.heldElsewhere()); why != "" {
		return stage.Fail(lifecycle.FailStateDisagreement, "the node cannot be given to a tenant: %s", why)
	}
	c, err := stage.Do(ctx, stage.KindMAASCall, "read site, profile, SKU", maas.LoadNodeConfig, maasact.NodeConfigIn{JobRef: s.Job.At(at)})
	if err != nil {
		return err
	}
	s.Config = c
	if s.Node.SystemID == "" {
		return nil
	}
	in := maasact.MachineIn{JobRef: s.Job.At(at), SystemID: s.Node.SystemID}
	m, err := stage.Do(ctx, stage.KindMAASCall, "look at the machine", maas.ObserveMachine, in)
	if err != nil {
		return err
	}
	if s.Machine = m; m.Status != "Deployed" {
		return stage.Fail(lifecycle.FailStateDisagreement, "the node cannot be given to a tenant: MAAS says %s of machine %s, not Deployed", m.Status, s.Node.SystemID)
	}
	if why := s.heldElsewhere(); why != "" {
		return stage.Fail(lifecycle.FailStateDisagreement, "the node cannot be given to a tenant: %s", why)
	}
	image, err := stage.Do(ctx, stage.KindMAASCall, "read what is installed", maas.ReadInstalledImage, in)
	if err != nil {
		return err
	}
	s.Image = &image
	return s.describeNetwork(ctx, at)
}

// unfit returns why the node is not given to a tenant, "" where it may be.
func (s *ProvisionState) unfit() string {
	switch n := s.Node; {
	case n.AllocationID != s.Request.AllocationID:
		return "it is not this allocation's"
	case n.Status != lifecycle.NodeActive:
		return "it is " + string(n.Status)
	case n.Agent != contract.AgentAlive:
		return "its agent is not heard: " + n.Note
	case n.TenantLeft != nil:
		return "nothing proves it clean since a tenant left it"
	case s.Facts.TenantRoot && n.SystemID == "":
		return "its tenant is root, so that it has to be installed again afterwards, and MAAS does not manage it"
	case s.Facts.TenantRoot && len(n.ProtectSerials) > 0:
		return "its tenant is root, so that it has to be erased afterwards, and drives of it are protected"
	}
	return ""
}

func (s *ProvisionState) settingsIn(at string) bmcact.SettingsIn {
	return bmcact.SettingsIn{AllocationRef: s.ref(at), BMCID: s.Node.BMCID, CAPEM: s.Config.Site.BMCCAPEM}
}

func isolateNode(ctx workflow.Context, s *ProvisionState) error {
	in := s.settingsIn(lifecycle.StageIsolateNode)
	_, err := stage.Do(ctx, stage.KindBMCCall, "switch off the host interface", bmc.DisableHostInterfaces, in)
	return err
}

func snapshot(ctx workflow.Context, s *ProvisionState) error {
	f, err := stage.Do(ctx, stage.KindBMCCall, "read and keep the BMC's settings", bmc.KeepSettings, s.settingsIn(lifecycle.StageSnapshotFirmware))
	if err == nil {
		s.Settings = f
	}
	return err
}

func retire(ctx workflow.Context, s *ProvisionState) error {
	_, err := stage.Do(ctx, stage.KindLocalWork, "end tokens, delete sealed documents", node.RetireCredentials, s.Job.At(lifecycle.StageRetireCredentials))
	if err != nil {
		return err
	}
	return s.retireOnNode(ctx)
}

// task is one task of the node's agent.
type task struct {
	stage string
	kind  lifecycle.TaskKind
	args  any
	tries *contract.TaskTries
	limit time.Duration // zero is the kind's own time
	undo  bool          // it undoes what the job did
}

// taskMargin lets a task expire before its stage does.
const taskMargin = 30 * time.Second

func runTask(ctx workflow.Context, job contract.JobRef, t task) error {
	_, err := runTaskForResult(ctx, job, t)
	return err
}

func runTaskForResult(ctx workflow.Context, job contract.JobRef, t task) (lifecycle.TaskResult, error) {
	args, err := json.Marshal(t.args)
	if err != nil {
		return lifecycle.TaskResult{}, fmt.Errorf("arguments of %s: %w", t.kind, err)
	}
	info, _ := lifecycle.TaskKindOf(t.kind)
	limit := info.Deadline
	if t.limit > 0 {
		limit = t.limit
	}
	in := agenttask.RunTaskIn{JobRef: job.At(t.stage), Kind: t.kind, Args: args, Deadline: stage.Within(ctx, limit, taskMargin), Undo: t.undo, TaskTries: *t.tries}
	res, err := stage.Do(ctx, stage.KindAgentTask, string(t.kind), agent.RunTask, in)
	if err != nil {
		t.tries.Failed(stage.ClassOf(err))
	}
	return res, err
}

func (s *ProvisionState) user() string { return lifecycle.TenantAccount(s.Request.AllocationID) }

func createAccount(ctx workflow.Context, s *ProvisionState) error {
	if err := s.markMachine(ctx, lifecycle.StageCreateAccount); err != nil {
		return err
	}
	return runTask(ctx, s.Job, task{stage: lifecycle.StageCreateAccount, kind: lifecycle.TaskKindCreateUser, tries: &s.Tries.Create,
		args: spec.CreateUserArgs{AllocationID: s.Request.AllocationID, User: s.user(), Root: s.Facts.TenantRoot}})
}

func (s *ProvisionState) account() accessact.Account {
	return accessact.Account{AllocationID: s.Request.AllocationID, Site: s.Config.Site, IPs: s.Machine.IPs}
}

func proveLogin(ctx workflow.Context, s *ProvisionState) error {
	in := accessact.ProveLoginIn{JobRef: s.Job.At(lifecycle.StageProveLogin), Account: s.account(), Root: s.Facts.TenantRoot, Poll: s.Config.Profile.PollInterval}
	_, err := stage.Do(ctx, stage.KindNodeTask, "log in as the tenant with a one-time key", access.ProveLogin, in)
	return err
}

// installKeys puts the metadata in place first: the keys are the last that goes onto the node.
func installKeys(ctx workflow.Context, s *ProvisionState) error {
	const at = lifecycle.StageInstallKeys
	if len(s.Facts.Keys) == 0 {
		return stage.Fail(lifecycle.FailConfiguration, "every key of the allocation has ended, so that nobody could log in")
	}
	doc, err := stage.Do(ctx, stage.KindLocalWork, "gather the metadata", allocs.DescribeInstance, s.ref(at))
	if err != nil {
		return err
	}
	err = runTask(ctx, s.Job, task{stage: at, kind: lifecycle.TaskKindSetMetadata, tries: &s.Tries.Metadata,
		args: spec.SetMetadataArgs{AllocationID: s.Request.AllocationID, Document: &doc}})
	if err != nil {
		return err
	}
	if _, err := stage.Do(ctx, stage.KindLocalWork, "store that the tenant may have access", allocs.GiveAccess, s.ref(at)); err != nil {
		return err
	}
	s.KeysSent = true
	return runTask(ctx, s.Job, task{stage: at, kind: lifecycle.TaskKindSetKeys, tries: &s.Tries.Keys, args: s.keysArgs(publicKeys(s.Facts.Keys))})
}

func (s *ProvisionState) keysArgs(keys []string) spec.SetKeysArgs {
	return spec.SetKeysArgs{AllocationID: s.Request.AllocationID, User: s.user(), Keys: keys}
}

func publicKeys(keys []contract.AllocationKey) []string {
	out := make([]string, 0, len(keys))
	for _, k := range keys {
		out = append(out, k.PublicKey)
	}
	return out
}

// proveLimit is how long the node may take to accept, or refuse, all keys.
const proveLimit = 2 * time.Minute

// proveKeys has the node accept each key, and keeps where the tenant logs in.
func proveKeys(ctx workflow.Context, s *ProvisionState) error {
	const at = lifecycle.StageProveKeys
	out, err := stage.Do(ctx, stage.KindPoll, "offer each key", access.OfferKeys, accessact.OfferKeysIn{
		JobRef: s.Job.At(at), Account: s.account(), Keys: publicKeys(s.Facts.Keys), Accepted: true,
		Until: stage.Within(ctx, proveLimit, taskMargin), Poll: s.Config.Profile.PollInterval,
	})
	if err != nil {
		return err
	}
	if !out.Done || len(out.Keys) != len(s.Facts.Keys) {
		return stage.Fail(lifecycle.FailNodeTask, "the node does not accept every key of the tenant: %s", out.Note)
	}
	if s.Connection, err = connectionOf(ctx, out); err != nil {
		return err
	}
	in := allocationact.RecordKeysIn{AllocationRef: s.ref(at), Accepted: true}
	for _, k := range out.Keys {
		in.Fingerprints = append(in.Fingerprints, k.Fingerprint)
	}
	_, err = stage.Do(ctx, stage.KindLocalWork, "keep what the node accepts", allocs.RecordKeys, in)
	return err
}

// connectionOf returns where the tenant logs in: at the address at which the node accepted the
// keys.
func connectionOf(ctx workflow.Context, out accessact.OfferedKeys) (*contract.AllocationConnection, error) {
	i := strings.LastIndexByte(out.Connection.Address, ':')
	port, err := strconv.Atoi(out.Connection.Address[i+1:])
	if i < 0 || err != nil {
		return nil, stage.Fail(lifecycle.FailInternal, "the node's SSH address has no port")
	}
	return &contract.AllocationConnection{
		Host: strings.Trim(out.Connection.Address[:i], "[]"), Port: port, User: out.Connection.User,
		HostKey: out.Connection.HostKey, HostKeySHA256: out.Connection.HostKeySHA256, Since: workflow.Now(ctx).UTC(),
	}, nil
}

// activate changes nothing: the allocation becomes active with the projection that completes the
// job, so that no job holds the node any more when the tenant has it.
func activate(_ workflow.Context, s *ProvisionState) error {
	if s.Connection == nil {
		return stage.Fail(lifecycle.FailInternal, "the node has not accepted the tenant's keys")
	}
	return nil
}

// undoLimit bounds what a compensation asks the agent for: an agent that does not do it leaves the
// node to the release, which needs no agent.
const undoLimit = 3 * time.Minute

// undoKeys withdraws the tenant's keys and has the node refuse them. The tenant may have been on
// the node, and root: the release cleans it, whatever this comes to.
func undoKeys(ctx workflow.Context, s *ProvisionState) error {
	const at = lifecycle.StageInstallKeys
	if len(s.Facts.Keys) == 0 && !s.KeysSent {
		return nil // there was none left to send
	}
	s.Unproven = "the tenant's keys were on the node"
	if _, err := stage.Do(ctx, stage.KindLocalWork, "withdraw tasks", agent.RevokeTasks, agenttask.RevokeTasksIn{JobRef: s.Job}); err != nil {
		return err
	}
	if err := runTask(ctx, s.Job, task{stage: at, kind: lifecycle.TaskKindSetKeys, tries: &s.Tries.Withdraw, limit: undoLimit, undo: true, args: s.keysArgs(nil)}); err != nil {
		s.Unproven += "; they could not be withdrawn: " + string(stage.ClassOf(err))
		return nil
	}
	_, err := stage.Do(ctx, stage.KindPoll, "have each key refused", access.OfferKeys, accessact.OfferKeysIn{
		JobRef: s.Job.At(at), Account: s.account(), Keys: publicKeys(s.Facts.Keys), Until: stage.Within(ctx, proveLimit, taskMargin), Poll: s.Config.Profile.PollInterval,
	})
	if err != nil {
		s.Unproven += "; nothing proves that the node refuses them"
	}
	return nil
}

// undoAccount removes the account. Where that is not proven the release does it.
func undoAccount(ctx workflow.Context, s *ProvisionState) error {
	if _, err := stage.Do(ctx, stage.KindLocalWork, "withdraw tasks", agent.RevokeTasks, agenttask.RevokeTasksIn{JobRef: s.Job}); err != nil {
		return err
	}
	err := runTask(ctx, s.Job, task{stage: lifecycle.StageCreateAccount, kind: lifecycle.TaskKindRevokeUser, tries: &s.Tries.Revoke, limit: undoLimit, undo: true,
		args: spec.RevokeUserArgs{AllocationID: s.Request.AllocationID, User: s.user(), RemoveHome: true}})
	if err != nil && s.Unproven == "" {
		s.Unproven = "nothing proves that the tenant's account is gone"
	}
	s.unmarkMachine(ctx, lifecycle.StageCreateAccount)
	return nil
}
