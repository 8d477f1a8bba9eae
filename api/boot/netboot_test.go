package boot

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/internal/pxetemplate"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// site is the boot routes over a database of their own.
type site struct {
	*testing.T
	store *db.Store
	conn  *pgx.Conn
	url   string
	log   *bytes.Buffer
	macs  int
}

func newSite(t *testing.T, change func(*Config)) *site {
	t.Helper()
	dsn := dbtest.Database(t)
	s := &site{T: t, store: dbtest.Open(t, dsn), log: &bytes.Buffer{}}
	var err error
	s.conn, err = pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.conn.Close(t.Context()) })
	cfg := Config{Store: s.store, Log: slog.New(slog.NewTextHandler(s.log, nil)), AgentURL: "https://slipway.example:8443", AgentCAPEM: caPEM(t)}
	if change != nil {
		change(&cfg)
	}
	r := chi.NewRouter()
	New(cfg).routes(r)
	srv := httptest.NewServer(r)
	t.Cleanup(srv.Close)
	s.url = srv.URL
	return s
}

// get returns status, headers and body.
func (s *site) get(path string) (int, http.Header, string) {
	s.Helper()
	res, err := http.Get(s.url + path) //nolint:noctx // a test server's own address
	require.NoError(s, err)
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	require.NoError(s, err)
	return res.StatusCode, res.Header, string(body)
}

func (s *site) script(mac string) string {
	s.Helper()
	status, _, body := s.get("/boot/" + mac + ".ipxe")
	require.Equal(s, http.StatusOK, status, body)
	require.True(s, strings.HasPrefix(body, "#!ipxe\n"), body)
	return body
}

// node makes a PXE node whose user-data says which workflow it is of.
func (s *site) node(state lifecycle.NodeStatus) (id, mac string) {
	s.Helper()
	s.macs++
	mac = fmt.Sprintf("52:54:00:00:%02x:%02x", s.macs>>8, s.macs&0xff)
	n := dbtest.PXENode(s.T, s.store, mac, state)
	p, err := s.store.PXENode(s.Context(), n.ID)
	require.NoError(s, err)
	s.write(*p.InstallWorkflowID, "install")
	return n.ID, mac
}

// write gives a workflow an agent and user-data of this name.
func (s *site) write(workflow, name string) {
	s.Helper()
	w, err := s.store.InstallWorkflow(s.Context(), workflow)
	require.NoError(s, err)
	w.Spec.UserData, w.Spec.CommandLine = "#cloud-config\nname: "+name+"\nrun: [{{ install_agent }}]\n", "for="+name+" s={{ .SeedURL }}"
	w.Spec.Agent = &spec.InstallAgent{HeartbeatSeconds: 7, Simulated: true, PlatformUsers: []string{"ops"}, UpdateKey: testUpdateKey}
	require.NoError(s, pxetemplate.Check(w.Spec))
	_, err = s.store.UpdateInstallWorkflow(s.Context(), w.ID, w.Version, w.Name, w.Spec)
	require.NoError(s, err)
}

func (s *site) workflow(name string) string {
	s.Helper()
	w := dbtest.InstallWorkflow(s.T, s.store)
	s.write(w.ID, name)
	return w.ID
}

// armed writes what a job does, also where no job may.
func (s *site) armed(id string, purpose lifecycle.Netboot, workflow string, done bool) {
	s.Helper()
	_, err := s.conn.Exec(s.Context(), `UPDATE pxe_nodes SET netboot_purpose = $2, netboot_workflow_id = $3, netboot_job_id = 'job_7', round = round + 1,
		netboot_done_at = CASE WHEN $4 THEN now() END WHERE node_id = $1`, id, purpose, workflow, done)
	require.NoError(s, err)
}

var tokenInScript = regexp.MustCompile(`pxe_[A-Za-z0-9_-]{43}`)

const diskScript, waitScript = "booting the disk", "Asking again in"

// Every state, with nothing armed, with each purpose, and with an installer that
// is done.
func TestWhatAMachineBootsByStateAndByWhatAJobArmed(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	erase, again := s.workflow("erase"), s.workflow("again")
	own := map[lifecycle.NodeStatus]string{
		lifecycle.NodeDiscovered: waitScript, lifecycle.NodePending: "for=install", lifecycle.NodeInstalling: "for=install", lifecycle.NodeInstallFailed: waitScript,
		lifecycle.NodeRetired: waitScript, // another node, that was discovered just now
	}
	for _, state := range lifecycle.NodePXE.States {
		usual := own[state.State]
		if usual == "" {
			usual = diskScript
		}
		for name, c := range map[string]struct {
			purpose        lifecycle.Netboot
			workflow       string
			done           bool
			boots, comment string
		}{
			"nothing":                {boots: usual},
			"an erasure":             {purpose: lifecycle.NetbootErase, workflow: erase, boots: "for=erase", comment: "a live system in memory, from which job job_7 erases the disks"},
			"an installation":        {purpose: lifecycle.NetbootInstall, workflow: again, boots: "for=again", comment: "job job_7 has its hardware replaced and installs it"},
			"one that is done":       {purpose: lifecycle.NetbootInstall, workflow: again, done: true, boots: usual},
			"an erasure, never done": {purpose: lifecycle.NetbootErase, workflow: erase, done: true, boots: "for=erase"},
		} {
			id, mac := s.node(state.State)
			if c.purpose != "" {
				s.armed(id, c.purpose, c.workflow, c.done)
			}
			if state.State == lifecycle.NodeDiscovered || state.State == lifecycle.NodeRetired {
				c.boots, c.comment = usual, "" // no job works on these, and their script is not asked
			}
			script := s.script(mac)
			require.Contains(t, script, c.boots, "%s in %s", name, state.State)
			require.Contains(t, script, c.comment)
			token := tokenInScript.FindString(script)
			if !strings.HasPrefix(c.boots, "for=") {
				require.Empty(t, token)
				continue
			}
			require.Contains(t, script, "for="+strings.TrimPrefix(c.boots, "for=")+" s="+s.url+"/boot/"+token+"/")
			for _, path := range []string{"user-data", "meta-data", "vendor-data"} {
				status, h, body := s.get("/boot/" + token + "/" + path)
				require.Equal(t, http.StatusOK, status, body)
				require.Equal(t, "no-store", h.Get("Cache-Control"))
				if path == "user-data" {
					require.Contains(t, body, "name: "+strings.TrimPrefix(c.boots, "for="))
				}
			}
		}
	}
	require.NotRegexp(t, tokenInScript, s.log.String())
}

