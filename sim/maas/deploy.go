package maassim

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	simhw "github.com/slipway-cloud/slipway/sim/hw"
)

// deploy goes through the statuses 4, 10 and 9 in one call. The answer is rendered before the power
// changes. After a BMC failure MAAS 3.7 shows status 11 later; MAAS 3.5 answers 5xx and shows
// status 10.
func (c *call) deploy() *reply {
	m, s := c.rec, c.s
	if !in(m.status, Ready, Allocated) {
		return stateConflict("Can't deploy a machine that is in the '%s' state", m.status)
	}
	if m.owner != "" && m.owner != s.opt.User {
		return stateConflict("Can't allocate a machine belonging to another user.")
	}
	image, bad := s.chooseImage(c.form.Get("distro_series"), m)
	if bad != nil {
		return bad
	}
	sync, bad := c.boolParam("enable_hw_sync", false)
	if bad != nil {
		return bad
	}
	if eph, bad := c.boolParam("ephemeral_deploy", false); bad != nil || eph {
		return field("ephemeral_deploy", "This simulated region deploys to disk only.")
	}
	if bad := s.deployable(m); bad != nil {
		return bad
	}
	for _, to := range []Status{Allocated, Deploying} {
		if bad := s.setStatus(m, to, "deploy"); bad != nil {
			return bad
		}
	}
	os, series, _ := strings.Cut(image, "/")
	m.owner, m.netboot, m.errorText = s.opt.User, true, ""
	m.osystem, m.series, m.hweKernel = os, series, c.form.Get("hwe_kernel")
	m.userData = decodeUserData(c.form.Get("user_data"))
	s.setHWSync(m, sync && linux(os))
	s.newScripts(m, typeInstallation)
	s.count(m, countDeploy)
	s.event(m, "Deploying", info, c.form.Get("comment"))
	if bad := c.claimAddresses(m); bad != nil {
		s.revertToAllocated(m, "no address")
		return bad
	}
	out := jsonReply(s.machineJSON(m))
	if s.peek(m, "stuck_deploying", "deploy") != nil {
		s.take(m, "stuck_deploying", "deploy")
		return out // the power-on activity hangs, and the timer with it
	}
	return c.powerForDeploy(m, out)
}

func (c *call) powerForDeploy(m *machine, out *reply) *reply {
	s := c.s
	s.armDeployTimer(m)
	hw, err := s.bmcOf(m, "deploy")
	if err == nil {
		c.bootEnvironment(m, hw)
		return out
	}
	s.event(m, "Failed to power on node", failure, err.Error())
	if s.opt.Profile == "3.5" {
		s.revertToAllocated(m, "power failed: "+err.Error())
		return powerError(m, err)
	}
	comment := string(powerError(m, err).body)
	s.within(m, s.opt.Durations.ReleasePoll, func(t *tx) { s.markFailed(t, m, comment) })
	return out
}

// revertToAllocated does what _start_bmc_unavailable does in MAAS: the machine stays allocated.
func (s *Server) revertToAllocated(m *machine, cause string) {
	s.forceStatus(m, Allocated, cause, bypassSetStatus)
	s.freeAddresses(m)
	s.endScripts(m, scriptAborted, "")
	m.osystem, m.series, m.userData = "", "", nil
	s.setHWSync(m, false)
}

func (s *Server) armDeployTimer(m *machine) {
	d := s.opt.Durations.DeployTimeout
	comment := "time-out during deployment"
	if s.opt.Profile == "3.5" {
		comment = fmt.Sprintf("Node operation 'Deploying' timed out after %s minutes.", minutes(d))
	}
	s.expire(m, d, comment)
}

// chooseImage resolves distro_series ("jammy", "ubuntu/jammy" or empty).
func (s *Server) chooseImage(asked string, m *machine) (string, *reply) {
	if asked == "" {
		asked = fmt.Sprint(s.config["default_distro_series"])
	}
	for _, image := range s.opt.Images {
		if _, series, _ := strings.Cut(image, "/"); image == asked || series == asked {
			return image, nil
		}
	}
	known := []string{"ubuntu/focal", "ubuntu/jammy", "ubuntu/noble"}
	for _, k := range known {
		if os, series, _ := strings.Cut(k, "/"); k == asked || series == asked {
			return "", text(400, "Deployment operating system %s %s is unavailable for %s.", os, series, m.arch)
		}
	}
	return "", field("distro_series", "'%s' is not a valid distro_series.  It should be one of: '%s'.", asked, strings.Join(s.opt.Images, "', '"))
}

// deployable checks network and storage as the deploy form does.
func (s *Server) deployable(m *machine) *reply {
	configured := slices.ContainsFunc(m.nics, func(n *nic) bool {
		return n.enabled && slices.ContainsFunc(n.links, func(l *link) bool { return l.mode != "link_up" && l.subnet != 0 || l.mode == "dhcp" })
	})
	if !configured {
		return field("network", "Node must be configured to use a network")
	}
	if m.mounted("/") == nil {
		return field("storage", "Mount the root '/' filesystem to be able to deploy this node.")
	}
	if m.mounted("/boot/efi") == nil {
		return field("storage", "This node cannot be deployed because it boots by UEFI and has no '/boot/efi' filesystem.")
	}
	return nil
}

