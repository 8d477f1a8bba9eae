package cli

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	slipwayv1 "github.com/slipway-cloud/slipway/proto/gen/slipway/v1"
	"github.com/slipway-cloud/slipway/proto/gen/slipway/v1/slipwayv1connect"
)

// asProject are the flags of a caller who acts in a project. While a command runs, project is its
// id.
type asProject struct{ project, reason string }

// add adds the flags to a command, which finds the project before it runs.
func (p *asProject) add(a *app, cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.project, "project", "", "act in this project, by name or id (default, for customers: SLIPWAY_PROJECT, or that of slipway use, or of the token)")
	cmd.PreRunE = does(func(cmd *cobra.Command, _ []string) (err error) {
		p.project, err = a.actIn(cmd.Context(), p.project)
		return err
	})
	cmd.Flags().StringVar(&p.reason, "access-reason", "", "why an operator acts in a customer's project; its owners see it")
}

// request returns the request of a message.
func request[T any](p asProject, m *T) *connect.Request[T] {
	r := connect.NewRequest(m)
	if p.project != "" {
		r.Header().Set("Slipway-Project", p.project)
	}
	if p.reason != "" {
		r.Header().Set("Slipway-Reason", p.reason)
	}
	return r
}

// bounded bounds a call that is no stream.
func (a *app) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, a.timeout)
}

func (a *app) machines() slipwayv1connect.MachineServiceClient {
	return slipwayv1connect.NewMachineServiceClient(sender{a}, anyServer)
}

func (a *app) plans() slipwayv1connect.PlanServiceClient {
	return slipwayv1connect.NewPlanServiceClient(sender{a}, anyServer)
}

func (a *app) runs() slipwayv1connect.RunServiceClient {
	return slipwayv1connect.NewRunServiceClient(sender{a}, anyServer)
}

// called returns the error of a call with the exit code that it ends in.
func called(err error) error {
	var f *failure
	if err == nil || errors.As(err, &f) {
		return err
	}
	code := ExitError
	switch connect.CodeOf(err) { //nolint:exhaustive // the others end in the code of any error
	case connect.CodeNotFound, connect.CodeOutOfRange:
		code = ExitNotFound
	case connect.CodeFailedPrecondition, connect.CodeAborted:
		code = ExitRefused
	case connect.CodeInvalidArgument:
		code = ExitUsage
	case connect.CodeUnauthenticated, connect.CodePermissionDenied:
		code = ExitUnauthorised
	case connect.CodeUnavailable:
		code = ExitUnreachable
	}
	var c *connect.Error
	if errors.As(err, &c) {
		return fail(code, "%s", oneLine(c.Message()))
	}
	return &failure{code, err}
}

// print shows a message: as JSON with the names of the specification, or by printText.
func (a *app) print(m proto.Message, printText func() error) error {
	raw, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(m)
	if err != nil {
		return fmt.Errorf("the server's answer cannot be shown: %w", err)
	}
	return a.show(raw, printText)
}

func (a *app) machineCommand() *cobra.Command {
	return group("machine", "Machines of the API for automation", a.machineList(), a.machineGet(), a.machineApply("register", "Register a machine from a file, or update it"),
		a.machineApply("update", "Replace labels and specification of a machine"), a.machinePhase(), a.machineAccess())
}

func (a *app) machineList() *cobra.Command {
	var in slipwayv1.ListMachinesRequest
	var as asProject
	cmd := &cobra.Command{
		Use: "list", Short: "List machines", Args: cobra.NoArgs,
		Long: "A filter is field=value or field!=value, joined by AND: slipway machine list --filter 'phase=READY AND labels.env=prod'",
	}
	cmd.Flags().StringVar(&in.Filter, "filter", "", "which machines")
	as.add(a, cmd)
	cmd.RunE = does(func(cmd *cobra.Command, _ []string) error {
		all := &slipwayv1.ListMachinesResponse{}
		for {
			ctx, cancel := a.bounded(cmd.Context())
			out, err := a.machines().ListMachines(ctx, request(as, &in))
			cancel()
			if err != nil {
				return called(err)
			}
			all.Machines = append(all.Machines, out.Msg.GetMachines()...)
			if in.PageToken = out.Msg.GetNextPageToken(); in.PageToken == "" {
				break
			}
		}
		return a.print(all, func() error {
			t := a.table("MACHINE", "STATE", "PHASE", "PROVIDER", "RUN", "NOTES")
			for _, m := range all.GetMachines() {
				s := m.GetStatus()
				t.row(m.GetMachineId(), s.GetEffectiveState(), s.GetPhase(), m.GetSpec().GetProvider(), s.GetActiveRunId(), strings.Join(s.GetBanners(), ", "))
			}
			return t.flush()
		})
	})
	return cmd
}

// showMachine prints one machine.
func (a *app) showMachine(out *connect.Response[slipwayv1.Machine], err error) error {
	if err != nil {
		return called(err)
	}
	m := out.Msg
	return a.print(m, func() error {
		s := m.GetStatus()
		t := a.table("FIELD", "VALUE")
		for _, row := range [][2]any{
			{"machine", m.GetMachineId()}, {"state", s.GetEffectiveState()}, {"phase", s.GetPhase()}, {"provider", m.GetSpec().GetProvider()},
			{"project", m.GetCustomerId()}, {"ssh", m.GetSpec().GetSshEndpoint()}, {"bmc", m.GetSpec().GetBmcEndpoint()},
			{"cluster", m.GetSpec().GetTargetClusterRef()}, {"serial", m.GetSpec().GetSerial()}, {"active run", s.GetActiveRunId()},
		} {
			t.row(row[0], row[1])
		}
		for _, c := range s.GetConditions() {
			t.row(c.GetType(), fmt.Sprintf("%t (%s)", c.GetStatus(), c.GetReason()))
		}
		return t.flush()
	})
}