// A token is for one arming: the next one, or none, ends it.
func TestATokenEndsWithWhatWasArmed(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	erase := s.workflow("erase")
	id, mac := s.node(lifecycle.NodeDeprovisioning)
	arm := func(job string) {
		require.NoError(t, s.store.Tx(t.Context(), func(tx *db.Tx) error {
			_, err := tx.ArmNetboot(t.Context(), id, lifecycle.NetbootErase, erase, job)
			return err
		}))
	}
	arm("job_1")
	first := tokenInScript.FindString(s.script(mac))
	second := tokenInScript.FindString(s.script(mac))
	require.NotEqual(t, first, second)
	served := func(token string) bool {
		status, _, _ := s.get("/boot/" + token + "/user-data")
		return status == http.StatusOK
	}
	require.True(t, served(first))
	require.True(t, served(second), "it boots as often as it must")
	arm("job_2")
	require.False(t, served(first))
	require.False(t, served(second))
	third := tokenInScript.FindString(s.script(mac))
	require.NoError(t, s.store.Tx(t.Context(), func(tx *db.Tx) error { return tx.DisarmNetboot(t.Context(), id, "job_2") }))
	require.False(t, served(third))
	require.Contains(t, s.script(mac), diskScript)
}

// Firmware shows a status; why an image cannot be had stands in the log.
func TestAnImageThatCannotBeFetchedIsLogged(t *testing.T) {
	t.Parallel()
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusTeapot) }))
	t.Cleanup(broken.Close)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for url, says := range map[string]string{broken.URL: "status=418", gone.URL: "refused"} {
		s := newSite(t, nil)
		id, token, status, body := s.fetch(url + "/vmlinuz")
		require.Equal(t, http.StatusBadGateway, status, body)
		require.Regexp(t, `a boot image cannot be fetched" node=`+id+` .*`+says, s.log.String())
		require.NotContains(t, s.log.String(), token)
	}
}

// fetch asks for the kernel at url as a machine does whose install workflow names it.
func (s *site) fetch(url string) (node, token string, status int, body string) {
	s.Helper()
	node, mac := s.node(lifecycle.NodePending)
	p, err := s.store.PXENode(s.Context(), node)
	require.NoError(s, err)
	w, err := s.store.InstallWorkflow(s.Context(), *p.InstallWorkflowID)
	require.NoError(s, err)
	w.Spec.Kernel = spec.BootImage{URL: url, SHA256: strings.Repeat("0", 64)}
	_, err = s.store.UpdateInstallWorkflow(s.Context(), w.ID, w.Version, w.Name, w.Spec)
	require.NoError(s, err)
	token = tokenInScript.FindString(s.script(mac))
	status, _, body = s.get("/boot/" + token + "/image/0")
	return node, token, status, body
}

// TestImage_AddressIsCheckedAtEachConnection: an image's server, or its name server, leads
// elsewhere.
func TestImage_AddressIsCheckedAtEachConnection(t *testing.T) {
	t.Parallel()
	var reached atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	t.Cleanup(other.Close)
	own, err := netip.ParseAddrPort(other.Listener.Addr().String())
	require.NoError(t, err)
	to := func(target string) string {
		srv := httptest.NewServer(http.RedirectHandler(target, http.StatusFound))
		t.Cleanup(srv.Close)
		return srv.URL
	}
	for name, c := range map[string]struct{ url, says string }{
		"to metadata":          {to("http://169.254.169.254/latest/meta-data"), "metadata or reserved"},
		"to metadata, mapped":  {to("http://[::ffff:169.254.169.254]/latest"), "metadata or reserved"},
		"to multicast":         {to("http://224.0.0.1/"), "multicast"},
		"to own service":       {to(other.URL), "a service of the control plane itself"},
		"own service":          {other.URL, "a service of the control plane itself"},
		"a name with loopback": {"http://localhost:" + strconv.Itoa(int(own.Port())), "loopback"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, func(c *Config) { c.Own = func(context.Context) []netip.AddrPort { return []netip.AddrPort{own} } })
			_, _, status, body := s.fetch(c.url)
			require.Equal(t, http.StatusBadGateway, status, body)
			require.Contains(t, s.log.String(), c.says)
			require.Contains(t, s.log.String(), "a boot image cannot be fetched")
			require.Zero(t, reached.Load(), "no connection was made")
		})
	}
	client := imageClient(imageRule("http://203.0.113.9/vmlinuz", nil))
	require.Nil(t, client.Transport.(*http.Transport).Proxy, "a proxy would connect instead")
	_, err = client.Get(other.URL) //nolint:noctx // refused before it is sent
	require.ErrorContains(t, err, "loopback", "a redirect from elsewhere")
}
