package boot

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// connect opens a connection to the site and writes text.
func (s *site) connect(address, text string) net.Conn {
	s.Helper()
	var d net.Dialer
	c, err := d.DialContext(s.Context(), "tcp", address)
	require.NoError(s, err)
	s.Cleanup(func() { _ = c.Close() })
	_, err = io.WriteString(c, text)
	require.NoError(s, err)
	return c
}

// However many senders of reports are slow, a machine boots: who has not sent his body has no
// place.
func TestReport_SlowBodiesTakeNoPlace(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	api, err := op.New(op.Config{Store: s.store})
	require.NoError(t, err)
	New(Config{Store: s.store}).Register(api)
	srv := httptest.NewServer(api.Handler())
	t.Cleanup(srv.Close)
	s.url = srv.URL
	_, mac := s.node(lifecycle.NodePending)
	for range 40 {
		s.connect(srv.Listener.Addr().String(), "POST /api/v1/report HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
	}
	began := time.Now()
	for range 4 {
		require.Contains(t, s.script(mac), "for=install")
	}
	t.Logf("four boots beside forty slow senders took %s", time.Since(began))
}

// stuck is the connection of a machine that reads nothing, until it is left.
type stuck struct {
	http.ResponseWriter

	refused int
	writing chan<- int
	left    <-chan struct{}
}

func (s *stuck) WriteHeader(status int) { s.refused = status }

func (s *stuck) Write(b []byte) (int, error) {
	s.writing <- s.refused
	<-s.left
	return len(b), nil
}

// However many machines read their answers slowly, another one boots: who reads has no place.
func TestAnswers_SlowReadersHaveNoPlace(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	router := chi.NewRouter()
	New(Config{Store: s.store, AgentURL: "https://slipway.example.com:8443"}).routes(router)
	_, mac := s.node(lifecycle.NodePending)
	token := tokenInScript.FindString(s.script(mac))
	writing, left := make(chan int, 100), make(chan struct{})
	var served sync.WaitGroup
	t.Cleanup(func() { close(left); served.Wait() })
	for i, path := range []string{token + "/user-data", token + "/meta-data", strings.ReplaceAll(mac, ":", "-") + ".ipxe", token + "/user-data"} {
		r := httptest.NewRequest(http.MethodGet, "http://boot.example.com/boot/"+path, nil)
		r.RemoteAddr = fmt.Sprintf("192.0.2.%d:1", i)
		served.Go(func() { router.ServeHTTP(&stuck{httptest.NewRecorder(), 0, writing, left}, r) })
		select {
		case refused := <-writing:
			require.Zero(t, refused, "%s is refused while others read", path)
		case <-time.After(runenv.Patience(2 * placeWait)):
			t.Fatalf("%s is not answered while others read", path)
		}
	}
}

// The addresses of one machine are one source.
func TestPlaces_OfAnIPv6Network(t *testing.T) {
	t.Parallel()
	d := newAdmissionControl(Limits{AtOnce: 3}.withDefaults(), time.Now)
	over, cancel := context.WithCancel(t.Context())
	for i := range 2 {
		_, err := d.place(t.Context(), fmt.Sprintf("fd00::%d", i))
		require.NoError(t, err)
	}
	cancel()
	_, err := d.place(over, "fd00::9")
	require.ErrorIs(t, err, context.Canceled, "the third one waits")
	_, err = d.place(t.Context(), "fd00:0:0:1::1")
	require.NoError(t, err)
}

// One source never has all places, and what it may not have does not keep others waiting.
func TestPlaces_OfEachSource(t *testing.T) {
	t.Parallel()
	d := newAdmissionControl(Limits{AtOnce: 3}.withDefaults(), time.Now)
	over, cancel := context.WithCancel(t.Context())
	var leaves []func()
	for range 2 {
		leave, err := d.place(t.Context(), "192.0.2.1")
		require.NoError(t, err)
		leaves = append(leaves, leave)
	}
	cancel()
	_, err := d.place(over, "192.0.2.1")
	require.ErrorIs(t, err, context.Canceled, "the third one waits")
	leave, err := d.place(t.Context(), "192.0.2.2")
	require.NoError(t, err)
	for _, l := range append(leaves, leave) {
		l()
	}
	require.Empty(t, d.places)
}

// A machine that does not read its image loses its place to the next one of its node.
func TestImage_SlowReaderLosesItsPlace(t *testing.T) {
	t.Parallel()
	image := bytes.Repeat([]byte{7}, 32<<20)
	sum := sha256.Sum256(image)
	images := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(image)))
		_, _ = w.Write(image)
	}))
	t.Cleanup(images.Close)
	s := newSite(t, func(c *Config) {
		c.Limits = Limits{TransfersOfNode: 1, TransferGrace: 300 * time.Millisecond, TransferRate: 1 << 30}
	})
	node, mac := s.node(lifecycle.NodePending)
	p, err := s.store.PXENode(t.Context(), node)
	require.NoError(t, err)
	w, err := s.store.InstallWorkflow(t.Context(), *p.InstallWorkflowID)
	require.NoError(t, err)
	w.Spec.Kernel = spec.BootImage{URL: images.URL, SHA256: hex.EncodeToString(sum[:])}
	_, err = s.store.UpdateInstallWorkflow(t.Context(), w.ID, w.Version, w.Name, w.Spec)
	require.NoError(t, err)
	path := "/boot/" + tokenInScript.FindString(s.script(mac)) + "/image/0"
	slow := s.connect(strings.TrimPrefix(s.url, "http://"), "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")
	_, err = bufio.NewReaderSize(slow, 16).ReadByte()
	require.NoError(t, err, "it has its place")
	ask := func() int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodHead, s.url+path, nil)
		require.NoError(t, err)
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		return res.StatusCode
	}
	require.Eventually(t, func() bool { return ask() == http.StatusOK }, runenv.Patience(20*time.Second), 50*time.Millisecond)
}

