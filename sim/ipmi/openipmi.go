package ipmisim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ErrNotInstalled says that the ipmi_sim program is missing.
var ErrNotInstalled = errors.New("ipmi_sim is not installed (apt-get install openipmi)")

// OpenIPMIOptions describe one BMC of ipmi_sim.
type OpenIPMIOptions struct {
	Dir            string // for its configuration and state; it must exist and be empty
	Host           string // a loopback address; "" is 127.0.0.1
	User, Password string // one administrator
	GUID           [16]byte
	// Commands are further lines for its command file, such as those that add
	// an inventory record or sensors (ipmi_sim_cmd(5)). The BMC is at 0x20.
	Commands []string
}

// OpenIPMI is a running ipmi_sim. The settings of its chassis program lie in files, so that power
// and boot device can be seen and set from outside.
type OpenIPMI struct {
	address string
	dir     string
	cmd     *exec.Cmd
	ended   chan struct{}
}

// StartOpenIPMI starts ipmi_sim and waits until it answers, at most ten
// seconds. End it with Stop.
func StartOpenIPMI(ctx context.Context, o OpenIPMIOptions) (*OpenIPMI, error) {
	program, err := exec.LookPath("ipmi_sim")
	if err != nil {
		return nil, ErrNotInstalled
	}
	if o.Host == "" {
		o.Host = "127.0.0.1"
	}
	port, err := freePort(ctx, o.Host)
	if err != nil {
		return nil, err
	}
	if err := writeOpenIPMI(o, port); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(o.Dir, "ipmi_sim.log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	// Not bound to ctx: a test's context ends before its clean-up, which still talks to the BMC.
	// Stop ends it.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program, "-c", filepath.Join(o.Dir, "lan.conf"), "-f", filepath.Join(o.Dir, "sim.emu"), "-s", filepath.Join(o.Dir, "state"), "-n")
	cmd.Dir, cmd.Stdout, cmd.Stderr = o.Dir, log, log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &OpenIPMI{address: net.JoinHostPort(o.Host, strconv.Itoa(port)), dir: o.Dir, cmd: cmd, ended: make(chan struct{})}
	go func() { _ = cmd.Wait(); close(s.ended) }()
	if err := s.ready(ctx); err != nil {
		s.Stop()
		said, _ := os.ReadFile(log.Name())
		return nil, fmt.Errorf("ipmi_sim does not answer: %w; it said: %.500s", err, said)
	}
	return s, nil
}

// chassisProgram keeps power and boot device in files beside itself.
const chassisProgram = `#!/bin/sh
# Called by ipmi_sim: MC get power|boot, MC set power|boot|reset|shutdown VALUE.
dir=$(dirname "$0")
printf '%s\n' "$*" >> "$dir/calls"
case "$2 $3" in
  "get power") printf 'power:%s\n' "$(cat "$dir/power")" ;;
  "get boot") printf 'boot:%s\n' "$(cat "$dir/boot")" ;;
  "set power") printf '%s' "$4" > "$dir/power" ;;
  "set shutdown") printf '0' > "$dir/power" ;;
  "set boot") printf '%s' "$4" > "$dir/boot" ;;
esac
`

func writeOpenIPMI(o OpenIPMIOptions, port int) error {
	if strings.ContainsAny(o.Dir+o.User+o.Password, "\"\n") {
		return errors.New("ipmi_sim cannot take a quote or a line break in a path or a login")
	}
	chassis := filepath.Join(o.Dir, "chassis.sh")
	lan := fmt.Sprintf(`name "slipway"
set_working_mc 0x20
  startlan 1
    addr %s %d
    priv_limit admin
    allowed_auths_callback md5
    allowed_auths_user md5
    allowed_auths_operator md5
    allowed_auths_admin md5
    guid %x
  endlan
  chassis_control "%s 0x20"
  user 2 true "%s" "%s" admin 10 md5
`, o.Host, port, o.GUID, chassis, o.User, o.Password)
	commands := append([]string{
		"mc_setbmc 0x20",
		"mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr",
		"sel_enable 0x20 1000 0x0a",
	}, o.Commands...)
	commands = append(commands, "mc_enable 0x20", "")
	for name, f := range map[string]struct {
		text string
		mode os.FileMode
	}{
		"lan.conf": {lan, 0o600}, "sim.emu": {strings.Join(commands, "\n"), 0o600},
		"chassis.sh": {chassisProgram, 0o700}, "power": {"0", 0o600}, "boot": {"default", 0o600}, "calls": {"", 0o600},
	} {
		if err := os.WriteFile(filepath.Join(o.Dir, name), []byte(f.text), f.mode); err != nil {
			return err
		}
	}
	return os.Mkdir(filepath.Join(o.Dir, "state"), 0o700)
}

func freePort(ctx context.Context, host string) (int, error) {
	l, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp", net.JoinHostPort(host, "0"))
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.Close() }()
	return l.LocalAddr().(*net.UDPAddr).Port, nil
}

// ready asks for the channel's authentication capabilities until an answer
// comes.
func (s *OpenIPMI) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", s.address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ask := []byte{6, 0, 0xff, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0x20, 0x18, 0xc8, 0x81, 4, 0x38, 0x8e, 4, 0xb1}
	buf := make([]byte, 256)
	for {
		_, _ = conn.Write(ask)
		_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if n, err := conn.Read(buf); err == nil && n > 14 {
			return nil
		}
		timer := time.NewTimer(20 * time.Millisecond)
		select {
		case <-timer.C:
		case <-s.ended:
			return errors.New("it ended")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Address is its host and UDP port.
func (s *OpenIPMI) Address() string { return s.address }

// Stop ends the program and waits for its end.
func (s *OpenIPMI) Stop() {
	_ = s.cmd.Process.Kill()
	<-s.ended
}

// On reports whether the chassis is on.
func (s *OpenIPMI) On() (bool, error) {
	v, err := os.ReadFile(filepath.Join(s.dir, "power"))
	return strings.TrimSpace(string(v)) == "1", err
}

// SetOn changes the power behind the BMC's back.
func (s *OpenIPMI) SetOn(on bool) error {
	v := "0"
	if on {
		v = "1"
	}
	return os.WriteFile(filepath.Join(s.dir, "power"), []byte(v), 0o600)
}

// BootDevice is the device it was told to boot from, such as "pxe".
func (s *OpenIPMI) BootDevice() (string, error) {
	v, err := os.ReadFile(filepath.Join(s.dir, "boot"))
	return strings.TrimSpace(string(v)), err
}

// Controls counts the power changes that were asked for.
func (s *OpenIPMI) Controls() (int, error) {
	calls, err := os.ReadFile(filepath.Join(s.dir, "calls"))
	n := 0
	for _, line := range strings.Split(string(calls), "\n") {
		if f := strings.Fields(line); len(f) >= 3 && f[1] == "set" && f[2] != "boot" {
			n++
		}
	}
	return n, err
}
