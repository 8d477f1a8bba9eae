package maassim

import (
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/internal/simhw"
)

func (c *call) allocate() *reply {
	for _, m := range c.s.machines {
		if id := c.form.Get("system_id"); (id == "" || id == m.id) && m.status == Ready && !m.locked {
			if bad := c.s.setStatus(m, Allocated, "allocate"); bad != nil {
				return bad
			}
			m.owner, m.agentName = c.s.opt.User, c.form.Get("agent_name")
			c.s.count(m, countAllocate)
			c.s.event(m, "User acquiring node", info, c.form.Get("comment"))
			return jsonReply(c.s.machineJSON(m))
		}
	}
	if id := c.form.Get("system_id"); id != "" {
		return stateConflict("No machine with system ID %s available.", id)
	}
	return stateConflict("No machine available.")
}

// deploy goes 4 -> 10 -> 9 in one call.
func (c *call) deploy() *reply {
	s, m := c.s, c.rec
	if !in(m.status, Ready, Allocated) {
		return stateConflict("Can't deploy a machine that is in the '%s' state", m.status)
	}
	if m.owner != "" && m.owner != s.opt.User {
		return stateConflict("Can't allocate a machine belonging to another user.")
	}
	series := c.form.Get("distro_series")
	if series == "" {
		series = "jammy"
	}
	sys, ok := s.image(series)
	if !ok {
		return field("distro_series", "'%s' is not a valid distro_series.  It should be one of: '', %s.", series, strings.Join(s.opt.Images, ", "))
	}
	if bad := c.deployable(m); bad != nil {
		return bad
	}
	data, err := base64.StdEncoding.DecodeString(c.form.Get("user_data"))
	if err != nil {
		return field("user_data", "User data must be base64-encoded.")
	}
	sync, bad := c.boolParam("enable_hw_sync", false)
	if bad != nil {
		return bad
	}
	if m.status == Ready {
		if bad := s.setStatus(m, Allocated, "deploy"); bad != nil {
			return bad
		}
		m.owner = s.opt.User
	}
	return c.startDeploy(m, sys, series, data, sync)
}

func (c *call) deployable(m *machine) *reply {
	linked := false
	for _, n := range m.nics {
		for _, l := range n.links {
			linked = linked || l.mode == "auto" || l.mode == "static" || l.mode == "dhcp"
		}
	}
	if !linked {
		return field("network", "Node must be configured to use a network")
	}
	if !m.rootMounted() {
		return field("storage", "Mount the root '/' filesystem to be able to deploy this node.")
	}
	return nil
}

func (s *Server) image(series string) (osystem string, ok bool) {
	for _, i := range s.opt.Images {
		if sys, name, _ := strings.Cut(i, "/"); name == series || i == series {
			return sys, true
		}
	}
	return "", false
}

func (c *call) startDeploy(m *machine, sys, series string, data []byte, sync bool) *reply {
	s := c.s
	if s.take(m, "ip_exhaustion", "deploy") != nil {
		return text(503, "%s", noAddresses)
	}
	if bad := s.setStatus(m, Deploying, "deploy"); bad != nil {
		return bad
	}
	m.osystem, m.series, m.userData, m.netboot, m.errorText = sys, strings.TrimPrefix(series, sys+"/"), data, true, ""
	m.hweKernel, m.hwSync, m.syncInterval, m.lastSync = c.form.Get("hwe_kernel"), sync, 0, time.Time{}
	if sync {
		m.syncInterval = s.syncSeconds()
	}
	s.claimAuto(m)
	s.newScripts(m, typeInstallation)
	s.count(m, countDeploy)
	s.event(m, "Deploying", info, c.form.Get("comment"))
	out := jsonReply(s.machineJSON(m))
	s.expire(m, s.opt.Durations.DeployTimeout, s.deployComment())
	hw, err := s.bmcOf(m, "deploy")
	if err != nil {
		return c.deployPowerFailed(m, err, out)
	}
	c.bootEnvironment(m, hw)
	return out
}

func (s *Server) deployComment() string {
	if s.opt.Profile == "3.5" {
		return "Node operation 'Deploying' timed out after " + minutes(s.opt.Durations.DeployTimeout) + " minutes."
	}
	return "time-out during deployment"
}

// deployPowerFailed: 3.5 answers with the error and falls back to Allocated;
// from 3.6 on the answer is good and the failure comes after it.
func (c *call) deployPowerFailed(m *machine, err error, out *reply) *reply {
	s := c.s
	s.event(m, "Failed to power on node", failure, err.Error())
	if s.opt.Profile == "3.5" {
		s.forceStatus(m, Allocated, "power failed", bypassSetStatus)
		return powerError(m, err)
	}
	s.within(m, time.Second, func(t *tx) { s.markFailed(t, m, "Failed to power on node: "+err.Error()) })
	return out
}

// syncSeconds is the interval in seconds as MAAS sets it.
func (s *Server) syncSeconds() int { return int(s.opt.Durations.SyncInterval / time.Second) }

func (s *Server) startInstall(t *tx, m *machine, hw *simhw.Machine, boot string) {
	s.startScripts(m, typeInstallation)
	s.event(m, "Node installation", debug, "'curtin' started: installing")
	if !s.stage(t, m, "installing") {
		return
	}
	s.onBoot(m, hw, boot, s.opt.Durations.Install, func(t *tx) { s.endInstall(t, m, hw) })
}

