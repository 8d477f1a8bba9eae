package maas

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
)

// events are given as they happened and turned round, as MAAS lists them.
func events(pairs ...string) []providers.MAASEvent {
	var out []providers.MAASEvent
	at := time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC)
	for i := len(pairs) - 2; i >= 0; i -= 2 {
		out = append(out, providers.MAASEvent{ID: i, Type: pairs[i], Description: pairs[i+1], At: at.Add(time.Duration(i) * time.Second)})
	}
	return out
}

func log(status int, text string) []providers.MAASResult {
	return []providers.MAASResult{{Name: "/tmp/install.log", Status: status, Output: text}}
}

const (
	searching = "'cloudinit' searching for network data from DataSourceMAAS"
	timedOut  = "Node operation 'Deploying' timed out after 30 minutes."
	installed = "Installation failed (refer to the installation log for more information)."
	// The shape of curtin's log, shortened.
	curtinLog = "        start: cmd-install/stage-partitioning/builtin/cmd-block-meta: curtin command block-meta\n" +
		"        Command: ['wipefs', '--all', '--force', '/dev/sda']\n        Exit code: 1\n        Reason: -\n" +
		"        Stderr: wipefs: error: /dev/sda: probing initialization failed: Device or resource busy\n" +
		"        finish: cmd-install: FAIL: curtin command install\ncurtin: Installation failed with exception: Unexpected error while running command.\n"
	noDatasource = "[   41.2] cloud-init[1213]: Can not apply stage config, no datasource found! Likely bad things to come!\n"
)

// TestSignsOfADeployment tells the causes apart in what MAAS 3.4 to 3.7 leaves
// behind.
func TestSignsOfADeployment(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		outcome contract.DeployOutcome
		machine providers.MAASMachine
		events  []providers.MAASEvent
		results []providers.MAASResult
		class   lifecycle.FailureClass
		says    string // the first line of evidence
	}{
		{"curtin, 3.5", contract.DeployFailed, providers.MAASMachine{ErrorDescription: installed},
			events("Deploying", "", "Node installation", searching, "Node installation", "'curtin' curtin command install",
				"Node installation failure", "'curtin' curtin command install", "Marking node failed", installed),
			log(scriptFailed, curtinLog), lifecycle.FailDeploy, installed},
		{"curtin, no description before 3.5", contract.DeployFailed, providers.MAASMachine{},
			events("Deploying", "", "Node installation", searching, "Node installation failure", "'curtin' curtin command install"),
			log(scriptFailed, curtinLog), lifecycle.FailDeploy, "Node installation failure: 'curtin' curtin command install"},
		{"curtin, the log alone", contract.DeployFailed, providers.MAASMachine{}, nil, log(scriptFailed, curtinLog), lifecycle.FailDeploy,
			"finish: cmd-install: FAIL: curtin command install"},
		{"curtin, after a power query that failed in between", contract.DeployFailed, providers.MAASMachine{ErrorDescription: installed},
			events("Deploying", "", "Failed to query node's BMC", "timeout", "Node installation", searching, "Failed to query node's BMC", "timeout",
				"Node installation failure", "'curtin' curtin command install"),
			nil, lifecycle.FailDeploy, installed},
		{"a failed script of ours in the image", contract.DeployFailed, providers.MAASMachine{}, nil,
			log(scriptFailedInstalling, "E: Unable to locate package linux-generic\n"), lifecycle.FailDeploy, ""},
		{"datasource, MAAS 3.5 gave up", contract.DeployFailed, providers.MAASMachine{ErrorDescription: timedOut},
			events("Deploying", "", "Node installation", "'curtin' curtin command install", "Rebooting", "",
				"Node installation", "'cloudinit' searching for local datasources", "Node installation", searching, "Marking node failed", timedOut),
			nil, lifecycle.FailDatasource, "Node installation: " + searching},
		{"datasource, 3.7 gave up", contract.DeployFailed, providers.MAASMachine{ErrorDescription: "time-out during deployment"},
			events("Deploying", "", "Node installation", searching), nil, lifecycle.FailDatasource, "Node installation: " + searching},
		{"datasource, we gave up", contract.DeployTimeout, providers.MAASMachine{},
			events("Deploying", "", "Node installation", searching, "Aborted deployment", "slipway: deadline"), nil,
			lifecycle.FailDatasource, "Node installation: " + searching},
		{"datasource, on the console", contract.DeployFailed, providers.MAASMachine{ErrorDescription: timedOut}, events("Deploying", ""),
			log(scriptTimedOut, "booting\n"+noDatasource), lifecycle.FailDatasource, "[   41.2] cloud-init[1213]: Can not apply stage config, no datasource found! Likely bad things to come!"},
		{"the datasource was found and the time ran out later", contract.DeployFailed, providers.MAASMachine{ErrorDescription: timedOut},
			events("Deploying", "", "Node installation", searching, "Node installation", "'curtin' curtin command extract", "Marking node failed", timedOut),
			log(scriptTimedOut, "curtin: extracting\n"), lifecycle.FailDeployTimeout, timedOut},
		{"power, 3.7: after the answer", contract.DeployFailed, providers.MAASMachine{ErrorDescription: "No rack controllers can access the BMC of node 4y3h7n"},
			events("Deploying", "", "Failed to power on node", "no route to host"), nil, lifecycle.FailDeployPower, "No rack controllers can access the BMC of node 4y3h7n"},
		{"power, login refused", contract.DeployFailed,
			providers.MAASMachine{ErrorDescription: "Redfish request failed with response status code: HTTPStatus.UNAUTHORIZED."},
			events("Deploying", "", "Failed to power on node", "HTTPStatus.UNAUTHORIZED"), nil,
			lifecycle.FailDeployPower, "Failed to power on node: HTTPStatus.UNAUTHORIZED"},
		{"power, the BMC is silent since the start", contract.DeployFailed, providers.MAASMachine{ErrorDescription: "time-out during deployment"},
			events("Deploying", "", "Failed to query node's BMC", "timed out"), nil, lifecycle.FailDeployPower, "Failed to query node's BMC: timed out"},
		{"power, found again: the machine booted since", contract.DeployTimeout, providers.MAASMachine{},
			events("Deploying", "", "Failed to query node's BMC", "timed out", "Performing PXE boot", "installation"), nil, lifecycle.FailDeployTimeout, ""},
		{"the search ended in a reboot of the installer", contract.DeployTimeout, providers.MAASMachine{},
			events("Deploying", "", "Node installation", searching, "Rebooting", ""), nil, lifecycle.FailDeployTimeout, ""},
		{"power trouble of an earlier deployment", contract.DeployFailed, providers.MAASMachine{ErrorDescription: timedOut},
			events("Failed to power on node", "no route to host", "Released", "", "Deploying", "", "Node installation", "'curtin' curtin command install"),
			nil, lifecycle.FailDeployTimeout, timedOut},
		{"timeout, MAAS says nothing (LP#2147037)", contract.DeployTimeout, providers.MAASMachine{}, events("Deploying", ""), nil, lifecycle.FailDeployTimeout, ""},
		{"timeout, 3.7", contract.DeployFailed, providers.MAASMachine{ErrorDescription: "time-out during deployment"}, events("Deploying", ""), nil,
			lifecycle.FailDeployTimeout, "time-out during deployment"},
		{"nothing is known", contract.DeployFailed, providers.MAASMachine{}, nil, nil, lifecycle.FailDeploy, ""},
		{"words that are not known", contract.DeployFailed, providers.MAASMachine{ErrorDescription: "ipxe: gremlins"}, nil, nil, lifecycle.FailDeploy, "ipxe: gremlins"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			class, lines := classifyEvidence(c.outcome, collectEvidence(c.machine, c.events, c.results))
			require.Equal(t, c.class, class, lines)
			first := ""
			if len(lines) > 0 {
				first = lines[0]
			}
			require.Equal(t, c.says, first)
			require.LessOrEqual(t, len(lines), maxEvidence)
		})
	}
}

