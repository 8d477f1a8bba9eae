package e2e_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	simnode "github.com/slipway-cloud/slipway/sim/node"
	"github.com/slipway-cloud/slipway/test/runenv"
	"github.com/slipway-cloud/slipway/test/stack"
)

// outside is something that root leaves outside of the disks, which no installation removes. A boot
// override, which would keep the machine from being installed, is tested in activities/bmc.
type outside struct {
	plant, fix func(w *world, m *simhw.Machine)
	// named begins the setting that the release names.
	named string
}

func outsides() map[string]outside {
	return map[string]outside{
		"BMC account": {
			plant: func(w *world, m *simhw.Machine) { w.Sims.BMCs[m.Spec().ID].AddAccount("backdoor", "Pass-12345678") },
			fix:   func(w *world, m *simhw.Machine) { w.Sims.BMCs[m.Spec().ID].RemoveAccount("backdoor") }, named: "account/",
		},
		"BIOS version": {
			plant: func(w *world, m *simhw.Machine) { w.Sims.BMCs[m.Spec().ID].SetFirmware("BIOS", "0.0.1") },
			fix:   func(w *world, m *simhw.Machine) { w.Sims.BMCs[m.Spec().ID].SetFirmware("BIOS", "") }, named: "firmware/",
		},
		simnode.PlantInEFI: {
			plant: func(w *world, m *simhw.Machine) { _ = w.Sims.Nodes[m.Spec().ID].Plant(simnode.PlantInEFI) },
			fix:   func(_ *world, m *simhw.Machine) { m.SetBootEntries() }, named: "boot/order",
		},
	}
}

// TestAllocation_HiddenTenant has a tenant who is root try everything against who comes after him,
// and against all others meanwhile: a network that is open ends the provision before he comes;
// nothing that he finds on the disk works anywhere else; and what he hides is gone after the
// release, or the node is nobody's until an operator has removed it.
func TestAllocation_HiddenTenant(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stack.Options{Count: 2})
	nodes := w.activeNodes(t)
	machines := slices.SortedFunc(maps.Keys(nodes), func(a, b *simhw.Machine) int { return strings.Compare(nodes[a], nodes[b]) })
	open, m := machines[0], machines[1]
	region, err := url.Parse(w.site.Spec.MAASURL)
	require.NoError(t, err)
	require.NoError(t, w.Sims.Nodes[open.Spec().ID].OpenNetwork(region.Host))
	given := w.credentialsOf(t, m)
	token := w.enrolmentToken(t, m, nodes[m])
	first := w.newTenant(t)

	refused := first.allocate(t)
	failed := w.becomes(t, refused.Allocation.ID, refused.Job.ID, lifecycle.AllocationFailed)
	require.Contains(t, failed.FailureMessage, string(lifecycle.FailNetworkOpen))
	require.Nil(t, failed.AccessGivenAt, "nothing of the tenant was on it")
	require.Equal(t, lifecycle.NodeQuarantined, w.node(t, nodes[open]).Status)
	rows, err := w.App.Store.Attention(t.Context(), db.AttentionFilter{SiteID: w.site.ID}, db.AttentionPlace{}, 100)
	require.NoError(t, err)
	require.True(t, slices.ContainsFunc(rows, func(a db.Attention) bool { return a.NodeID == nodes[open] && strings.Contains(a.Message, "maas") }), "%+v", rows)

	got := first.allocate(t)
	active := w.becomes(t, got.Allocation.ID, got.Job.ID, lifecycle.AllocationActive)
	require.Equal(t, nodes[m], *active.NodeID)
	w.requireWorthless(t, m, given)
	w.requireUseless(t, m, open, nodes[open], token)

	require.NoError(t, w.Sims.Nodes[m.Spec().ID].Occupy())
	for _, o := range outsides() {
		o.plant(w, m)
	}
	released := first.release(t, active.ID)
	w.becomes(t, active.ID, released.Job.ID, lifecycle.AllocationReleaseFailed)
	parked := w.job(t, released.Job.ID)
	require.Equal(t, lifecycle.FailFirmwareChanged, parked.FailureClass, parked.Message)
	require.Equal(t, lifecycle.NodeQuarantined, w.node(t, nodes[m]).Status)
	for name, o := range outsides() {
		require.True(t, strings.Contains(parked.Message, o.named) || w.isGone(name, m), "%s: %s", name, parked.Message)
		o.fix(w, m)
	}
	require.Equal(t, http.StatusOK, w.act(t, "olga", parked.ID, lifecycle.ActionRetryStage, "").code)
	w.becomes(t, active.ID, released.Job.ID, lifecycle.AllocationReleased)
	w.requireNoTraces(t, m)
}

