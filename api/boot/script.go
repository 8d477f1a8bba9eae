package boot

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/slipway-cloud/slipway/api/ratelimit"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
)

// What firmware is told to wait, in seconds.
const (
	retryWaiting = 30
	retryFailed  = 60
	maxFact      = 128 // characters of a field that firmware names
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
	leave, ok := s.enter(w, r)
	if !ok {
		return
	}
	defer leave()
	base, ok := s.base(r)
	if !ok {
		s.refuse(w, r, errNoHost)
		return
	}
	mac, ok := lifecycle.NormalMAC(chi.URLParam(r, "mac"))
	if !ok {
		s.refuse(w, r, errNoMAC)
		return
	}
	text, err := s.scriptOf(r, base, mac)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	write(w, text)
}

func (s *Server) scriptOf(r *http.Request, base, mac string) (string, error) {
	self := base + Prefix + "/" + strings.ReplaceAll(mac, ":", "-") + ".ipxe"
	n, err := s.Seen(r.Context(), db.Discovery{MAC: mac, Source: ratelimit.RemoteAddress(r), Facts: factsOf(r.URL.Query())})
	var busy *Busy
	switch {
	case errors.Is(err, ErrManaged):
		return local("this machine is not installed over PXE by Slipway"), nil
	case errors.As(err, &busy):
		return wait("too many new machines; this one waits to be registered", self+facts, retryWaiting), nil
	case errors.Is(err, db.ErrDiscoveryFull):
		return wait("the list of new machines is full; ask an admin to approve or purge some", self+facts, retryFailed), nil
	case err != nil:
		return "", err
	}
	switch n.Status {
	case lifecycle.NodeDiscovered:
		return wait("registered as "+n.ID+"; waits for the approval of an admin", self+facts, retryWaiting), nil
	case lifecycle.NodePending, lifecycle.NodeInstalling:
		return s.install(r, n, base, mac, self)
	case lifecycle.NodeInstallFailed:
		return wait(n.ID+" failed to install three times; waits for an admin", self, retryFailed), nil
	default:
		return local(n.ID + " is " + string(n.Status)), nil
	}
}

// install makes a token for the attempt that runs, or is next, and the script
// that loads the installer with it.
func (s *Server) install(r *http.Request, n db.Node, base, mac, self string) (string, error) {
	token, err := newToken()
	if err != nil {
		return "", err
	}
	hash, _ := TokenHash(token)
	var t lifecycle.Ticket
	var spec *lifecycle.InstallWorkflowSpec
	err = s.cfg.Store.Tx(r.Context(), func(tx *db.Tx) error {
		spec = nil
		if n, err = tx.LockNode(r.Context(), n.ID); err != nil {
			return err
		}
		p, err := tx.PXENode(r.Context(), n.ID)
		if err != nil || p.InstallWorkflowID == nil || n.Status != lifecycle.NodePending && n.Status != lifecycle.NodeInstalling {
			return err
		}
		w, err := tx.InstallWorkflow(r.Context(), *p.InstallWorkflowID)
		if err != nil {
			return err
		}
		spec = &w.Spec
		t, err = tx.AddPXEToken(r.Context(), n, hash)
		return err
	})
	if err != nil {
		return "", err
	}
	if spec == nil {
		return wait(n.ID+" has no install workflow, or changed its state just now", self, retryWaiting), nil
	}
	line, err := renderCommandLine(spec.CommandLine, commandData{
		NodeID: plain(n.ID), Hostname: plain(n.Hostname), MAC: plain(mac), Token: plain(token),
		SeedURL: plain(base + Prefix + "/" + token + "/"), ReportURL: plain(base + reportPath),
	})
	if err != nil {
		return "", fmt.Errorf("install workflow of node %s: %w", n.ID, err)
	}
	s.cfg.Log.InfoContext(r.Context(), "install script handed out", "node", n.ID, "attempt", t.Attempt, "source", ratelimit.RemoteAddress(r))
	return installScript(n.ID, t, *spec, line, base+Prefix+"/"+token, base+reportPath, self), nil
}

const reportPath = "/api/v1/report"

func installScript(id string, t lifecycle.Ticket, spec lifecycle.InstallWorkflowSpec, line, own, reportURL, self string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "#!ipxe\n# %s, round %d, attempt %d of %d.\n", id, t.Round, t.Attempt, lifecycle.MaxInstallAttempts)
	fmt.Fprintf(&b, "# The installer reports to POST %s with the token of this script as Authorization: Bearer.\n", reportURL)
	fmt.Fprintf(&b, "echo Slipway: %s is being installed, attempt %d of %d\nimgfree\n", id, t.Attempt, lifecycle.MaxInstallAttempts)
	names := ""
	for i := range spec.Initrds {
		names += fmt.Sprintf(" initrd=initrd%d", i)
	}
	fmt.Fprintf(&b, "kernel --name kernel %s%s %s || goto failed\n", imageURL(spec.Kernel, own, 0), names, line)
	for i, img := range spec.Initrds {
		fmt.Fprintf(&b, "initrd --name initrd%d %s || goto failed\n", i, imageURL(img, own, i+1))
	}
	b.WriteString("boot || goto failed\n:failed\n")
	b.WriteString(again("Slipway: the installer could not be loaded", self, retryWaiting))
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
	text := func(name string) string { return Clean(q.Get(name), maxFact) }
	return db.PXEFacts{Vendor: text("vendor"), Model: text("model"), SerialNumber: text("serial"), SystemUUID: text("uuid"), IPAddress: CleanAddress(q.Get("ip"))}
}

func write(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = io.WriteString(w, text) // a broken connection is the machine's to notice
}
