package pxesim_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	simhw "github.com/slipway-cloud/slipway/sim/hw"
	simnode "github.com/slipway-cloud/slipway/sim/node"
	pxesim "github.com/slipway-cloud/slipway/sim/pxe"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// stage is a server that tells machines what the test wants them to do.
type stage struct {
	*httptest.Server
	mu       sync.Mutex
	does     string // wait, install, live, local
	userData string
	said     []string // statuses reported
}

const stageToken = "pxe_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

func (s *stage) set(does, userData string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.does, s.userData = does, strings.NewReplacer("URL", s.URL, "TOKEN", stageToken).Replace(userData)
}

func (s *stage) reports() string { s.mu.Lock(); defer s.mu.Unlock(); return strings.Join(s.said, "\n") }

func newStage(t *testing.T) *stage {
	s := &stage{does: "wait"}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		own := s.URL + "/boot/" + stageToken + "/"
		switch {
		case strings.HasSuffix(r.URL.Path, "start.ipxe"):
			fmt.Fprintf(w, "#!ipxe\nchain %s/boot/${mac:hexhyp}.ipxe?serial=${serial:uristring} ||\n", s.URL)
		case strings.HasSuffix(r.URL.Path, ".ipxe"):
			word := map[string]string{"live": pxesim.LiveWord}[s.does]
			fmt.Fprint(w, map[string]string{"wait": "#!ipxe\nsleep 30\n", "local": "#!ipxe\nexit\n"}[s.does])
			if s.does == "install" || s.does == "live" {
				fmt.Fprintf(w, "#!ipxe\nkernel --name kernel %s/vmlinuz %s ds=nocloud-net;s=%s\nboot\n", s.URL, word, own)
			}
		case strings.HasSuffix(r.URL.Path, "/user-data"):
			fmt.Fprint(w, s.userData)
		case strings.HasSuffix(r.URL.Path, "/meta-data"):
			fmt.Fprint(w, "instance-id: a-1-1\nlocal-hostname: pxe-1\n")
		case strings.HasSuffix(r.URL.Path, "/install-agent"):
			fmt.Fprint(w, "#!/bin/sh\nmkdir -p \"$SLIPWAY_ROOT/etc\" && cat \"$SLIPWAY_ROOT/proc/mounts\" >\"$SLIPWAY_ROOT/etc/agent-was-installed\"\n")
		case r.URL.Path == "/api/v1/report":
			body, _ := io.ReadAll(r.Body)
			s.said = append(s.said, r.Header.Get("Authorization")[:10]+" "+string(body))
			if strings.Contains(string(body), "complete") {
				s.does = "local"
			}
			fmt.Fprint(w, "{}")
		default:
			fmt.Fprint(w, "image")
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func report(status string) string {
	return fmt.Sprintf(`"curl -fsS -X POST -H 'Content-Type: application/json' -H 'Authorization: Bearer TOKEN' -d '{\"installation_status\":\"%s\"}' 'URL/api/v1/report' || true"`, status)
}

const installAgent = `"curl -fsS 'URL/boot/TOKEN/install-agent' -o /run/x && sh /run/x"`

func newServer(t *testing.T, s *stage, n int, disks bool) *pxesim.Server {
	t.Helper()
	spec := simhw.GPUServer("Dell", n)
	if !disks {
		spec.Disks = nil
	}
	m := simhw.NewMachine(t.Context(), simhw.NewClock(1000), spec)
	server, err := pxesim.NewServer(pxesim.Options{
		Machine: m, Slipway: s.URL, Dir: t.TempDir(), AgentBinary: "/bin/true", Log: slog.New(slog.NewTextHandler(logWriter{t}, nil)),
	})
	require.NoError(t, err)
	t.Cleanup(server.Close)
	return server
}

type logWriter struct{ t *testing.T }

func (w logWriter) Write(p []byte) (int, error) {
	if w.t.Context().Err() == nil {
		w.t.Log(strings.TrimSpace(string(p)))
	}
	return len(p), nil
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, runenv.Patience(time.Minute), 10*time.Millisecond, what)
}

func has(n *simnode.Node, path, text string) func() bool {
	return func() bool {
		raw, err := os.ReadFile(filepath.Join(n.Root(), path))
		return err == nil && strings.Contains(string(raw), text)
	}
}

func off(t *testing.T, s *pxesim.Server) {
	t.Helper()
	s.Hardware.PowerOff("test", true)
	eventually(t, "it is off", func() bool { return s.Hardware.Power() == simhw.Off })
}

// A server waits, fails an installation, installs as its user-data says, boots
// its disk, runs a live system beside it, comes back to its disk, and hands its
// disks on.
func TestAServerFollowsWhatItIsTold(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	server := newServer(t, s, 7, true)
	hw := server.Hardware
	hw.PowerOn("test")
	eventually(t, "it waits", func() bool { return hw.Power() == simhw.On })
	server.FailInstalls("no disk, on purpose")
	s.set("install", "#cloud-config\nautoinstall:\n  early-commands: ["+report("started")+"]\n  late-commands:\n    - touch /tmp/never\n    - "+installAgent+
		"\n    - "+report("complete")+"\n  error-commands: ["+report("failed")+"]\n  user-data: {hostname: later}\n")
	eventually(t, "it is installed", func() bool { return hw.InstalledOS() != nil })
	eventually(t, "the agent's script ran on the installed system", has(server.Disk, "etc/agent-was-installed", "/dev/sda1 / "))
	require.Equal(t, 1, hw.Counters().Installs)
	require.Regexp(t, `(?s)Bearer pxe.*started.*failed.*started.*complete`, s.reports())
	require.NotContains(t, s.reports(), "progress", "the user-data says when to report")
	require.NoError(t, server.Disk.Occupy())

	s.set("live", "#cloud-config\nruncmd:\n  - "+installAgent+"\n  - "+report("started")+"\n")
	hw.Reset("test")
	eventually(t, "a live system runs", has(server.Live, "etc/agent-was-installed", "tmpfs / tmpfs"))
	require.NotContains(t, readFile(t, server.Live, "proc/mounts"), "/dev/")
	held, err := server.Live.DiskHolds("nvme0n1", simnode.TenantMark)
	require.NoError(t, err)
	require.True(t, held, "it sees the disks as they are")
	require.NoError(t, os.WriteFile(filepath.Join(server.Live.Root(), "etc/only-in-memory"), nil, 0o600))
	boot := hw.BootID()
	hw.Reset("test")
	eventually(t, "it comes up from nothing", func() bool {
		return hw.BootID() != boot && has(server.Live, "proc/sys/kernel/random/boot_id", hw.BootID())() && has(server.Live, "etc/agent-was-installed", "tmpfs")()
	})
	require.NoFileExists(t, filepath.Join(server.Live.Root(), "etc/only-in-memory"))
	require.Equal(t, 1, hw.Counters().Installs)

	s.set("local", "")
	off(t, server)
	other := newServer(t, s, 8, false)
	require.NoError(t, pxesim.MoveDisks(server, other))
	other.Hardware.PowerOn("test")
	eventually(t, "the other machine runs the system", func() bool {
		return other.Hardware.OSUp() && has(other.Disk, "sys/class/dmi/id/product_serial", other.Hardware.Spec().Serial)()
	})
	require.FileExists(t, filepath.Join(other.Disk.Root(), "etc/agent-was-installed"))
	require.FileExists(t, filepath.Join(other.Disk.Root(), "home/tenant1/data"), "nothing was installed again")
	require.Empty(t, hw.Spec().Disks)
	require.Nil(t, hw.InstalledOS())
}

// A system whose disk was erased is gone at the next boot; an empty disk leads
// back to the network.
func TestAnErasedDiskBootsNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	server := newServer(t, s, 9, true)
	s.set("install", "#cloud-config\nruncmd: ["+installAgent+"]\n")
	server.Hardware.PowerOn("test")
	eventually(t, "it is installed", func() bool { return server.Hardware.InstalledOS() != nil })
	eventually(t, "it is up", has(server.Disk, "etc/agent-was-installed", "/dev/sda1 / "))
	require.Regexp(t, `(?s)started.*progress.*50.*complete`, s.reports(), "an installer that is told nothing reports by itself")
	disk, ok := server.SystemDisk()
	require.True(t, ok)
	require.NoError(t, os.Truncate(filepath.Join(filepath.Dir(server.Disk.Root()), "disks", disk.Name), 0))
	server.Hardware.Reset("test")
	eventually(t, "nothing is left of it", func() bool { return server.Hardware.InstalledOS() == nil })
	require.False(t, server.Hardware.OSUp())
	s.set("live", "#cloud-config\nruncmd: ["+installAgent+"]\n")
	eventually(t, "it asked the network again", has(server.Live, "etc/agent-was-installed", "tmpfs / tmpfs"))
}

func readFile(t *testing.T, n *simnode.Node, path string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(n.Root(), path))
	require.NoError(t, err)
	return string(raw)
}