// TestAllocation_HiddenTenant_EachPlace hides one thing at a time: none hides behind another.
func TestAllocation_HiddenTenant_EachPlace(t *testing.T) {
	t.Parallel()
	runenv.ProofOnly(t, "kills")
	w := newWorld(t, stack.Options{Count: 1})
	var m *simhw.Machine
	var nodeID string
	for m, nodeID = range w.activeNodes(t) {
	}
	beyond := outsides()
	places := append(slices.Sorted(maps.Keys(beyond)), simnode.Places()...)
	slices.Sort(places)
	for _, place := range slices.Compact(places) {
		one := w.newTenant(t)
		got := one.allocate(t)
		active := w.becomes(t, got.Allocation.ID, got.Job.ID, lifecycle.AllocationActive)
		o, isOutside := beyond[place]
		if isOutside {
			o.plant(w, m)
		} else {
			require.NoError(t, w.Sims.Nodes[m.Spec().ID].Plant(place))
			traces, err := w.Sims.Nodes[m.Spec().ID].TenantTraces()
			require.NoError(t, err)
			require.NotEmpty(t, traces, place)
		}
		released := one.release(t, active.ID)
		j := w.ends(t, released.Job.ID, 4*time.Minute)
		if j.Status == lifecycle.JobFailedManual {
			require.True(t, isOutside, "%s: %s", place, j.Message)
			require.Equal(t, lifecycle.FailFirmwareChanged, j.FailureClass, place)
			require.Contains(t, j.Message, o.named, place)
			require.Equal(t, lifecycle.NodeQuarantined, w.node(t, nodeID).Status, place)
			o.fix(w, m)
			require.Equal(t, http.StatusOK, w.act(t, "olga", j.ID, lifecycle.ActionRetryStage, "").code)
		} else if isOutside {
			require.True(t, w.isGone(place, m), "%s is there, and nobody said so", place)
		}
		w.becomes(t, active.ID, released.Job.ID, lifecycle.AllocationReleased)
		w.requireNoTraces(t, m)
		if w.node(t, nodeID).Status == lifecycle.NodeQuarantined {
			w.unquarantine(t, nodeID)
		}
	}
}

// isGone reports whether the release itself has removed what was planted outside of the disks.
func (w *world) isGone(name string, m *simhw.Machine) bool {
	switch name {
	case simnode.PlantInEFI:
		return !slices.Contains(m.BootEntries(), simnode.BootEntry)
	}
	return false
}

func (w *world) requireNoTraces(t *testing.T, m *simhw.Machine) {
	t.Helper()
	traces, err := w.Sims.Nodes[m.Spec().ID].TenantTraces()
	require.NoError(t, err)
	require.Empty(t, traces)
}

func (w *world) unquarantine(t *testing.T, nodeID string) {
	t.Helper()
	require.NoError(t, w.App.Store.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := tx.TransitionNode(t.Context(), nodeID, lifecycle.NodeUnquarantine, lifecycle.Proof{lifecycle.NeedEnrolled, lifecycle.NeedHealthy}, admin)
		return err
	}))
}

var (
	base64Text = regexp.MustCompile(`(?m)(^[A-Za-z0-9+/]+=*\n)+`)
	tokenText  = regexp.MustCompile(`[A-Za-z0-9_-]{20,100}`)
)

