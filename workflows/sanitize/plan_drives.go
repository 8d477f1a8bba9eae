package sanitize

import (
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// unknownDrives is why a job parks that would erase drives of a node of which nothing names any.
const unknownDrives = "no record and no report names the drives of the node, so that none may be erased: the job parks until the drives that an agent reports are accepted"

// AddDrives adds to a plan that would still erase or look at drives those that the node is expected
// to have, and those that are protected.
func (p *Predictor) AddDrives(out contract.Plan) contract.Plan {
	if !out.ReadsDrives() {
		return out
	}
	out.Drives, out.DrivesFrom, out.ProtectSerials = contract.PlanDrives(p.State.Node.Drives, p.State.Node.ProtectSerials), p.State.Node.DrivesFrom, p.State.Node.ProtectSerials
	return out.Hashed()
}

func isProtected(serial string, protected []string) bool {
	return contract.PlanDrives([]spec.ExpectedDrive{{Serial: serial}}, protected)[0].Protected
}
