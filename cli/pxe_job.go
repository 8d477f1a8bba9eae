package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// stateFlags are how a state is asked for that a job owns.
type stateFlags struct {
	comment string
	grace   int
	plan    bool
	watch   watchFlags
}

func (f *stateFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.comment, "comment", "", "why, for the node's history")
	fl.IntVar(&f.grace, "grace", 0, "how many seconds what runs on the node may take to end")
	fl.BoolVar(&f.plan, "plan", false, "show what would be done, stage by stage, and start nothing")
	f.watch.add(cmd)
	fl.BoolVar(&f.watch.on, "wait", false, "the same as --watch")
	cmd.MarkFlagsMutuallyExclusive("plan", "wait")
	cmd.MarkFlagsMutuallyExclusive("plan", "watch")
}

func (a *app) nodeDeprovision() *cobra.Command {
	var f stateFlags
	cmd := &cobra.Command{
		Use: "deprovision NODE", Short: "Erase a PXE node, prove it clean and retire it", Args: cobra.ExactArgs(1),
		Long: "Creates the job that does it: what runs on the node ends, the machine boots its erase workflow from the network, every disk is erased, a fresh boot proves it,\n" +
			"a certificate is signed, and the node is switched off and retired. Nothing brings the data back.\n\n" +
			"Asked for once more while it works, nothing happens; after its job was cancelled, the next one begins.",
		Example: "  slipway node assign-workflow pxe-525400123456 eraser --erase\n  slipway node deprovision pxe-525400123456 --plan\n" +
			"  slipway node deprovision pxe-525400123456 --comment 'end of lease' --wait",
	}
	f.add(cmd)
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		return a.startState(cmd.Context(), args[0], client.StateTransition{State: string(lifecycle.NodeDeprovisioning)}, f)
	})
	return cmd
}

func (a *app) nodeMigrate() *cobra.Command {
	var f stateFlags
	var h hardwareFlags
	var disks string
	var eraseOld bool
	cmd := &cobra.Command{
		Use: "migrate NODE", Short: "Put a PXE node on other hardware, or erase it and install it again", Args: cobra.ExactArgs(1),
		Long: "Creates the job that does it; the node's id, history and labels stay. It waits for the new hardware to be planned, by the flags here or later by slipway node replace-hardware.\n\n" +
			"With new disks the new machine is installed by the node's install workflow and its agent enrols again; with moved disks it boots what is on them.\n" +
			"With the same disks the node keeps its hardware: every disk is erased, a fresh boot proves it, a certificate is signed, and the node is installed again and returns to service.",
		Example: "  slipway node migrate pxe-525400123456 --mac 52:54:00:65:43:21 --serial S2 --keep-bmc --erase-old --wait\n" +
			"  slipway node migrate pxe-525400123456 --disks moved --mac 52:54:00:65:43:21 --bmc-address 10.30.0.8 --bmc-credential-ref bmc/rack7-5\n" +
			"  slipway node migrate pxe-525400123456 --disks same --comment 'the last user has left' --wait",
	}
	cmd.Flags().StringVar(&disks, "disks", "new", "new: the new hardware brings its own; moved: the node's disks move into it; same: the node keeps its hardware, which is erased and installed again")
	cmd.Flags().BoolVar(&eraseOld, "erase-old", false, "erase the old hardware first and prove it clean; needs an erase workflow")
	h.add(cmd)
	f.add(cmd)
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		body := client.StateTransition{State: string(lifecycle.NodeMigrating), Disks: optional[client.StateTransitionDisks](disks), EraseOld: &eraseOld}
		if h.named() {
			hardware, err := h.body()
			if err != nil {
				return err
			}
			body.Hardware = &hardware
		}
		return a.startState(cmd.Context(), args[0], body, f)
	})
	return cmd
}

