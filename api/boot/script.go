package boot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/ratelimit"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/pxetemplate"
	"github.com/slipway-cloud/slipway/internal/sender"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// The times that firmware is told to wait, in seconds.
const (
	retryWaiting = 30
	retryFailed  = 60
)

// facts makes iPXE tell what SMBIOS says of the machine.
const facts = "?vendor=${manufacturer:uristring}&model=${product:uristring}&serial=${serial:uristring}&uuid=${uuid}&ip=${ip}"

// start is the script that a DHCP server names: it leads every machine to its
// own.
func (s *Server) start(w http.ResponseWriter, r *http.Request) {
	base, ok := s.base(r)
	if !ok {
		s.refuse(w, r, errNoHost)
		return
	}
	write(w, "#!ipxe\n:again\nchain --replace --autofree "+base+Prefix+"/${mac:hexhyp}.ipxe"+facts+" ||\n"+
		"echo Slipway does not answer; trying again in 10 seconds\nsleep 10\ngoto again\n")
}

// script answers a machine by its node's state.
func (s *Server) script(w http.ResponseWriter, r *http.Request) {
	s.answer(w, r, func() (string, error) {
		base, ok := s.base(r)
		if !ok {
			return "", errNoHost
		}
		mac, ok := spec.NormalMAC(chi.URLParam(r, "mac"))
		if !ok {
			return "", errNoMAC
		}
		return s.scriptOf(r, base, mac)
	})
}

func (s *Server) scriptOf(r *http.Request, base, mac string) (string, error) {
	self := base + Prefix + "/" + strings.ReplaceAll(mac, ":", "-") + ".ipxe"
	n, err := s.booted(r.Context(), db.Discovery{MAC: mac, Source: ratelimit.RemoteAddress(r), Facts: factsOf(r.URL.Query())})
	var busy *busyError
	switch {
	case errors.Is(err, errManaged):
		return local("this machine is not installed over PXE by Slipway"), nil
	case errors.As(err, &busy):
		return wait("too many new machines; this one waits to be registered", self+facts, retryWaiting), nil
	case errors.Is(err, db.ErrDiscoveryFull):
		return wait("the list of new machines is full; ask an admin to approve or purge some", self+facts, retryFailed), nil
	case err != nil:
		return "", err
	}
	if n.Status == lifecycle.NodeDiscovered {
		return wait("registered as "+n.ID+"; waits for the approval of an admin", self+facts, retryWaiting), nil
	}
	p, err := s.cfg.Store.PXENode(r.Context(), n.ID)
	if err != nil {
		return "", err
	}
	if _, boots := db.BootWorkflow(n, p); boots {
		return s.netboot(r, n, base, mac, self)
	}
	switch n.Status {
	case lifecycle.NodePending, lifecycle.NodeInstalling:
		return wait(n.ID+" has no install workflow; an admin assigns one", self, retryWaiting), nil
	case lifecycle.NodeInstallFailed:
		return wait(n.ID+" failed to install three times; waits for an admin", self, retryFailed), nil
	default:
		return local(n.ID + " is " + string(n.Status)), nil
	}
}

// order is what a machine boots from the network, and what for.
type order struct {
	node   string
	ticket lifecycle.InstallAttempt
	spec   *spec.InstallWorkflowSpec // nil: nothing any more
	// A job's: its id and what it boots the machine for.
	job     string
	purpose lifecycle.Netboot
}

// comment says in the script what it is for.
func (o order) comment() string {
	switch o.purpose {
	case lifecycle.NetbootErase:
		return fmt.Sprintf("%s, round %d: a live system in memory, from which job %s erases the disks. It is booted until the job is done with it.", o.node, o.ticket.Round, o.job)
	case lifecycle.NetbootInstall:
		return fmt.Sprintf("%s, round %d: job %s has its hardware replaced and installs it. The disk is booted once the installer has reported complete.", o.node, o.ticket.Round, o.job)
	default:
		return fmt.Sprintf("%s, round %d, attempt %d of %d.", o.node, o.ticket.Round, o.ticket.Attempt, lifecycle.MaxInstallAttempts)
	}
}

// shown is the same on the machine's screen.
func (o order) shown() string {
	switch o.purpose {
	case lifecycle.NetbootErase:
		return fmt.Sprintf("%s boots a live system that erases it, for job %s", o.node, o.job)
	case lifecycle.NetbootInstall:
		return fmt.Sprintf("%s is being installed on other hardware, for job %s", o.node, o.job)
	default:
		return fmt.Sprintf("%s is being installed, attempt %d of %d", o.node, o.ticket.Attempt, lifecycle.MaxInstallAttempts)
	}
}

