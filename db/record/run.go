package record

import (
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
)

// PlanSteps are the steps of a plan, or a run's own copy of them.
type PlanSteps []runplan.Step

// StageRows are the steps of a run as its job last projected them.
type StageRows []lifecycle.StageRow