// TestWhoMovedTheMachine tells what a deployment and our abort leave from what
// other people do.
func TestWhoMovedTheMachine(t *testing.T) {
	t.Parallel()
	const ours = "job_1"
	for _, c := range []struct {
		status  providers.MAASStatus
		outcome contract.DeployOutcome
		owner   string
		says    string // "" = nobody
	}{
		{providers.MAASFailedDeployment, contract.DeployFailed, ours, ""},
		{providers.MAASAllocated, contract.DeployTimeout, ours, ""},
		{providers.MAASDeploying, contract.DeployTimeout, ours, ""},
		{providers.MAASAllocated, contract.DeployFailed, ours, "aborted by someone else"},
		{providers.MAASReady, contract.DeployFailed, "", "released by someone else"},
		{providers.MAASReleasing, contract.DeployFailed, "", "released by someone else"},
		{providers.MAASDiskErasing, contract.DeployTimeout, "", "released by someone else"},
		{providers.MAASDeploying, contract.DeployFailed, "", "but not by this job"},
		{providers.MAASDeployed, contract.DeployTimeout, "", "but not by this job"},
		{providers.MAASFailedDeployment, contract.DeployFailed, "job_2", "for another job, job_2"},
		{providers.MAASRescueMode, contract.DeployFailed, ours, "Rescue mode now"},
		{providers.MAASBroken, contract.DeployFailed, ours, "Broken now"},
	} {
		in := ClassifyIn{MachineIn: MachineIn{JobRef: contract.JobRef{JobID: ours}, SystemID: "4y3h7n"}, Outcome: c.outcome}
		got := in.movedBy(providers.MAASMachine{Status: c.status, Annotations: map[string]string{annotationJob: c.owner}})
		if c.says == "" {
			require.Empty(t, got, c.status)
			continue
		}
		require.Contains(t, got, c.says, c.status)
	}
}