// decodeUserData: MAAS decodes only what round-trips as base64.
func decodeUserData(s string) []byte {
	if s == "" {
		return nil
	}
	flat := strings.NewReplacer("\n", "", "\r", "").Replace(s)
	if b, err := base64.StdEncoding.DecodeString(flat); err == nil && base64.StdEncoding.EncodeToString(b) == flat {
		return b
	}
	return []byte(s)
}

// startInstall runs curtin in the ephemeral environment.
func (s *Server) startInstall(t *tx, m *machine, hw *simhw.Machine, boot string) {
	if s.opt.Profile == "3.5" {
		s.armDeployTimer(m) // curtin's early message
	}
	s.startScripts(m, typeInstallation)
	s.event(m, "Node installation", debug, "'cloudinit' searching for local datasources")
	s.event(m, "Node installation", debug, "'cloudinit' searching for network data from DataSourceMAAS")
	s.event(m, "Configuring storage", info, "")
	s.event(m, "Node installation", debug, "'curtin' curtin command install")
	if s.stage(t, m, "installing") {
		s.onBoot(m, hw, boot, s.opt.Durations.Install, func(t *tx) { s.endInstall(t, m, hw) })
	}
}

func (s *Server) endInstall(t *tx, m *machine, hw *simhw.Machine) {
	if s.take(m, "deploy_curtin_fail", "stage:installing") != nil {
		s.endScripts(m, scriptFailed, "curtin: Installation failed with exception: Unexpected error while running command.\nCommand: ['mkfs.ext4', '-F', '/dev/sda2']\nExit code: 1\nInstallation failed\n")
		s.event(m, "Node installation failure", failure, "'curtin' curtin command install")
		s.markFailed(t, m, "Installation failed (refer to the installation log for more information).")
		return
	}
	if s.opt.Profile == "3.5" {
		s.armDeployTimer(m) // curtin's late message
	}
	s.endScripts(m, scriptPassed, "curtin: Installation finished.\n")
	s.event(m, "Installing OS", info, "")
	s.event(m, "Rebooting", info, "")
	m.netboot = false
	installed := s.image(m)
	t.do(func() { hw.Install(installed); hw.Reset(byMAAS) })
}

// image is what the installer puts on disk.
func (s *Server) image(m *machine) simhw.OS {
	os := simhw.OS{System: m.osystem, Series: m.series, Hostname: m.hostname, UserData: m.userData, VendorData: s.vendorData(m)}
	m.syncShipped = m.hwSync
	if overridesVendorData(m.userData) || s.take(m, "hw_sync_disabled_by_userdata", "stage:installing") != nil {
		// The machine does not get what cloud-init would drop when it merges the documents.
		os.VendorData, m.syncShipped = nil, false
	}
	if d := m.mounted("/"); d != nil {
		os.Disk = d.name
	}
	switch {
	case s.take(m, "deploy_datasource_none", "stage:first_boot") != nil:
		os.CloudInit, os.UserData, os.VendorData = simhw.CloudInitNoDatasource, nil, nil
	case s.peek(m, "deployed_but_dead", "stage:first_boot") != nil:
		os.CloudInit, os.UserData, os.VendorData = simhw.CloudInitFails, nil, nil
	}
	return os
}

// onDiskBoot handles a boot from the disk. The first boot of an installation requests user-data,
// and MAAS waits for nothing else.
func (s *Server) onDiskBoot(t *tx, m *machine, hw *simhw.Machine, ev simhw.Event) {
	if m.status != Deploying || m.netboot || !ev.FirstBoot {
		return
	}
	if !s.stage(t, m, "first_boot") {
		return
	}
	s.event(m, "Node installation", debug, "'cloudinit' searching for local datasources")
	if ev.OS != nil && ev.OS.CloudInit == simhw.CloudInitNoDatasource {
		s.event(m, "Node installation", debug, "'cloudinit' searching for network data from DataSourceMAAS")
		return // no request comes; the timer ends the deployment
	}
	s.onBoot(m, hw, ev.BootID, s.opt.Durations.FirstBoot, func(*tx) { s.endDeployment(m) })
}

// endDeployment runs on the request for user-data.
func (s *Server) endDeployment(m *machine) {
	if bad := s.setStatus(m, Deployed, "user-data requested"); bad != nil {
		return
	}
	m.errorText = ""
	s.event(m, "Node installation", debug, "'cloudinit' running config modules")
	s.event(m, "Deployed", info, "")
	if m.hwSync {
		m.lastSync = s.now() // although nothing has synced yet
	}
	dead := s.take(m, "deployed_but_dead", "stage:first_boot")
	if dead != nil && dead.Is("post_install_error") {
		s.event(m, "Node post-installation failure", failure, "'cloudinit' running modules for final")
	}
	s.startSync(m, dead != nil)
}
