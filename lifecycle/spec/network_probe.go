package spec

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"
)

// The limits of one probe of a node's network.
const (
	MaxProbeTargets  = 64
	maxProbeName     = 100
	maxProbeAddress  = 260
	minProbeMillis   = 100
	maxProbeMillis   = 10_000
	DefaultProbeTime = 2 * time.Second
)

// ProbeTarget is a TCP address that a node must not reach. Its name stands for it in results, which
// a tenant may read.
type ProbeTarget struct {
	Name    string `json:"name"`
	Address string `json:"address"` // host:port
}

// ProbeNetworkArgs are the arguments of node.probe_network. Each target has TimeoutMillis to
// answer.
type ProbeNetworkArgs struct {
	Targets       []ProbeTarget `json:"targets"`
	TimeoutMillis int           `json:"timeout_millis"`
}

// ProbeNetworkResult is the output of node.probe_network, by names of targets. Open are those that
// took a connection. NotTried are those that the node refused to try: they name the node itself.
type ProbeNetworkResult struct {
	Tried    int      `json:"tried"`
	Open     []string `json:"open,omitempty"`
	NotTried []string `json:"not_tried,omitempty"`
}

// OpenTargets returns the targets that are open. It returns an error when the result does not
// answer for all targets of the arguments: what was not tried is not closed.
func (a ProbeNetworkArgs) OpenTargets(output json.RawMessage) ([]string, error) {
	var r ProbeNetworkResult
	if err := json.Unmarshal(output, &r); err != nil {
		return nil, fmt.Errorf("the result of the network probe cannot be read: %w", err)
	}
	if r.Tried < 0 || r.Tried+len(r.NotTried) != len(a.Targets) || len(r.Open) > r.Tried {
		return nil, fmt.Errorf("the node answers for %d of %d targets", r.Tried+len(r.NotTried), len(a.Targets))
	}
	for _, name := range append(slices.Clone(r.Open), r.NotTried...) {
		if !slices.ContainsFunc(a.Targets, func(t ProbeTarget) bool { return t.Name == name }) {
			return nil, errors.New("the node answers for a target that was not asked for")
		}
	}
	slices.Sort(r.Open)
	return slices.Compact(r.Open), nil
}

func (a *ProbeNetworkArgs) check() error {
	if len(a.Targets) > MaxProbeTargets {
		return fmt.Errorf("targets has %d entries; at most %d are tried", len(a.Targets), MaxProbeTargets)
	}
	if a.TimeoutMillis < minProbeMillis || a.TimeoutMillis > maxProbeMillis {
		return fmt.Errorf("timeout_millis is %d; it must be %d to %d", a.TimeoutMillis, minProbeMillis, maxProbeMillis)
	}
	for i, t := range a.Targets {
		if err := t.Check(); err != nil {
			return fmt.Errorf("targets[%d] %w", i, err)
		}
		if slices.ContainsFunc(a.Targets[:i], func(o ProbeTarget) bool { return o.Name == t.Name }) {
			return fmt.Errorf("targets[%d] has the name %q of another target", i, t.Name)
		}
	}
	return nil
}

// Check returns an error unless the target has a name of one line and a host with a port.
func (t ProbeTarget) Check() error {
	if t.Name == "" || len(t.Name) > maxProbeName || !isLine(t.Name) {
		return fmt.Errorf("has no name of 1 to %d characters", maxProbeName)
	}
	host, port, err := net.SplitHostPort(t.Address)
	n, perr := strconv.Atoi(port)
	if err != nil || host == "" || len(t.Address) > maxProbeAddress || perr != nil || n < 1 || n > 65535 {
		return fmt.Errorf("(%s) is not a host and a port, such as 10.0.0.5:5432", t.Name)
	}
	return nil
}