// netboot makes a token for what the machine boots now, and the script that
// loads it.
func (s *Server) netboot(r *http.Request, n db.Node, base, mac, self string) (string, error) {
	token, err := newToken()
	if err != nil {
		return "", err
	}
	hash, _ := tokenHash(token)
	var o order
	err = s.cfg.Store.Tx(r.Context(), func(tx *db.Tx) error {
		o, err = orderOf(r.Context(), tx, n.ID, hash, sender.NetworkText(ratelimit.RemoteAddress(r)))
		return err
	})
	if err != nil {
		return "", err
	}
	if o.spec == nil {
		return wait(n.ID+" changed its state just now", self, retryWaiting), nil
	}
	line, err := pxetemplate.CommandData{
		NodeID: pxetemplate.Plain(n.ID), Hostname: pxetemplate.Plain(n.Hostname), MAC: pxetemplate.Plain(mac), Token: pxetemplate.Plain(token),
		SeedURL: pxetemplate.Plain(base + Prefix + "/" + token + "/"), ReportURL: pxetemplate.Plain(base + reportPath),
	}.Render(o.spec.CommandLine)
	if err != nil {
		return "", fmt.Errorf("install workflow of node %s: %w", n.ID, err)
	}
	s.cfg.Log.InfoContext(r.Context(), "boot script handed out", "node", n.ID, "round", o.ticket.Round, "attempt", o.ticket.Attempt, "job", o.job, "for", o.purpose,
		"source", ratelimit.RemoteAddress(r))
	return installScript(o, line, base+Prefix+"/"+token, base+reportPath, self), nil
}

// orderOf reads again what the node boots, and stores the token for it.
func orderOf(ctx context.Context, tx *db.Tx, id string, token []byte, source string) (order, error) {
	n, err := tx.LockNode(ctx, id)
	if err != nil {
		return order{}, err
	}
	p, err := tx.PXENode(ctx, id)
	if err != nil {
		return order{}, err
	}
	workflow, boots := db.BootWorkflow(n, p)
	if !boots {
		return order{}, nil
	}
	w, err := tx.InstallWorkflow(ctx, workflow)
	if err != nil {
		return order{}, err
	}
	o := order{node: id, spec: &w.Spec}
	if db.Armed(p) {
		o.purpose = p.NetbootPurpose
		if p.NetbootJobID != nil {
			o.job = *p.NetbootJobID
		}
	}
	o.ticket, err = tx.AddPXEToken(ctx, n, token, source)
	return o, err
}

const reportPath = op.Prefix + "/report"

func installScript(o order, line, own, reportURL, self string) string {
	var b strings.Builder
	spec := o.spec
	fmt.Fprintf(&b, "#!ipxe\n# %s\n", o.comment())
	fmt.Fprintf(&b, "# What is booted reports to POST %s with the token of this script as Authorization: Bearer.\n", reportURL)
	fmt.Fprintf(&b, "echo Slipway: %s\nimgfree\n", o.shown())
	names := ""
	for i := range spec.Initrds {
		names += fmt.Sprintf(" initrd=initrd%d", i)
	}
	fmt.Fprintf(&b, "kernel --name kernel %s%s %s || goto failed\n", imageURL(spec.Kernel, own, 0), names, line)
	for i, img := range spec.Initrds {
		fmt.Fprintf(&b, "initrd --name initrd%d %s || goto failed\n", i, imageURL(img, own, i+1))
	}
	b.WriteString("boot || goto failed\n:failed\n")
	b.WriteString(again("Slipway: what is to be booted could not be loaded", self, retryWaiting))
	return b.String()
}

// wait shows a message and asks again.
func wait(message, self string, seconds int) string {
	return "#!ipxe\n" + again("Slipway: "+message, self, seconds)
}

// again shows a message and comes back to a script, for as long as it takes.
func again(message, self string, seconds int) string {
	return fmt.Sprintf(":again\necho %s\necho Asking again in %d seconds\nsleep %d\nchain --replace --autofree %s ||\ngoto again\n", printable(message), seconds, seconds, self)
}

// local boots the disk: UEFI goes on to the next boot option, a BIOS is led to
// its first drive.
func local(message string) string {
	return "#!ipxe\necho Slipway: " + printable(message) + "; booting the disk\niseq ${platform} efi && goto next ||\n" +
		"sanboot --no-describe --drive 0x80 ||\n:next\nexit\n"
}

// printable keeps a text from meaning anything to iPXE: what expands, ends the
// line or chains commands becomes a blank.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || strings.ContainsRune("$#|&`\\\"'", r) {
			return ' '
		}
		return r
	}, strings.ReplaceAll(text, " ; ", ", "))
}

// factsOf reads what firmware says of the machine.
func factsOf(q url.Values) db.PXEFacts {
	text := func(name string) string { return spec.CleanText(q.Get(name), spec.MaxFact) }
	keys := spec.MachineKeys{Serial: q.Get("serial"), UUID: q.Get("uuid")}.Normal()
	return db.PXEFacts{Vendor: text("vendor"), Model: text("model"), SerialNumber: keys.Serial, SystemUUID: keys.UUID, IPAddress: spec.NormalIP(q.Get("ip"))}
}

func write(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Length", strconv.Itoa(len(text))) // what ends short is known as that
	_, _ = io.WriteString(w, text)                            // a broken connection is the machine's to notice
}