// startState sets a state together with its job.
func (a *app) startState(ctx context.Context, name string, body client.StateTransition, f stateFlags) error {
	id, err := a.nodeOf(ctx, name)
	if err != nil {
		return err
	}
	if f.plan {
		return a.planState(ctx, id, body, f)
	}
	body.Comment, body.GraceSeconds = optional[string](f.comment), graceSeconds(f.grace)
	r, err := a.api.SetNodeState(ctx, id, body, client.IfMatch("*"))
	n, err := client.Value(r, err)
	if err != nil {
		return err
	}
	if f.watch.on && n.Pxe != nil {
		return a.watchJob(ctx, n.Pxe.JobID, f.watch)
	}
	return a.showState(r)
}

// planState shows what the job of a state would do.
func (a *app) planState(ctx context.Context, id string, asked client.StateTransition, f stateFlags) error {
	body := client.DecommissionPlanRequest{NodeID: id, Mode: client.DecommissionPlanRequestMode(lifecycle.ModeDeprovision), GraceSeconds: graceSeconds(f.grace)}
	if asked.State == string(lifecycle.NodeMigrating) {
		body.Mode, body.EraseOld, body.Hardware = client.DecommissionPlanRequestMode(lifecycle.ModeMigrate), asked.EraseOld, asked.Hardware
		body.Disks = (*client.DecommissionPlanRequestDisks)(asked.Disks)
	}
	r, err := a.api.PlanNewDecommission(ctx, body)
	if err != nil {
		return err
	}
	return a.showPlan(r)
}

// showState says what a node is now, and which job works on it.
func (a *app) showState(r client.Answer[client.Node]) error {
	return a.sayNode(r, func(n client.Node) string {
		text := n.Hostname + " is " + n.Status
		if n.Pxe != nil && n.Pxe.JobID != "" {
			text += fmt.Sprintf("; job %s works on it (slipway job show %s --watch)", n.Pxe.JobID, n.Pxe.JobID)
		}
		return text
	})
}

// pxeBMC is a BMC as an operator names it, by flags that begin with a prefix.
type pxeBMC struct {
	prefix                                  string
	address, credential, systemID, protocol string
	cipherSuite                             int
}

func (b *pxeBMC) add(cmd *cobra.Command, what string) {
	f := cmd.Flags()
	f.StringVar(&b.address, b.prefix+"address", "", what)
	f.StringVar(&b.credential, b.prefix+"credential-ref", "", "secret that holds the BMC's login")
	f.StringVar(&b.protocol, b.prefix+"protocol", "", "redfish or ipmi (default redfish)")
	f.StringVar(&b.systemID, b.prefix+"system-id", "", "which system, where the BMC has several")
	f.IntVar(&b.cipherSuite, "ipmi-cipher-suite", 0, "over IPMI only: 17, or 3 for a device that has nothing better")
}

func (b *pxeBMC) named() bool {
	return b.cipherSuite != 0 || b.address+b.credential+b.protocol+b.systemID != ""
}

func (b *pxeBMC) body() (client.BMCRequest, error) {
	if b.address == "" || b.credential == "" {
		return client.BMCRequest{}, fail(ExitUsage, "name the BMC and its login: --%saddress and --%scredential-ref go together", b.prefix, b.prefix)
	}
	return bmcFlags{Address: b.address, Credential: b.credential, SystemID: b.systemID, Protocol: b.protocol, CipherSuite: b.cipherSuite}.request(), nil
}

func (a *app) nodeSetBMC() *cobra.Command {
	var b pxeBMC
	var pin string
	cmd := &cobra.Command{
		Use: "set-bmc NODE --address ADDRESS --credential-ref SECRET", Short: "Record the BMC of a PXE node", Args: cobra.ExactArgs(1),
		Long: "The node's jobs switch the machine on and off through it; without one they wait for somebody to do it by hand.",
	}
	b.add(cmd, "host, host:port or https://host:port")
	cmd.Flags().StringVar(&pin, "pin", "", "pin of its certificate, if you have compared it; else the first job that logs in waits for slipway bmc approve-pin")
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		body, err := b.body()
		if err != nil {
			return err
		}
		id, err := a.nodeOf(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		r, err := a.api.PutNodeBmc(cmd.Context(), id, client.NodeBMCRequest{
			Address: body.Address, CredentialRef: body.CredentialRef, SystemID: body.SystemID, PinSha256: pin,
			Protocol: client.NodeBMCRequestProtocol(body.Protocol), IpmiCipherSuite: client.NodeBMCRequestIpmiCipherSuite(body.IpmiCipherSuite),
		})
		if err != nil {
			return err
		}
		return show(a, r, func(got client.BMC) error {
			_, err := fmt.Fprintf(a.Out, "%s at %s\n", oneLine(got.ID), oneLine(got.Address))
			return err
		})
	})
	return cmd
}