// enrolmentToken finds the enrolment token of a node in what its installation was given.
func (w *world) enrolmentToken(t *testing.T, m *simhw.Machine, nodeID string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), w.Config.Database.URL)
	require.NoError(t, err)
	defer func() { _ = conn.Close(t.Context()) }()
	var hash []byte
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT token_hash FROM enrollment_tokens WHERE node_id = $1 ORDER BY created_at DESC LIMIT 1", nodeID).Scan(&hash))
	raw, err := os.ReadFile(filepath.Join(w.Sims.Nodes[m.Spec().ID].Root(), userDataFile))
	require.NoError(t, err)
	texts := [][]byte{raw}
	for len(texts) > 0 {
		text := texts[0]
		texts = texts[1:]
		for _, word := range tokenText.FindAll(text, -1) {
			if sum := sha256.Sum256(word); bytes.Equal(sum[:], hash) {
				return string(word)
			}
		}
		for _, encoded := range base64Text.FindAll(text, -1) {
			if inner, err := base64.StdEncoding.DecodeString(string(encoded)); err == nil { // which passes line breaks over
				texts = append(texts, inner)
			}
		}
	}
	require.FailNow(t, "the user-data holds no enrolment token")
	return ""
}

// requireUseless tries what root of a node finds on its disk, or has copied before, as another node
// and as anybody else: the agent's identity, the enrolment token, and every private key.
func (w *world) requireUseless(t *testing.T, m, other *simhw.Machine, otherID, token string) {
	t.Helper()
	root := w.Sims.Nodes[m.Spec().ID].Root()
	client := w.stolenIdentity(t, m)
	post := func(url string, body any) int {
		raw, err := json.Marshal(body)
		require.NoError(t, err)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(raw))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+token)
		res, err := client.Do(req)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		return res.StatusCode
	}
	task, err := w.App.Store.ListTasks(t.Context(), db.TaskFilter{NodeID: otherID}, "", 1)
	require.NoError(t, err)
	require.Len(t, task, 1)
	result := protocol.ResultRequest{TaskID: task[0].ID, LeaseID: task[0].LeaseID, Attempt: task[0].Attempt, Result: *task[0].Result}
	require.Equal(t, http.StatusConflict, post(w.Config.Agent.PublicURL+protocol.PathTaskResult, result), "another node's task")
	_, key, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	require.NoError(t, err)
	enrol := protocol.EnrollRequest{Token: token, CSRPEM: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: csr}))}
	require.Contains(t, []int{http.StatusUnauthorized, http.StatusConflict}, post(w.Config.Agent.PublicURL+protocol.PathEnroll, enrol), "the enrolment token")
	require.Equal(t, http.StatusUnauthorized, post(w.Config.API.PublicURL+"/api/v1/admin/nodes", map[string]any{}), "the API")

	var keys []ssh.Signer
	for _, path := range filesWith(t, root, []string{"PRIVATE KEY-----"}) {
		raw, err := os.ReadFile(filepath.Join(root, path))
		require.NoError(t, err)
		var identity struct {
			Key string `json:"key_pem"`
		}
		if json.Unmarshal(raw, &identity) == nil {
			raw = []byte(identity.Key)
		}
		if key, err := ssh.ParsePrivateKey(raw); err == nil {
			keys = append(keys, key)
		}
	}
	require.NotEmpty(t, keys, "the agent has a key at least")
	for _, user := range []string{"root", w.site.Spec.SSHUser, "slipway"} {
		_, err := ssh.Dial("tcp", w.Sims.Nodes[other.Spec().ID].SSHAddress(), &ssh.ClientConfig{
			User: user, Auth: []ssh.AuthMethod{ssh.PublicKeys(keys...)}, Timeout: runenv.Patience(10 * time.Second),
			HostKeyCallback: ssh.InsecureIgnoreHostKey(), //nolint:gosec // the attacker does not care whom he meets
		})
		require.ErrorContains(t, err, "unable to authenticate", user)
	}
}
