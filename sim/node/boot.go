package simnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	simhw "github.com/slipway-cloud/slipway/sim/hw"
)

const (
	agentUnit = "slipway-agent.service"
	syncUnit  = "maas_hardware_sync.timer"
	// installPart is the one script of user-data that is run: it respects
	// SLIPWAY_ROOT. Any other would act on the machine that runs the simulation.
	installPart = "slipway-install.sh"
	bootLimit   = 2 * time.Minute
	// Where cloud-init keeps what it was given.
	userDataFile   = "/var/lib/cloud/instance/user-data.txt"
	vendorDataFile = "/var/lib/cloud/instance/vendor-data.txt"
)

// comeUp boots the installed system.
func (n *Node) comeUp(ev simhw.Event) {
	ctx, stop := context.WithCancel(n.closed)
	n.mu.Lock()
	n.stopBoot, n.up, n.bootedAt = stop, true, ev.At
	n.mu.Unlock()
	if !n.opt.Machine.OSUp() { // it went down again before this event was read
		stop()
	}
	ctx, cancel := context.WithTimeout(ctx, bootLimit)
	defer cancel()
	if err := n.start(ctx, ev); err != nil {
		n.log.Error("the simulated system did not come up whole", "error", err)
		n.note(bootState, "error\n")
		return
	}
	if ctx.Err() == nil {
		n.log.Info("simulated system is up", "hostname", ev.OS.Hostname, "boot", ev.BootID, "ssh", n.sshAddr)
	}
}

func (n *Node) start(ctx context.Context, ev simhw.Event) error {
	if ev.FirstBoot { // a new installation leaves nothing of the last
		for _, dir := range []string{n.root, n.state} {
			if err := os.RemoveAll(dir); err != nil {
				return fmt.Errorf("clear the node's disk: %w", err)
			}
		}
	}
	if err := os.RemoveAll(filepath.Join(n.root, "proc", stuckPID)); err != nil {
		return fmt.Errorf("end the process that was held: %w", err)
	}
	t, err := openTree(n.root)
	if err != nil {
		return err
	}
	defer t.close()
	spec := n.opt.Machine.Spec()
	if err := t.system(spec, ev); err != nil {
		return err
	}
	if err := errors.Join(n.installTools(spec, ev.OS.Hostname), n.holdAgent(t), n.describe(t, spec, ev)); err != nil {
		return err
	}
	user, err := parseBoot(ev.OS.UserData)
	if err != nil {
		return fmt.Errorf("user-data: %w", err)
	}
	vendor, err := parseBoot(ev.OS.VendorData)
	if err != nil {
		return fmt.Errorf("vendor-data: %w", err)
	}
	if user.defaultUser == "" {
		user.defaultUser = vendor.defaultUser
	}
	if err := n.startSSH(user); err != nil {
		return err
	}
	if exists(filepath.Join(n.state, appliedMark)) {
		n.startEnabled()
		n.settle()
		return nil
	}
	n.note(bootState, "running\n")
	if err := errors.Join(t.put(userDataFile, ev.OS.UserData, 0o600, false), t.put(vendorDataFile, ev.OS.VendorData, 0o600, false)); err != nil {
		return err
	}
	err = errors.Join(n.apply(ctx, t, vendor), n.apply(ctx, t, user))
	if ctx.Err() != nil { // cut short: the next boot does it again, as cloud-init does
		return nil
	}
	n.note(appliedMark, "")
	n.settle()
	if err == nil {
		n.note(bootState, "done\n")
	}
	return err
}

// apply does what one document asks for. A step that fails does not keep the rest from being done.
func (n *Node) apply(ctx context.Context, t *tree, b firstBoot) error {
	var errs []error
	if b.hostname != "" {
		errs = append(errs, t.put("/etc/hostname", []byte(b.hostname+"\n"), 0o644, false))
		n.note("hostname", b.hostname+"\n")
	}
	for _, f := range b.files {
		errs = append(errs, t.put(f.path, f.content, os.FileMode(f.mode), f.append))
	}
	for _, argv := range b.commands {
		if len(argv) == 0 || argv[0] != "systemctl" {
			errs = append(errs, n.shell(ctx, strings.Join(argv, " ")))
			continue
		}
		if err := n.run(ctx, append([]string{filepath.Join(n.tools, "systemctl")}, argv[1:]...), func(*exec.Cmd) {}); err != nil {
			errs = append(errs, fmt.Errorf("runcmd %s: %w", strings.Join(argv, " "), err))
		}
	}
	for _, s := range b.scripts {
		if s.name != installPart {
			n.log.Info("a script of user-data is not run on a simulated node", "part", s.name)
			continue
		}
		errs = append(errs, n.runScript(ctx, s))
	}
	return errors.Join(errs...)
}