// hardwareFlags name the hardware that takes a node's place.
type hardwareFlags struct {
	macs         []string
	serial, uuid string
	bmc          pxeBMC
	keepBMC      bool
}

func (h *hardwareFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&h.macs, "mac", nil, "address of the new hardware, first the one that it boots with; may be repeated")
	f.StringVar(&h.serial, "serial", "", "its serial number; the job stops when the machine says another")
	f.StringVar(&h.uuid, "uuid", "", "its system UUID")
	h.bmc.prefix = "bmc-"
	h.bmc.add(cmd, "its BMC: host, host:port or https://host:port")
	f.BoolVar(&h.keepBMC, "keep-bmc", false, "the BMC that the node has stays the same, as when only a network card was replaced")
}

// named says that any of the flags was given.
func (h *hardwareFlags) named() bool {
	return len(h.macs) > 0 || h.keepBMC || h.serial+h.uuid != "" || h.bmc.named()
}

func (h *hardwareFlags) body() (client.HardwareRequest, error) {
	body := client.HardwareRequest{MacAddresses: h.macs, SerialNumber: &h.serial, SystemUUID: &h.uuid, KeepBmc: &h.keepBMC}
	if len(h.macs) == 0 {
		return body, fail(ExitUsage, "name the addresses of the new hardware with --mac, first the one that it boots with")
	}
	if h.bmc.named() {
		bmc, err := h.bmc.body()
		if err != nil {
			return body, err
		}
		if h.keepBMC {
			return body, fail(ExitUsage, "--keep-bmc says that the BMC stays the same, and --bmc-address names another; leave one of the two out")
		}
		body.Bmc = &bmc
	}
	return body, nil
}

func (a *app) nodeHardware() *cobra.Command {
	var h hardwareFlags
	cmd := &cobra.Command{
		Use: "replace-hardware NODE --mac MAC", Short: "Plan the hardware of a migrating PXE node", Args: cobra.ExactArgs(1),
		Long: "For a node that slipway node migrate works on. It may be changed until the job has put the node on it.",
	}
	h.add(cmd)
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		body, err := h.body()
		if err != nil {
			return err
		}
		id, err := a.nodeOf(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		r, err := a.api.PlanNodeHardware(cmd.Context(), id, body, client.IfMatch("*"))
		if err != nil {
			return err
		}
		return a.sayNode(r, func(n client.Node) string { return "planned for " + n.Hostname + ": " + plannedText(n.Pxe) })
	})
	return cmd
}

// netbootText says what a job boots a node from the network for.
func netbootText(n *client.Netboot, named func(id string) string) string {
	if n == nil {
		return ""
	}
	return fmt.Sprintf("%s with %s, for job %s", n.Purpose, named(n.WorkflowID), n.JobID)
}

// plannedText says in one line what a node is to get.
func plannedText(p *client.NodePXE) string {
	if p == nil || p.PlannedHardware == nil {
		return ""
	}
	h := p.PlannedHardware
	parts := []string{strings.Join(h.MacAddresses, ", ")}
	for _, x := range [][2]string{{"serial ", h.SerialNumber}, {"uuid ", h.SystemUUID}} {
		if x[1] != "" {
			parts = append(parts, x[0]+x[1])
		}
	}
	if h.Bmc != nil {
		parts = append(parts, "BMC "+h.Bmc.Address)
	}
	parts = append(parts, string(h.Disks)+" disks")
	if h.ReplacedBy != "" {
		parts = append(parts, "the node stands on it")
	}
	return strings.Join(parts, "; ")
}
