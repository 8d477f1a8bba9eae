package tenancy

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/slipway-cloud/slipway/db"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// CheckQuota returns a refusal with the numbers when inUse and want together are more than limits
// allow. Both count nodes by the id of their SKU.
func CheckQuota(limits tenancydb.Limits, inUse, want map[string]int) error {
	var over []string
	used, asked := 0, 0
	for _, n := range inUse {
		used += n
	}
	for _, sku := range slices.Sorted(maps.Keys(want)) {
		n := want[sku]
		if n <= 0 {
			return &intent.Refusal{Kind: intent.Invalid, Fields: []intent.Field{{Name: "count", Message: "must be at least 1"}}}
		}
		asked += n
		if limit, set := limits.PerSKU[sku]; set && (n > limit || inUse[sku] > limit-n) {
			over = append(over, fmt.Sprintf("of %s it has %d of %d nodes and asks for %d", sku, inUse[sku], limit, n))
		}
	}
	if asked > limits.Total || used > limits.Total-asked {
		over = append(over, fmt.Sprintf("of all SKUs it has %d of %d nodes and asks for %d", used, limits.Total, asked))
	}
	if len(over) == 0 {
		return nil
	}
	return &intent.Refusal{Kind: intent.Conflict, Detail: "the quota of the project does not allow this: " + strings.Join(over, "; ") +
		"; release nodes, or ask an operator for a higher quota"}
}

// AdmitNodes decides in the transaction of a claim whether a project may have more nodes. It locks
// the project first, so that claims of one project decide one after the other; count is called
// under the lock and returns the nodes in use by the id of their SKU.
func AdmitNodes(ctx context.Context, tx *db.Tx, projectID string, want map[string]int, count func(context.Context) (map[string]int, error)) error {
	project, limits, err := tenancydb.LockLimits(ctx, tx, projectID)
	if err != nil {
		return err
	}
	if err := RequireActive(project); err != nil {
		return err
	}
	inUse, err := count(ctx)
	if err != nil {
		return err
	}
	return CheckQuota(limits, inUse, want)
}

// RequireActive refuses a project that is being closed or is closed.
func RequireActive(p tenancydb.Project) error {
	if p.Status == lifecycle.ProjectActive {
		return nil
	}
	return &intent.Refusal{Kind: intent.Conflict, Detail: "the project is " + string(p.Status) + ": it can be read, and nothing can be changed"}
}