// shell does a line that the simulation has for itself, and no other.
func (n *Node) shell(ctx context.Context, line string) error {
	var script []byte
	done := false
	var err error
	if n.opt.Shell != nil {
		script, done, err = n.opt.Shell(ctx, line)
	}
	switch {
	case err != nil:
		return fmt.Errorf("runcmd: %w", err)
	case !done:
		n.log.Info("a runcmd entry is not run on a simulated node")
	case len(script) > 0:
		return n.runScript(ctx, bootScript{name: installPart, body: script})
	}
	return nil
}

// runScript runs a script as cloud-init does. Its output is kept for people,
// next to the agent's log, and is bounded by the file.
func (n *Node) runScript(ctx context.Context, s bootScript) error {
	path := filepath.Join(n.state, "scripts", "part-001")
	if err := replaceAtomically(path, s.body, 0o700); err != nil {
		return fmt.Errorf("write the install script: %w", err)
	}
	out, err := os.OpenFile(filepath.Join(n.dir, "cloud-init-output.log"), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the output of cloud-init: %w", err)
	}
	defer func() { _ = out.Close() }()
	if err := n.run(ctx, []string{"/bin/sh", path}, func(c *exec.Cmd) { c.Stdout, c.Stderr = out, out }); err != nil {
		return fmt.Errorf("the install script failed (%w); see %s", err, out.Name())
	}
	return nil
}

// startEnabled does what systemd does with enabled units at boot.
func (n *Node) startEnabled() {
	units := filepath.Join(n.state, unitsState)
	entries, err := os.ReadDir(units)
	if err != nil {
		return
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".active") {
			_ = os.Remove(filepath.Join(units, e.Name())) // made again below where enabled
		}
	}
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".enabled"); ok {
			n.note(filepath.Join(unitsState, name+".active"), "")
		}
	}
}

// settle makes what runs agree with which units are active, after anything that
// may have changed them.
func (n *Node) settle() {
	n.mu.Lock()
	if !n.up {
		n.mu.Unlock()
		return
	}
	units := filepath.Join(n.state, unitsState)
	restart := filepath.Join(units, agentUnit+".restart")
	want := exists(filepath.Join(units, agentUnit+".active")) && !n.faults.AgentDown
	var end *agentProcess
	if n.agent != nil && (!want || exists(restart)) {
		end, n.agent = n.agent, nil
	}
	_ = os.Remove(restart)
	n.mu.Unlock()
	if end != nil {
		end.kill()
	}
	if want {
		n.keepAgent()
	}
	n.setHWSync(exists(filepath.Join(units, syncUnit+".active")))
	n.applyPowerRequest()
}

// keepAgent starts the agent if it does not run and, as its unit says, starts
// it again when it ends by itself.
func (n *Node) keepAgent() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.agent != nil || !n.up {
		return
	}
	p, err := n.startAgent()
	if err != nil {
		n.log.Error("the agent of a simulated node could not be started", "error", err)
		return
	}
	n.agent = p
	go func() {
		select {
		case <-n.closed.Done():
			return
		case <-p.done:
		}
		t := time.NewTimer(time.Second)
		defer t.Stop()
		select {
		case <-n.closed.Done():
			return
		case <-t.C:
		}
		n.mu.Lock()
		mine := n.agent == p
		if mine {
			n.agent = nil
		}
		n.mu.Unlock()
		if mine {
			n.log.Warn("the agent of a simulated node ended by itself; it is started again")
			n.settle()
		}
	}()
}

// applyPowerRequest restarts the machine or switches it off after reboot or poweroff on the node.
func (n *Node) applyPowerRequest() {
	path := filepath.Join(n.state, powerState)
	verb, err := os.ReadFile(path)
	if err != nil || os.Remove(path) != nil {
		return
	}
	if strings.TrimSpace(string(verb)) == "reboot" {
		n.opt.Machine.Reset("os")
		return
	}
	n.opt.Machine.PowerOff("os", false)
}

func (n *Node) note(name, content string) {
	if err := replaceAtomically(filepath.Join(n.state, name), []byte(content), 0o600); err != nil {
		n.log.Error("the state of a simulated node could not be written", "file", name, "error", err)
	}
}