// endInstall is curtin's last message: the disk holds a system and the machine
// reboots into it.
func (s *Server) endInstall(t *tx, m *machine, hw *simhw.Machine) {
	if s.take(m, "deploy_curtin_fail", "stage:installing") != nil {
		s.endScripts(m, scriptFailed, "simulated: curtin: Installation failed with exception: Unexpected error while running command.\n")
		s.event(m, "Node installation failure", failure, "'curtin' curtin install failed")
		s.markFailed(t, m, "Installation failed (refer to the installation log for more information).")
		return
	}
	if s.take(m, "stuck_deploying", "stage:installing") != nil {
		m.expiry++ // the timer that MAAS forgot
		return
	}
	s.endScripts(m, scriptPassed, "")
	root := m.effectiveBootDisk()
	m.netboot = false
	system := simhw.OS{System: m.osystem, Series: m.series, Hostname: m.hostname, UserData: m.userData, Disk: root.name}
	if m.hwSync {
		system.VendorData = s.vendorData(m)
	}
	if s.take(m, "hw_sync_disabled_by_userdata", "stage:installing") != nil {
		system.VendorData = nil
	}
	dead := s.peek(m, "deploy_datasource_none", "stage:first_boot") != nil || s.peek(m, "deployed_but_dead", "stage:first_boot") != nil
	if dead {
		system.UserData, system.VendorData = nil, nil
	}
	s.event(m, "Node installation", debug, "'curtin' finished: rebooting")
	s.event(m, "Rebooting", info, "")
	t.do(func() {
		hw.Install(system)
		hw.Reset(byMAAS)
	})
}

// vendorData carries the hardware-sync units, as MAAS's does.
func (s *Server) vendorData(m *machine) []byte {
	return []byte("#cloud-config\n" +
		"write_files:\n" +
		"  - path: /etc/maas/maas-machine-creds.yml\n    permissions: '0600'\n    content: \"reporting: {}\\n\"\n" +
		"  - path: /lib/systemd/system/maas_hardware_sync.service\n    content: \"[Service]\\nType=oneshot\\nExecStart=/usr/bin/maas-run-scripts report-results\\n\"\n" +
		"  - path: /lib/systemd/system/maas_hardware_sync.timer\n    content: \"[Timer]\\nOnUnitActiveSec=" + strconv.Itoa(m.syncInterval) + "\\n[Install]\\nWantedBy=timers.target\\n\"\n" +
		"runcmd:\n  - [systemctl, enable, --now, maas_hardware_sync.timer]\n")
}

// onDiskBoot is the first boot of a deployment: MAAS says Deployed as soon as
// cloud-init asks for its user-data, whether or not anything works afterwards.
func (s *Server) onDiskBoot(t *tx, m *machine, hw *simhw.Machine, ev simhw.Event) {
	if m.status != Deploying || m.netboot || !ev.FirstBoot {
		return
	}
	if !s.stage(t, m, "first_boot") {
		return
	}
	if s.take(m, "deploy_datasource_none", "stage:first_boot") != nil {
		s.event(m, "Node installation", debug, "'cloudinit' searching for network data from DataSourceMAAS")
		return // stays Deploying until the timer
	}
	dead := s.take(m, "deployed_but_dead", "stage:first_boot")
	s.onBoot(m, hw, ev.BootID, s.opt.Durations.FirstBoot, func(*tx) {
		s.event(m, "Node installation", debug, "'cloudinit' running modules for config")
		s.endDeployment(m)
		if dead != nil && dead.is("post_install_error") {
			s.event(m, "Node post-installation failure", failure, "'cloudinit' running config-scripts-user failed")
		}
	})
}

func (s *Server) endDeployment(m *machine) {
	if bad := s.setStatus(m, Deployed, "user-data was requested"); bad != nil {
		return
	}
	s.event(m, "Deployed", info, "")
	if m.hwSync {
		m.lastSync = s.now() // although no sync has run
	}
}

// SetHWSyncAgent tells the region whether the node's hardware-sync timer runs;
// while it does, last_sync advances at each interval.
func (s *Server) SetHWSyncAgent(systemID string, healthy bool) {
	s.commit(func(*tx) *reply {
		m := s.machineByID(systemID)
		if m == nil {
			return nil
		}
		m.syncGen++
		m.syncHealthy, m.syncAgent = healthy, true
		if healthy {
			s.armSync(m)
		}
		return nil
	})
}

func (s *Server) armSync(m *machine) {
	gen := m.syncGen
	every := time.Duration(max(m.syncInterval, 1)) * time.Second
	if m.syncInterval == 0 {
		every = s.opt.Durations.SyncInterval
	}
	s.later(m, every, func() bool { return m.syncGen == gen && m.syncHealthy }, func(*tx) {
		if m.status == Deployed && m.hwSync && s.peek(m, "hw_sync_never", "sync") == nil && !s.syncStopped(m) {
			m.lastSync = s.now()
			s.event(m, "Hardware sync", debug, "")
		}
		s.armSync(m)
	})
}

func (s *Server) syncStopped(m *machine) bool {
	f := s.peek(m, "hw_sync_stops", "sync")
	if f == nil {
		return false
	}
	if m.syncLeft < 0 {
		m.syncLeft, _ = strconv.Atoi(f.value("1"))
	}
	if m.syncLeft == 0 {
		return true
	}
	m.syncLeft--
	return false
}
