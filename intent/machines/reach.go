package machines

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/slipway-cloud/slipway/db"
	machinesdb "github.com/slipway-cloud/slipway/db/machines"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/lifecycle/runplan"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// logsIn reports whether a plan logs in to its machine as its record says now. A step that installs
// the machine gives it its addresses and its host key, so that later steps need none of before.
func logsIn(p runplan.Plan) bool {
	for _, s := range p.Steps {
		switch s.Kind() {
		case runplan.KindRepave:
			return false
		case runplan.KindSSH, runplan.KindReboot, runplan.KindNet, runplan.KindJoin, runplan.KindVerify:
			return true
		case runplan.KindNetboot, runplan.KindRMA:
		}
	}
	return false
}

// checkLogin refuses a plan that logs in to a machine without an address, a site or a pinned host
// key: its run would fail at once and leave the machine in MAINTENANCE.
func checkLogin(ctx context.Context, tx *db.Tx, in Start, m machinesdb.Machine, plan runplan.Plan) error {
	if in.LogsIn == nil || !in.LogsIn(m.Spec.Provider) || !logsIn(plan) {
		return nil
	}
	refuse := func(format string, args ...any) error {
		if in.Project != "" {
			// How the platform reaches its machines is not for customers.
			format, args = "the platform cannot log in to the machine now; ask its operator", nil
		}
		return &intent.Refusal{Kind: intent.ActionRefused, Existing: m.ID, Detail: fmt.Sprintf(format, args...)}
	}
	address, hostKey, siteID := m.Spec.SSHEndpoint, m.HostKey, m.SiteID
	var node db.Node
	if m.NodeID != nil {
		var err error
		if node, err = tx.Node(ctx, *m.NodeID); err != nil {
			return err
		}
		hostKey, siteID = node.SSHHostKey, node.SiteRef
	}
	if siteID == nil {
		return refuse("the machine has no site, whose login and networks hold for it; an administrator has to set its access")
	}
	site, err := tx.Site(ctx, *siteID)
	if err != nil {
		return err
	}
	if address == "" {
		address = node.SSHAddress
	}
	if address == "" {
		address = site.Spec.SSHAddress(node.IPAddresses)
	}
	switch {
	case address == "" && node.ID != "":
		return refuse("no address of node %s of the machine is known yet: neither MAAS nor its agent has named one", node.Hostname)
	case address == "":
		return refuse("the machine has no spec.ssh_endpoint, and is linked to no node whose address would count")
	case site.Spec.SSHKeyRef == "":
		return refuse("site %s of the machine has no SSH key to log in with; an administrator has to give it one", site.Name)
	case hostKey == "":
		return refuse("the SSH host key of the machine is not pinned, so that nothing would prove which machine answers; an administrator has to set its access")
	}
	// An address that is a name is looked up when the run logs in.
	if at, err := netip.ParseAddrPort(address); err == nil {
		if err := site.Spec.AddressRule(spec.SecretSSHKey, site.Name).Check(at); err != nil {
			return refuse("the site of the machine allows no login there: %v", err)
		}
	}
	return nil
}
