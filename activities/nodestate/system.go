package nodestate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// SystemIn is the input of WaitForSystem.
type SystemIn struct {
	contract.JobRef
	// Purpose is what the system was booted for. "" waits for a system whose disks were moved,
	// under the identity that it had.
	Purpose lifecycle.Netboot `json:"purpose,omitempty"`
	// NotBootID is a boot that must have ended.
	NotBootID string `json:"not_boot_id,omitempty"`
	// Healthy requires a report that meets the SKU.
	Healthy bool          `json:"healthy,omitempty"`
	SKU     spec.SKUSpec  `json:"sku"`
	Poll    spec.Duration `json:"poll,omitempty"`
	// Until is when the wait fails with Class.
	Until time.Time              `json:"until,omitzero"`
	Class lifecycle.FailureClass `json:"class,omitempty"`
}

// unhealthyPolls is how many polls in a row a report may fall short of the SKU before that is a
// failure: drivers and links come up after the agent.
const unhealthyPolls = 30

// WaitForSystem waits until the agent of the system that the job booted has enrolled and sends
// heartbeats, or until the agent on moved disks has restarted. It fails with Class at Until and
// says what was seen instead; at once when its installer has failed as often as counts. With
// ObserveOnly it reads once.
func (a *Activities) WaitForSystem(ctx context.Context, in SystemIn) (contract.SystemFacts, error) {
	var out contract.SystemFacts
	bad := 0
	err := fault.PollStore(ctx, in.Poll.D(), func() (bool, error) {
		var problems []string
		var err error
		if out, problems, err = a.readSystem(ctx, in); err != nil {
			return false, err
		}
		if activity.IsActivity(ctx) {
			activity.RecordHeartbeat(ctx, out)
		}
		if len(problems) > 0 {
			if bad++; bad > unhealthyPolls && !in.ObserveOnly {
				return false, fault.New(lifecycle.FailNodeUnhealthy, "the node does not meet its SKU: %s", strings.Join(problems, "; "))
			}
		}
		if !out.Done && !in.Until.IsZero() && time.Now().After(in.Until) {
			return false, fault.New(in.Class, "%s", out.Note)
		}
		return out.Done || in.ObserveOnly, nil
	})
	if _, typed := fault.Failure(err); typed {
		return out, err
	}
	return out, fault.Internal(ctx, err)
}

// readSystem reads what is known now. It returns what a report lacks of the SKU as problems.
func (a *Activities) readSystem(ctx context.Context, in SystemIn) (out contract.SystemFacts, problems []string, err error) {
	n, err := a.Store.Node(ctx, in.NodeID)
	if err != nil {
		return out, nil, err
	}
	if err := requireJobState(n); err != nil {
		return out, nil, err
	}
	p, err := a.Store.PXENode(ctx, in.NodeID)
	if err != nil {
		return out, nil, err
	}
	if !in.ObserveOnly && in.Purpose == lifecycle.NetbootInstall && db.HasInstallerFailed(p) {
		return out, nil, fault.New(in.Class, "the installer has failed %d times, the last time with the error: %s; look at the machine's console and its install workflow, "+
			"then retry the stage, which installs it once more", len(p.Warned), n.LastInstallError)
	}
	// A report that came with a token counts before what the firmware said at its last boot.
	out.Serial = cmp.Or(p.Facts.SerialNumber, p.Firmware.SerialNumber)
	heartbeat, missing, err := a.heartbeatOf(ctx, in, n, p)
	out.BootID = heartbeat.BootID
	if err != nil || missing != "" {
		out.Note = missing
		return out, nil, err
	}
	out.Note = "its agent runs in boot " + heartbeat.BootID
	if heartbeat.Report != nil {
		out.Simulated = heartbeat.Report.Simulated
	}
	if !in.Healthy {
		out.Done = true
		return out, nil, nil
	}
	if heartbeat.Report == nil || heartbeat.ReportBootID != heartbeat.BootID {
		out.Note = "its agent has not reported yet what the machine has"
		return out, nil, nil
	}
	if problems = in.SKU.CheckHealth(*heartbeat.Report); len(problems) > 0 {
		out.Note = "the node does not meet its SKU: " + strings.Join(problems, "; ")
		return out, problems, nil
	}
	out.Done = true
	if in.ObserveOnly {
		return out, nil, nil
	}
	return out, nil, a.Store.Tx(ctx, func(tx *db.Tx) error { return tx.FreezeDrives(ctx, in.NodeID) })
}

// heartbeatOf reads the newest heartbeat. It returns what is missing when the heartbeat is not one
// of the awaited system.
func (a *Activities) heartbeatOf(ctx context.Context, in SystemIn, n db.Node, p db.PXENode) (heartbeat db.LatestHeartbeatRow, missing string, err error) {
	heartbeat, err = a.Store.LatestHeartbeat(ctx, in.NodeID)
	none := errors.Is(err, db.ErrNotFound)
	if err != nil && !none {
		return heartbeat, "", err
	}
	now, err := a.Store.Clock(ctx) // the clock that dates heartbeats
	if err != nil {
		return heartbeat, "", err
	}
	if in.Purpose != "" {
		enrolled, err := a.Store.EnrolledGeneration(ctx, in.NodeID)
		switch {
		case err != nil:
			return heartbeat, "", err
		case enrolled == 0:
			return heartbeat, notEnrolled(in, n, p, heartbeat), nil
		case none || heartbeat.Generation < enrolled:
			return heartbeat, "its agent has enrolled and sent no heartbeat yet", nil
		case in.Purpose == lifecycle.NetbootInstall && p.NetbootPurpose == in.Purpose && p.NetbootDoneAt == nil:
			return heartbeat, "the installer has not said that it is complete (user-data: {{ report \"complete\" }})", nil
		}
	}
	switch {
	case none:
		return heartbeat, "its agent has never been heard", nil
	case in.NotBootID != "" && heartbeat.BootID == in.NotBootID:
		return heartbeat, "its agent is still in the boot that is to be over", nil
	case now.Sub(heartbeat.ReceivedAt) > a.silentAfter():
		return heartbeat, "no heartbeat since " + heartbeat.ReceivedAt.UTC().Format(time.RFC3339), nil
	}
	return heartbeat, "", nil
}

// notEnrolled describes how far the machine has come: what it boots, what it reported, and whether
// the old system booted instead.
func notEnrolled(in SystemIn, n db.Node, p db.PXENode, heartbeat db.LatestHeartbeatRow) string {
	out := fmt.Sprintf("no agent has enrolled from what the machine is to boot from the network (%s)", in.Purpose)
	if heartbeat.BootID != "" && in.NotBootID != "" && heartbeat.BootID != in.NotBootID && p.StartedAt == nil {
		out += "; its installed system was heard in a new boot instead, so the machine does not boot from the network first"
	}
	if p.StartedAt != nil {
		out += fmt.Sprintf("; it reported that it started at %s", p.StartedAt.UTC().Format(time.RFC3339))
	}
	if n.LastInstallError != "" {
		out += "; it reported the error: " + n.LastInstallError
	}
	return out + "; the machine was last seen on the boot network at " + p.SeenAt.UTC().Format(time.RFC3339)
}
