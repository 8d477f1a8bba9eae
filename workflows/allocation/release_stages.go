package allocation

import (
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/slipway-cloud/slipway/activities/agenttask"
	allocationact "github.com/slipway-cloud/slipway/activities/allocation"
	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	maasact "github.com/slipway-cloud/slipway/activities/maas"
	accessact "github.com/slipway-cloud/slipway/activities/tenantaccess"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/workflows/sanitize"
	"github.com/slipway-cloud/slipway/workflows/stage"
)

// closeTerminals reads what the job goes by. It is the place where terminals are closed.
func closeTerminals(ctx workflow.Context, s *ReleaseState) error {
	const at = lifecycle.StageCloseTerminals
	f, err := stage.Do(ctx, stage.KindPoll, "take the node", allocs.TakeNode, s.ref(at))
	if err != nil {
		return err
	}
	if f.NodeID == "" {
		return stage.Cancel("the allocation has ended another way, and its node is not its own any more")
	}
	s.Facts, s.Access, s.Job.NodeID, s.Job.SiteID = f, f.Access, f.NodeID, f.SiteID
	if s.Begun {
		return nil
	}
	// The site is read from the database alone: what ends the access waits for nobody.
	c, err := stage.Do(ctx, stage.KindLocalWork, "read the site", maas.LoadNodeConfig, maasact.NodeConfigIn{JobRef: s.Job.At(at)})
	if err != nil {
		return err
	}
	n, err := stage.Do(ctx, stage.KindLocalWork, "look at the node", nodeActs.ReadNodeFacts, s.Job.At(at))
	if err != nil {
		return err
	}
	s.Cleaning = sanitize.NewTenantRelease(s.Job, contract.KindAllocationRelease, f.TenantRoot)
	s.Cleaning.Config, s.Cleaning.Node, s.Begun = c, n, true
	return nil
}

// defaultRevokeLimit is for a policy that says nothing.
const defaultRevokeLimit = 2 * time.Minute

// revokeAccess ends the tenant's access. The agent is asked first, so that processes end in order.
// On a node whose tenant is root its answer proves nothing, and neither does sshd's: there the
// power is always cut. On any other node the keys have to be refused from outside.
func revokeAccess(ctx workflow.Context, s *ReleaseState) error {
	const at = lifecycle.StageRevokeAccess
	if s.Access == lifecycle.AccessRevoked {
		return nil
	}
	limit := defaultRevokeLimit
	if s.Facts.RevokeSeconds > 0 {
		limit = time.Duration(s.Facts.RevokeSeconds) * time.Second
	}
	until := workflow.Now(ctx).Add(limit)
	said := s.revokeByAgent(ctx, until)
	if said == "" && !s.Facts.TenantRoot {
		if said = s.proveRefused(ctx, until); said == "" {
			return s.endAccess(ctx, at, lifecycle.AccessRevoked, "the node refuses every key of the tenant, and his account is gone")
		}
	}
	proof, why := s.cutPower(ctx, at, limit)
	if proof == "" {
		if err := s.endAccess(ctx, at, lifecycle.AccessUnconfirmed, ""); err != nil {
			return err
		}
		return stage.Fail(lifecycle.FailAccessUnconfirmed, "nothing proves that the tenant's access has ended: %s", join(said, why))
	}
	if !s.Facts.TenantRoot {
		// The agent could not prove it, so it cleans nothing either.
		s.Cleaning.Mode = lifecycle.ModeReimage
	}
	s.readOff(ctx)
	return s.endAccess(ctx, at, lifecycle.AccessRevoked, proof)
}

func join(parts ...string) string {
	var out []string
	for _, p := range parts {
		if p != "" {
			out = append(out, p)
		}
	}
	return strings.Join(out, "; ")
}

// revokeByAgent has the agent end the tenant's processes and remove his account. It returns why
// that did not happen, "" where the agent says that it did.
func (s *ReleaseState) revokeByAgent(ctx workflow.Context, until time.Time) string {
	const at = lifecycle.StageRevokeAccess
	f, err := stage.Do(ctx, stage.KindLocalWork, "look at the node", nodeActs.ReadNodeFacts, s.Job.At(at))
	if err != nil {
		return "the node's record could not be read"
	}
	if f.Agent != contract.AgentAlive {
		return "the agent is not heard: " + f.Note
	}
	user := lifecycle.TenantAccount(s.Request.AllocationID)
	err = runTask(ctx, s.Job, task{stage: at, kind: lifecycle.TaskKindRevokeUser, tries: &s.Revoke, limit: until.Sub(workflow.Now(ctx)) / 2,
		args: spec.RevokeUserArgs{AllocationID: s.Request.AllocationID, User: user, RemoveHome: true}})
	if err != nil {
		_, _ = stage.Do(ctx, stage.KindLocalWork, "withdraw the task", agent.RevokeTasks, agenttask.RevokeTasksIn{JobRef: s.Job})
		return "the agent did not remove the account: " + string(stage.ClassOf(err))
	}
	return ""
}

