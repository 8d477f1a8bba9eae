package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/client"
	"github.com/slipway-cloud/slipway/internal/poll"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/bmc/redfish"
	pxesim "github.com/slipway-cloud/slipway/sim/pxe"
	"github.com/slipway-cloud/slipway/test/stack"
)

// The demo's install workflows. The second one is a system that runs from
// memory: from it even the disk of the installed system is erased.
const (
	installName, installWords = "ubuntu", "autoinstall"
	eraserName, eraserWords   = "eraser", pxesim.LiveWord
	installUserData           = `#cloud-config
autoinstall:
  version: 1
  early-commands:
    - {{ report "started" }}
  late-commands:
    - {{ report "complete" }}
  user-data:
    runcmd:
      - {{ install_agent }}
`
	eraserUserData = `#cloud-config
runcmd:
  - {{ install_agent }}
`
)

// bootFromNetwork switches on the machine that no MAAS knows and lets it
// install itself, beside all else.
func (o *operator) bootFromNetwork(ctx context.Context, out io.Writer) (*watched, error) {
	s := o.stack.PXE[0]
	spec := s.Hardware.Spec()
	fmt.Fprintf(out, "\nA server that no MAAS knows (%s) is switched on and boots from the network, a simulated one too. It shows itself; an admin approves it:\n", spec.Vendor)
	if err := o.installWorkflows(ctx); err != nil {
		return nil, err
	}
	s.Hardware.PowerOn("demo")
	w := &watched{host: "pxe-" + strings.ReplaceAll(s.MAC(), ":", ""), vendor: spec.Vendor}
	if err := o.becomes(ctx, w, lifecycle.NodeDiscovered); err != nil {
		return nil, err
	}
	for _, args := range [][]string{
		{"node", "list", "--lifecycle", "pxe"}, {"node", "assign-workflow", w.host, eraserName, "--erase"},
		{"node", "approve", w.host, "--workflow", installName, "--comment", "rack 1"},
	} {
		if err := o.show(ctx, out, args...); err != nil {
			return nil, err
		}
	}
	return w, o.withBMC(ctx, out, w, s)
}

// inService waits until the machine has installed itself and takes it into
// service.
func (o *operator) inService(ctx context.Context, out io.Writer, w *watched) error {
	fmt.Fprintf(out, "\nMeanwhile %s has installed itself, and its agent has enrolled with the token that its installer was given:\n", w.host)
	if err := o.becomes(ctx, w, lifecycle.NodeInstalled); err != nil {
		return err
	}
	for _, args := range [][]string{{"node", "state", w.host, "active"}, {"node", "list", "--lifecycle", "pxe"}} {
		if err := o.show(ctx, out, args...); err != nil {
			return err
		}
	}
	return nil
}

// deprovision asks for the state that a job owns.
func (o *operator) deprovision(ctx context.Context, out io.Writer, w *watched) (*watched, error) {
	ask := client.StateTransition{State: string(lifecycle.NodeDeprovisioning), Comment: new("the demo")}
	n, err := client.Value(o.api.SetNodeState(ctx, w.node, ask, client.IfMatch("*")))
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "\nPOST /api/v1/nodes/%s/state  %s deprovisioning  ->  200 %s", w.node, w.host, n.Pxe.JobID)
	return &watched{ID: n.Pxe.JobID, host: w.host, vendor: w.vendor, node: w.node}, nil
}

// becomes waits until the node is in a state; from installed on its agent must
// have been heard too.
func (o *operator) becomes(ctx context.Context, w *watched, want lifecycle.NodeStatus) error {
	ctx, cancel := context.WithTimeout(ctx, demoLimit)
	defer cancel()
	at := lifecycle.NodeStatus("unknown")
	for {
		list, err := client.Value(o.api.ListNodes(ctx, &client.ListNodesParams{Hostname: &w.host}))
		if err != nil {
			return err
		}
		if len(list.Data) == 1 {
			w.node, at = list.Data[0].ID, lifecycle.NodeStatus(list.Data[0].Status)
		}
		if at == want && (want == lifecycle.NodeDiscovered || o.heard(ctx, w.node)) {
			return nil
		}
		if poll.Sleep(ctx, 200*time.Millisecond) != nil {
			return fmt.Errorf("node %s is %s, and should be %s", w.host, at, want)
		}
	}
}

func (o *operator) heard(ctx context.Context, node string) bool {
	_, err := o.stack.App.Store.LatestHeartbeat(ctx, node)
	return err == nil
}

// withBMC names the machine's BMC, with the pin of the certificate that it shows,
// as an operator does who has compared it.
func (o *operator) withBMC(ctx context.Context, out io.Writer, w *watched, s *stack.PXEServer) error {
	spec := s.Hardware.Spec()
	b, err := redfish.Opener{}.OpenBMC(providers.BMCTarget{Rule: providers.SimulatedAddresses(), Address: spec.BMCAddress})
	if err != nil {
		return err
	}
	id, err := b.Probe(ctx)
	if err = errors.Join(err, b.Close(ctx)); err != nil {
		return err
	}
	return o.show(ctx, out, "node", "set-bmc", w.host, "--address", spec.BMCAddress, "--credential-ref", stack.BMCSecret(spec.ID), "--pin", id.PinSHA256)
}

// installWorkflows registers both, with images from a server of this process.
func (o *operator) installWorkflows(ctx context.Context) error {
	url, sum, err := serveImage(ctx)
	if err != nil {
		return err
	}
	for _, wf := range [][3]string{{installName, installWords, installUserData}, {eraserName, eraserWords, eraserUserData}} {
		spec := client.InstallWorkflowSpec{
			Kernel: client.BootImage{URL: url, Sha256: sum}, CommandLine: wf[1] + " ds=nocloud-net;s={{ .SeedURL }}",
			UserData: wf[2], Agent: client.InstallAgent{Simulated: true, HeartbeatSeconds: 1},
		}
		if _, err := o.api.CreateInstallWorkflow(ctx, client.InstallWorkflowRequest{Name: wf[0], Spec: spec}); err != nil {
			return err
		}
	}
	return nil
}

// serveImage serves bytes that stand for a kernel until ctx ends.
func serveImage(ctx context.Context) (url, sum string, err error) {
	image := []byte(strings.Repeat("a kernel, made up; ", 10_000))
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	srv := &http.Server{ReadHeaderTimeout: callTimeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(image)))
		_, _ = w.Write(image)
	})}
	go func() { _ = srv.Serve(l) }() // it ends when it is closed
	context.AfterFunc(ctx, func() { _ = srv.Close() })
	h := sha256.Sum256(image)
	return "http://" + l.Addr().String() + "/vmlinuz", hex.EncodeToString(h[:]), nil
}