// A machine keeps the token that it holds, however often others fetch its script and use what they
// got: from one address, and from more addresses than a node has tokens.
func TestPXEToken_SurvivesFetchesByOthers(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	id, mac := s.node(lifecycle.NodePending)
	held := tokenInScript.FindString(s.script(mac))
	fetch := func(n int, source func(int) string) {
		require.NoError(t, s.store.Tx(t.Context(), func(tx *db.Tx) error {
			node, err := tx.LockNode(t.Context(), id)
			for i := 0; i < n && err == nil; i++ {
				hash := sha256.Sum256([]byte(fmt.Sprint(source(i), i)))
				if _, err = tx.AddPXEToken(t.Context(), node, hash[:], source(i)); err == nil {
					err = tx.UsePXEToken(t.Context(), hash[:])
				}
			}
			return err
		}))
	}
	holds := func() {
		t.Helper()
		status, _, body := s.get("/boot/" + held + "/meta-data")
		require.Equal(t, http.StatusOK, status, body)
	}
	fetch(40, func(int) string { return "192.0.2.1" })
	holds()
	fetch(200, func(i int) string { return fmt.Sprintf("198.51.100.%d", i) })
	holds()
	var kept int
	require.NoError(t, s.conn.QueryRow(t.Context(), "SELECT count(*) FROM pxe_tokens WHERE node_id = $1", id).Scan(&kept))
	require.LessOrEqual(t, kept, 128)
}