// proveRefused has the node refuse every key. It returns why that is not proven.
func (s *ReleaseState) proveRefused(ctx workflow.Context, until time.Time) string {
	const at = lifecycle.StageRevokeAccess
	keys := publicKeys(slices.Concat(s.Facts.Keys, s.Facts.Former))
	if len(keys) == 0 {
		return ""
	}
	account := accessact.Account{AllocationID: s.Request.AllocationID, Site: s.Cleaning.Config.Site}
	if s.Cleaning.Node.SystemID != "" {
		m, err := stage.Do(ctx, stage.KindMAASCall, "read the node's addresses", maas.ObserveMachine, maasact.MachineIn{JobRef: s.Job.At(at), SystemID: s.Cleaning.Node.SystemID})
		if err == nil {
			account.IPs = m.IPs
		}
	}
	for some := range slices.Chunk(keys, spec.MaxTenantKeys) {
		out, err := stage.Do(ctx, stage.KindPoll, "have each key refused", access.OfferKeys, accessact.OfferKeysIn{
			JobRef: s.Job.At(at), Account: account, Keys: some, Until: until, Poll: s.Cleaning.Config.Profile.PollInterval,
		})
		if err != nil || !out.Done {
			return "nothing proves that the node refuses the tenant's keys"
		}
	}
	return ""
}

// cutPower switches the machine off. It returns who reads it off, or why nobody does. The BMC is
// asked first: MAAS asks the same BMC, and has limit to read it off. Until the access is called
// unconfirmed nobody looks at the node.
func (s *ReleaseState) cutPower(ctx workflow.Context, at string, limit time.Duration) (proof, why string) {
	if id := s.Cleaning.Node.BMCID; id != "" {
		in := bmcact.PowerIn{JobRef: s.Job.At(at), BMCID: id, CAPEM: s.Cleaning.Config.Site.BMCCAPEM}
		f, err := stage.Do(ctx, stage.KindBMCCall, "power off at the BMC", bmc.PowerOffByBMC, in)
		if err == nil && f.Done {
			s.Cleaning.Power = f
			return "the BMC reads the machine off", ""
		}
		why = "the BMC did not switch the machine off: " + string(stage.ClassOf(err))
	}
	if id := s.Cleaning.Node.SystemID; id != "" {
		f, err := stage.Do(ctx, stage.KindBMCCall, "power off by MAAS", maas.PowerOffByMAAS, maasact.MachineIn{JobRef: s.Job.At(at), SystemID: id, Within: limit})
		if err == nil && f.Done && f.State == "off" {
			s.Cleaning.Power = f
			return "MAAS reads the machine off", ""
		}
		why = join(why, "MAAS did not switch the machine off: "+string(stage.ClassOf(err)))
	}
	if why == "" {
		why = "Slipway knows neither a BMC nor a MAAS machine of the node"
	}
	return "", why
}

func (s *ReleaseState) endAccess(ctx workflow.Context, at, how, proof string) error {
	in := allocationact.EndAccessIn{AllocationRef: s.ref(at), Access: how, Proof: proof}
	f, err := stage.Do(ctx, stage.KindLocalWork, "record the end of the tenant's access", allocs.EndAccess, in)
	if err == nil {
		s.Access, s.AccessProof = f.Access, proof
	}
	return err
}

// stopUsage fails where the charge has no end: nothing is charged after the tenant's access.
func stopUsage(ctx workflow.Context, s *ReleaseState) error {
	f, err := stage.Do(ctx, stage.KindLocalWork, "end the charge", allocs.StopUsage, s.ref(lifecycle.StageStopUsage))
	if err == nil {
		s.Facts = f
	}
	return err
}

// detachStorage is the place where the tenant's storage is detached. The scrub unmounts the mounts
// of the node's own system.
func detachStorage(ctx workflow.Context, s *ReleaseState) error {
	return s.Cleaning.Load(ctx, lifecycle.StageDetachStorage)
}

func (s *ReleaseState) occupy(ctx workflow.Context, at string, state lifecycle.Occupancy) error {
	in := allocationact.OccupyIn{AllocationRef: s.ref(at), State: state}
	_, err := stage.Do(ctx, stage.KindLocalWork, "write the node's history", allocs.RecordOccupancy, in)
	return err
}

func validateFirmware(ctx workflow.Context, s *ReleaseState) error {
	in := bmcact.SettingsIn{AllocationRef: s.ref(lifecycle.StageValidateFirmware), BMCID: s.Cleaning.Node.BMCID, CAPEM: s.Cleaning.Config.Site.BMCCAPEM}
	f, err := stage.Do(ctx, stage.KindBMCCall, "compare the BMC's settings", bmc.CompareSettings, in)
	if err != nil {
		return err
	}
	if s.Settings = f; len(f.Changed) > 0 {
		return stage.Fail(lifecycle.FailFirmwareChanged, "the BMC shows other settings than at the claim: %s", strings.Join(f.Changed, "; "))
	}
	return nil
}

func certify(ctx workflow.Context, s *ReleaseState) error {
	if s.Access != lifecycle.AccessRevoked {
		return stage.Fail(lifecycle.FailAccessUnconfirmed, "nothing proves that the tenant's access has ended")
	}
	if err := s.provesRotation(); err != nil {
		return err
	}
	s.Cleaning.NotVerified = s.notVerified()
	return s.Cleaning.Certify(ctx, lifecycle.StageCertify)
}

// freeNode changes nothing outside: the allocation lets go of the node with the projection that
// completes the job, so that no job holds the node any more when the next tenant claims it.
func freeNode(ctx workflow.Context, s *ReleaseState) error {
	if !s.proven() {
		return stage.Fail(lifecycle.FailScrubUnverified, "no certificate proves the node clean")
	}
	return s.occupy(ctx, lifecycle.StageFreeNode, lifecycle.OccupancyClean)
}