func (a *app) machineGet() *cobra.Command {
	var as asProject
	cmd := &cobra.Command{Use: "get MACHINE", Short: "Show a machine", Args: cobra.ExactArgs(1)}
	as.add(a, cmd)
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		ctx, cancel := a.bounded(cmd.Context())
		defer cancel()
		return a.showMachine(a.machines().GetMachine(ctx, request(as, &slipwayv1.GetMachineRequest{MachineId: args[0]})))
	})
	return cmd
}

// machineApply sends a machine that a file describes.
func (a *app) machineApply(name, short string) *cobra.Command {
	return &cobra.Command{
		Use: name + " FILE", Short: short, Args: cobra.ExactArgs(1),
		Long: "FILE is JSON with the fields of a machine: machine_id, labels, spec.",
		RunE: does(func(cmd *cobra.Command, args []string) error {
			var m slipwayv1.Machine
			if err := readMessage(args[0], &m); err != nil {
				return err
			}
			ctx, cancel := a.bounded(cmd.Context())
			defer cancel()
			if name == "update" {
				return a.showMachine(a.machines().UpdateMachine(ctx, connect.NewRequest(&slipwayv1.UpdateMachineRequest{Machine: &m})))
			}
			return a.showMachine(a.machines().RegisterMachine(ctx, connect.NewRequest(&slipwayv1.RegisterMachineRequest{Machine: &m})))
		}),
	}
}

// readMessage reads a message from a JSON file.
func readMessage(file string, m proto.Message) error {
	raw, err := readNamed(file)
	if err != nil {
		return err
	}
	if err := protojson.Unmarshal(raw, m); err != nil {
		return fail(ExitUsage, "%s%s", file, protoErrorText(err))
	}
	return nil
}

// protoError matches what the decoder writes before its reason, with blanks that differ by build.
var protoError = regexp.MustCompile(`^proto:[\s\x{a0}]*(?:syntax error )?(?:\(line (\d+):(\d+)\):[\s\x{a0}]*)?`)

// protoErrorText returns where and why a JSON file is no message, without the decoder's own words.
func protoErrorText(err error) string {
	text := err.Error()
	at := protoError.FindStringSubmatch(text)
	if at == nil {
		return ": " + text
	}
	reason := strings.TrimPrefix(text, at[0])
	if at[1] == "" {
		return ": " + reason
	}
	return fmt.Sprintf(", line %s, column %s: %s", at[1], at[2], reason)
}

func (a *app) machinePhase() *cobra.Command {
	var reason string
	cmd := &cobra.Command{Use: "set-phase MACHINE PHASE", Short: "Set the phase of a machine on which no run is active", Args: cobra.ExactArgs(2)}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the audit log (required)")
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		phase, ok := slipwayv1.MachineStatus_Phase_value[strings.ToUpper(args[1])]
		if !ok || phase == 0 {
			var names []string
			for name, n := range slipwayv1.MachineStatus_Phase_value {
				if n > 0 {
					names = append(names, name)
				}
			}
			slices.Sort(names)
			return fail(ExitUsage, "%q is no phase; take %s", args[1], strings.Join(names, ", "))
		}
		ctx, cancel := a.bounded(cmd.Context())
		defer cancel()
		return a.showMachine(a.machines().SetMachinePhase(ctx, connect.NewRequest(&slipwayv1.SetMachinePhaseRequest{
			MachineId: args[0], Phase: slipwayv1.MachineStatus_Phase(phase), Reason: reason,
		})))
	})
	return cmd
}

func (a *app) machineAccess() *cobra.Command {
	var in slipwayv1.SetMachineAccessRequest
	cmd := &cobra.Command{
		Use: "set-access MACHINE", Short: "Link a machine to a node, or give it a site and a pinned host key, for administrators", Args: cobra.ExactArgs(1),
		Long: `Each call states all access of the machine: flags you omit are cleared, and --site-id "" alone removes all access.
A machine of a node uses the site and the host key of the node, so --node-id is enough for it. A machine without a node needs
--site-id for the login and the networks, and --ssh-host-key, so that no other machine can answer in its place.`,
		Example: `  slipway machine set-access m-1 --node-id gpu-01
  slipway machine set-access m-2 --site-id dc1 --ssh-host-key "ssh-ed25519 AAAA..."
  slipway machine set-access m-2 --site-id ""`,
	}
	f := cmd.Flags()
	f.StringVar(&in.NodeId, "node-id", "", "the node that this machine is, by hostname or id")
	f.StringVar(&in.SiteId, "site-id", "", "the site whose SSH login and networks apply to the machine, by name or id")
	f.StringVar(&in.SshHostKey, "ssh-host-key", "", "the machine's public host key: type and key, as in /etc/ssh/ssh_host_ed25519_key.pub on the machine")
	f.StringVar(&in.BmcCredentialRef, "bmc-credential-ref", "", "the name of the secret with the login of the BMC at the machine's bmc_endpoint; for power and boot order of a machine without a node")
	cmd.MarkFlagsOneRequired("node-id", "site-id", "ssh-host-key")
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		in.MachineId = args[0]
		ctx, cancel := a.bounded(cmd.Context())
		defer cancel()
		var err error
		if in.NodeId != "" {
			if in.NodeId, err = a.nodeOf(ctx, in.NodeId); err != nil {
				return err
			}
		}
		if in.SiteId != "" {
			if in.SiteId, err = a.siteOf(ctx, in.SiteId); err != nil {
				return err
			}
		}
		return a.showMachine(a.machines().SetMachineAccess(ctx, connect.NewRequest(&in)))
	})
	return cmd
}