// The addresses of one machine are one source of tokens: whoever fetches a script from a whole IPv6
// network, also before the machine does, does not drop the token of the machine.
func TestPXEToken_SurvivesFetchesOfAnIPv6Network(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	id, mac := s.node(lifecycle.NodePending)
	router := chi.NewRouter()
	New(Config{Store: s.store}).routes(router)
	fetch := func(source string) string {
		t.Helper()
		r := httptest.NewRequest(http.MethodGet, "http://boot.example.com/boot/"+strings.ReplaceAll(mac, ":", "-")+".ipxe", nil)
		r.RemoteAddr = source
		w := httptest.NewRecorder()
		router.ServeHTTP(w, r)
		require.Equal(t, http.StatusOK, w.Code, w.Body)
		return tokenInScript.FindString(w.Body.String())
	}
	for i := range 130 {
		fetch(fmt.Sprintf("[fd00::%x]:1", i+1))
	}
	held := fetch("192.0.2.1:1")
	for i := range 3 {
		fetch(fmt.Sprintf("[fd00::1:%x]:1", i+1))
	}
	status, _, body := s.get("/boot/" + held + "/meta-data")
	require.Equal(t, http.StatusOK, status, body)
	var kept int
	require.NoError(t, s.conn.QueryRow(t.Context(), "SELECT count(*) FROM pxe_tokens WHERE node_id = $1", id).Scan(&kept))
	require.LessOrEqual(t, kept, 17)
}

// A machine that boots from where it was discovered keeps its token, however many addresses fetch
// its script before and after it.
func TestPXEToken_OfAKnownSourceStays(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	id, mac := s.node(lifecycle.NodePending)
	router := chi.NewRouter()
	New(Config{Store: s.store}).routes(router)
	fetch := func(source string) string {
		t.Helper()
		r := httptest.NewRequest(http.MethodGet, "http://boot.example.com/boot/"+strings.ReplaceAll(mac, ":", "-")+".ipxe", nil)
		r.RemoteAddr = source + ":1"
		w := httptest.NewRecorder()
		router.ServeHTTP(w, r)
		require.Equal(t, http.StatusOK, w.Code, w.Body)
		return tokenInScript.FindString(w.Body.String())
	}
	for name, known := range map[string]string{
		"discovered there": "UPDATE pxe_nodes SET source_network = '192.0.2.1', facts = '{}' WHERE node_id = $1",
		"its own address":  "UPDATE pxe_nodes SET source_network = '192.0.2.9', facts = '{\"ip_address\": \"192.0.2.1\"}' WHERE node_id = $1",
	} {
		_, err := s.conn.Exec(t.Context(), known, id)
		require.NoError(t, err)
		for i := range 130 {
			fetch(fmt.Sprintf("198.51.100.%d", i+1))
		}
		held := fetch("192.0.2.1")
		for i := range 3 {
			fetch(fmt.Sprintf("198.51.100.%d", 200+i))
		}
		status, _, body := s.get("/boot/" + held + "/meta-data")
		require.Equal(t, http.StatusOK, status, "%s: %s", name, body)
	}
	var kept int
	require.NoError(t, s.conn.QueryRow(t.Context(), "SELECT count(*) FROM pxe_tokens WHERE node_id = $1", id).Scan(&kept))
	require.Equal(t, 128, kept)
}

// An address that has fetched the scripts of machines, and loads their images slowly, keeps neither
// the machine itself nor another one from its images.
func TestImage_PlacesOfAnAddress(t *testing.T) {
	t.Parallel()
	s := New(Config{})
	held := 0
	for n := range maxTransfers {
		for range 3 {
			if _, err := s.transferPlace(fmt.Sprint("node_", n), "192.0.2.66"); err == nil {
				held++
			}
		}
	}
	require.Equal(t, maxOfSource, held)
	_, err := s.transferPlace("node_0", "192.0.2.1")
	require.NoError(t, err, "the machine itself loads")
	_, err = s.transferPlace("node_99", "192.0.2.2")
	require.NoError(t, err, "another one loads")
	s = New(Config{})
	for i := range maxTransfers {
		_, _ = s.transferPlace("node_0", fmt.Sprintf("198.51.100.%d", i))
	}
	require.Len(t, s.images, 8, "the scripts of one machine do not give all places")
}
