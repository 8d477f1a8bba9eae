package pxesim

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"mime/multipart"
	"net/textproto"
	"strings"

	"gopkg.in/yaml.v3"

	simhw "github.com/slipway-cloud/slipway/sim/hw"
)

// orders are what user-data says to an installer.
type orders struct {
	early, late, onError []string
	// later is the cloud-config for the first boot of what was installed.
	later []byte
	// own: the installer is told when to report.
	own bool
}

// readOrders understands Ubuntu's autoinstall. Any other user-data is for the
// first boot of the installed system.
func readOrders(userData string) (orders, error) {
	if !strings.HasPrefix(userData, "#cloud-config") {
		return orders{later: []byte(userData)}, nil
	}
	var doc struct {
		Autoinstall *struct {
			Early    []yaml.Node `yaml:"early-commands"`
			Late     []yaml.Node `yaml:"late-commands"`
			Error    []yaml.Node `yaml:"error-commands"`
			UserData yaml.Node   `yaml:"user-data"`
		} `yaml:"autoinstall"`
	}
	if err := yaml.Unmarshal([]byte(userData), &doc); err != nil {
		return orders{}, errors.New("the installer cannot read its user-data") // the YAML error may quote a token
	}
	a := doc.Autoinstall
	if a == nil {
		return orders{later: []byte(userData)}, nil
	}
	o := orders{}
	for _, part := range []struct {
		to   *[]string
		from []yaml.Node
	}{{&o.early, a.Early}, {&o.late, a.Late}, {&o.onError, a.Error}} {
		for _, n := range part.from {
			line, err := commandLine(n)
			if err != nil {
				return orders{}, err
			}
			*part.to = append(*part.to, line)
			o.own = o.own || isReport(line)
		}
	}
	if !a.UserData.IsZero() {
		raw, err := yaml.Marshal(&a.UserData)
		if err != nil {
			return orders{}, errors.New("the user-data of the system to install cannot be read")
		}
		o.later = append([]byte("#cloud-config\n"), raw...)
	}
	return o, nil
}

func commandLine(n yaml.Node) (string, error) {
	if n.Kind == yaml.ScalarNode {
		return n.Value, nil
	}
	var argv []string
	if err := n.Decode(&argv); err != nil {
		return "", errors.New("a command of the installer is neither text nor a list")
	}
	return strings.Join(argv, " "), nil
}

// install runs an installer: it reports, writes the system disk, and restarts
// the machine, also when it failed.
func (s *Server) install(ctx context.Context, boot string, m *Machine, b Boot) (left bool, err error) {
	user, meta, err := m.UserData(ctx, b)
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	s.userData = user
	s.mu.Unlock()
	o, err := readOrders(user)
	if err != nil {
		return false, err
	}
	i := installation{s: s, m: m, token: b.Token, orders: o}
	s.log.Info("an installer starts", "command_line", withoutTokens(b.CommandLine))
	why := i.run(ctx, boot, hostname(meta))
	if ctx.Err() != nil || !s.Hardware.RunsBoot(boot) {
		return true, nil
	}
	if why != nil {
		s.log.Warn("a simulated installation failed", "error", why)
		if err := i.failed(ctx, why); err != nil {
			s.log.Warn("the failure could not be reported", "error", err)
		}
	}
	return s.Hardware.ResetDuring(boot, "installer"), nil
}

// installation is one run of an installer.
type installation struct {
	s       *Server
	m       *Machine
	token   string
	orders  orders
	scripts [][]byte // for the first boot
}

func (i *installation) run(ctx context.Context, boot, host string) error {
	disk, ok := i.s.SystemDisk()
	if err := i.say(ctx, "started", 0); err != nil {
		return err
	}
	if err := i.do(ctx, i.orders.early); err != nil {
		return err
	}
	if err := i.s.pause(ctx, installTime/2); err != nil {
		return err
	}
	if why := i.s.nextFailure(); why != "" {
		return errors.New(why)
	}
	if !ok {
		return errors.New("the machine has no disk")
	}
	if err := i.say(ctx, "progress", 50); err != nil {
		return err
	}
	if err := i.s.pause(ctx, installTime/2); err != nil {
		return err
	}
	if err := i.s.Disk.WriteSystem(disk); err != nil {
		return err
	}
	// Late commands come before the system is whole: what they install goes on it.
	if err := i.do(ctx, i.orders.late); err != nil {
		return err
	}
	later, err := i.firstBoot()
	if err != nil {
		return err
	}
	if !i.s.Hardware.InstallDuring(boot, simhw.OS{System: "installed", Hostname: host, Disk: disk.Name, UserData: later}) {
		return context.Canceled
	}
	return i.say(ctx, "complete", 0)
}

func (i *installation) do(ctx context.Context, lines []string) error {
	for _, line := range lines {
		script, done, err := i.s.shell(ctx, line)
		switch {
		case err != nil:
			return err
		case !done:
			i.s.log.Info("a command of the installer is not run in the simulation")
		case len(script) > 0:
			i.scripts = append(i.scripts, script)
		}
	}
	return nil
}

// say reports by itself where user-data does not.
func (i *installation) say(ctx context.Context, status string, percent int) error {
	if i.orders.own {
		return nil
	}
	r := Report{InstallationStatus: status}
	if percent > 0 {
		r.InstallationProgress = &percent
	}
	_, err := i.m.Report(ctx, i.token, r)
	return err
}

func (i *installation) failed(ctx context.Context, why error) error {
	if i.orders.own {
		return i.do(ctx, i.orders.onError)
	}
	_, err := i.m.Report(ctx, i.token, Report{InstallationStatus: "failed", InstallationError: why.Error()})
	return err
}

// firstBoot is the user-data of the installed system: what it was told, and the
// scripts that late commands fetched.
func (i *installation) firstBoot() ([]byte, error) {
	if len(i.scripts) == 0 {
		return i.orders.later, nil
	}
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	fmt.Fprintf(&b, "Content-Type: multipart/mixed; boundary=%q\nMIME-Version: 1.0\n\n", w.Boundary())
	part := func(kind, name string, body []byte) error {
		p, err := w.CreatePart(textproto.MIMEHeader{
			"Content-Type": {kind}, "Content-Transfer-Encoding": {"base64"}, "Content-Disposition": {fmt.Sprintf("attachment; filename=%q", name)},
		})
		if err != nil {
			return err
		}
		_, err = p.Write([]byte(base64.StdEncoding.EncodeToString(body)))
		return err
	}
	if len(i.orders.later) > 0 {
		if err := part("text/cloud-config", "user-data.yaml", i.orders.later); err != nil {
			return nil, err
		}
	}
	for _, script := range i.scripts {
		if err := part("text/x-shellscript", "slipway-install.sh", script); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}

func (s *Server) nextFailure() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.failures) == 0 {
		return ""
	}
	why := s.failures[0]
	s.failures = s.failures[1:]
	return why
}
