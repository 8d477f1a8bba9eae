package runplan

import "time"

// Capability is what an adapter of machines can do.
type Capability string

// The capabilities.
const (
	CapInspect       Capability = "Inspect"
	CapPowerControl  Capability = "PowerControl"
	CapNetboot       Capability = "Netboot"
	CapImaging       Capability = "Imaging"
	CapRemoteExec    Capability = "RemoteExec"
	CapClusterJoin   Capability = "ClusterJoin"
	CapNetworkConfig Capability = "NetworkConfig"
	CapReturn        Capability = "Return"
)

// Capabilities lists all capabilities, in the order of the documentation.
func Capabilities() []Capability {
	return []Capability{CapInspect, CapPowerControl, CapNetboot, CapImaging, CapRemoteExec, CapClusterJoin, CapNetworkConfig, CapReturn}
}

// traits are what is fixed for a kind of step.
type traits struct {
	needs      Capability
	timeout    time.Duration // of one attempt, where the step states none
	retries    int           // where the step states none
	disruptive bool
}

func (s Step) traits() traits {
	switch s.Kind() {
	case KindSSH:
		return traits{needs: CapRemoteExec, timeout: 10 * time.Minute}
	case KindReboot:
		return traits{needs: CapPowerControl, timeout: 10 * time.Minute, retries: 1, disruptive: true}
	case KindNetboot:
		return traits{needs: CapNetboot, timeout: time.Minute, retries: 2}
	case KindRepave:
		return traits{needs: CapImaging, timeout: time.Hour, retries: 1, disruptive: true}
	case KindJoin:
		return traits{needs: CapClusterJoin, timeout: 15 * time.Minute, retries: 1, disruptive: true} // it resets what an earlier join left
	case KindVerify:
		return traits{needs: CapClusterJoin, timeout: 10 * time.Minute}
	case KindNet:
		return traits{needs: CapNetworkConfig, timeout: maxConfirmSeconds*time.Second + confirmSlack, disruptive: true}
	case KindRMA:
		return traits{needs: CapReturn, timeout: 5 * time.Minute, disruptive: true}
	}
	return traits{}
}
