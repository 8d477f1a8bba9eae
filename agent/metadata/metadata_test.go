package metadata

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/test/runenv"
)

var document = spec.InstanceMetadata{InstanceID: "alc_1", InstanceType: "h100-8", ImageID: "img_1", ProjectID: "prj_1", Hostname: "gpu-07", LocalIPv4: "10.0.0.7",
	Region: "lab", Zone: "r1", Group: "g1", PublicKeys: []string{"ssh-ed25519 AAAA", "ssh-ed25519 BBBB"}, Tags: map[string]string{"Team": "ml", "cost/center": "42"}}

// start serves the document of a file on the loopback interface.
func start(t *testing.T, address, file string) string {
	t.Helper()
	l, err := net.Listen("tcp", address)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	read := func() (*spec.InstanceMetadata, error) { return Read(file) }
	go func() { done <- Serve(ctx, l, Handler(read), slog.New(slog.DiscardHandler)) }()
	t.Cleanup(func() { stop(); require.NoError(t, <-done) })
	return "http://" + l.Addr().String()
}

func write(t *testing.T, d spec.InstanceMetadata) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "metadata.json")
	raw, err := json.Marshal(d)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, raw, 0o600))
	return file
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	c := http.Client{Timeout: runenv.Patience(10 * time.Second)}
	defer c.CloseIdleConnections()
	res, err := c.Get(url)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(raw)
}

// crawl reads all that a client of the service finds, as cloud-init does: a line that ends in a
// slash is a directory.
func crawl(t *testing.T, url string, into map[string]string, path string) {
	t.Helper()
	status, list := get(t, url+path)
	require.Equal(t, 200, status, path)
	for line := range strings.Lines(list) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasSuffix(path, "/public-keys/"):
			index, _, ok := strings.Cut(line, "=")
			require.True(t, ok)
			_, into[path+index] = get(t, url+path+index+"/openssh-key")
		case strings.HasSuffix(line, "/"):
			crawl(t, url, into, path+line)
		default:
			status, text := get(t, url+path+line)
			require.Equal(t, 200, status, path+line)
			into[path+line] = text
		}
	}
}

func TestHandler_ServesWhatCloudInitReads(t *testing.T) {
	t.Parallel()
	file := write(t, document)
	url := start(t, "127.0.0.1:0", file)
	got := map[string]string{}
	crawl(t, url, got, "/2021-03-23/meta-data/")
	const meta = "/2021-03-23/meta-data/"
	require.Equal(t, map[string]string{
		meta + "instance-id": "alc_1", meta + "instance-type": "h100-8", meta + "ami-id": "img_1", meta + "hostname": "gpu-07", meta + "local-hostname": "gpu-07",
		meta + "local-ipv4": "10.0.0.7", meta + "placement/availability-zone": "lab-r1", meta + "placement/region": "lab", meta + "placement/group-name": "g1",
		meta + "public-keys/0": "ssh-ed25519 AAAA", meta + "public-keys/1": "ssh-ed25519 BBBB",
		meta + "tags/instance/Team": "ml", meta + "tags/instance/cost/center": "42",
	}, got)
	status, text := get(t, url+"/latest/dynamic/instance-identity/document")
	require.Equal(t, 200, status)
	require.JSONEq(t, `{"accountId":"prj_1","instanceId":"alc_1","instanceType":"h100-8","imageId":"img_1","privateIp":"10.0.0.7","region":"lab","availabilityZone":"lab-r1","version":"2017-09-30"}`, text)
	_, text = get(t, url+"/nocloud/meta-data")
	require.JSONEq(t, `{"instance-id":"alc_1","local-hostname":"gpu-07","public-keys":["ssh-ed25519 AAAA","ssh-ed25519 BBBB"],"region":"lab","availability-zone":"lab-r1"}`, text)
	_, text = get(t, url+"/nocloud/user-data")
	require.True(t, strings.HasPrefix(text, "#cloud-config\n"))
	for path, want := range map[string]string{"/": "2009-04-04\n2016-09-02\n2018-09-24\n2021-03-23\nlatest", "/latest": "meta-data/\ndynamic/", "/latest/": "meta-data/\ndynamic/",
		"/latest/meta-data/public-keys/0/": "openssh-key"} {
		_, text = get(t, url+path)
		require.Equal(t, want, text, path)
	}
	for _, path := range []string{"/latest/user-data", "/latest/meta-data/iam/security-credentials/", "/1999-01-01/meta-data/", "/latest/meta-data/../../metadata.json",
		"/latest/meta-data/public-keys/7/openssh-key", "/nocloud/", "/etc/passwd"} {
		status, text = get(t, url+path)
		require.Equal(t, 404, status, path)
		require.NotContains(t, text, "alc_1")
	}
	res, err := http.Post(url+"/latest/meta-data/instance-id", "text/plain", strings.NewReader("x"))
	require.NoError(t, err)
	require.Equal(t, 405, res.StatusCode)
	require.NoError(t, res.Body.Close())

	require.NoError(t, os.WriteFile(file, []byte("{damaged"), 0o600))
	status, text = get(t, url+"/latest/meta-data/instance-id")
	require.Equal(t, 500, status)
	require.NotContains(t, text, "damaged")
	require.NoError(t, os.Remove(file))
	for _, path := range []string{"/", "/latest/meta-data/instance-id", "/nocloud/user-data"} {
		status, _ = get(t, url+path)
		require.Equal(t, 404, status, "it is gone with the allocation")
	}
}

// TestServe_HeldConnections: a tenant who opens connections and sends nothing keeps the service,
// and the agent's memory, for no more than the deadline of a request.
func TestServe_HeldConnections(t *testing.T) {
	t.Parallel()
	url := start(t, "127.0.0.1:0", write(t, document))
	address := strings.TrimPrefix(url, "http://")
	for range 3 * maxConnections {
		c, err := net.Dial("tcp", address)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
	}
	require.Eventually(t, func() bool {
		res, err := (&http.Client{Timeout: time.Second}).Get(url + "/latest/meta-data/instance-id")
		return err == nil && res.Body.Close() == nil && res.StatusCode == 200
	}, runenv.Patience(30*time.Second), 50*time.Millisecond)
}

func TestIsLocal(t *testing.T) {
	t.Parallel()
	own := []net.Addr{&net.IPNet{IP: net.IPv4(10, 0, 0, 7), Mask: net.CIDRMask(24, 32)}, &net.IPNet{IP: net.IPv4(169, 254, 169, 254), Mask: net.CIDRMask(32, 32)}}
	for ip, want := range map[string]bool{"10.0.0.7": true, "::ffff:10.0.0.7": true, "169.254.169.254": true, "10.0.0.8": false, "169.254.169.253": false} {
		require.Equal(t, want, contains(own, netip.MustParseAddr(ip)), ip)
	}
	require.True(t, isLocal(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 9), Port: 1}))
	require.False(t, isLocal(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1}))
	require.False(t, isLocal(&net.UnixAddr{Name: "x"}))
}

// inNamespace tells the test, which runs again in a network of its own, that it does.
const inNamespace = "SLIPWAY_TEST_IN_NETWORK_NAMESPACE"

// asNeighbour tells it that it runs on another machine of that network.
const asNeighbour = "neighbour"

// TestServe_LinkLocalAddress runs in a network namespace, so that the machine's own addresses stay.
// The namespace has a pair of network cards: a neighbour sends to the link-local address through
// one.
func TestServe_LinkLocalAddress(t *testing.T) {
	switch os.Getenv(inNamespace) {
	case "":
		runInNamespace(t)
		return
	case asNeighbour:
		// The kernel makes the connection and the server closes it without a word. This reads the
		// connection itself: what an HTTP client says of one depends on which comes first, its
		// request or the end.
		conn, err := (&net.Dialer{Timeout: runenv.Patience(10 * time.Second)}).Dial("tcp", Address+":80")
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		require.NoError(t, conn.SetDeadline(time.Now().Add(runenv.Patience(10*time.Second))))
		_, err = conn.Write([]byte("GET /latest/meta-data/instance-id HTTP/1.1\r\nHost: " + Address + "\r\n\r\n"))
		require.True(t, err == nil || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE), "%v", err)
		answer, err := io.ReadAll(conn)
		require.Empty(t, answer, "a neighbour is answered nothing")
		require.True(t, err == nil || errors.Is(err, syscall.ECONNRESET), "the server closes the connection: %v", err)
		return
	}
	ip := func(args ...string) {
		out, err := exec.Command("ip", args...).CombinedOutput()
		require.NoError(t, err, "ip %s: %s", strings.Join(args, " "), out)
	}
	run := func(ctx context.Context, name string, args ...string) ([]byte, error) {
		return exec.CommandContext(ctx, name, args...).CombinedOutput()
	}
	ip("link", "set", "lo", "up")
	for range 2 {
		require.NoError(t, SetAddress(t.Context(), run, true))
	}
	start(t, Address+":80", write(t, document))
	status, text := get(t, "http://169.254.169.254/latest/meta-data/instance-id")
	require.Equal(t, 200, status)
	require.Equal(t, "alc_1", text)

	// Another namespace is a neighbour, which sends packets for the address to this one.
	neighbour := exec.Command("sleep", "600")
	neighbour.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	require.NoError(t, neighbour.Start())
	t.Cleanup(func() { _ = neighbour.Process.Kill(); _ = neighbour.Wait() })
	there := fmt.Sprint(neighbour.Process.Pid)
	ip("link", "add", "here", "type", "veth", "peer", "name", "there")
	ip("address", "add", "192.0.2.1/24", "dev", "here")
	ip("link", "set", "here", "up")
	ip("link", "set", "there", "netns", there)
	inThere := func(args ...string) *exec.Cmd {
		return exec.Command("nsenter", append([]string{"-t", there, "-n"}, args...)...)
	}
	for _, args := range [][]string{{"ip", "address", "add", "192.0.2.2/24", "dev", "there"},
		{"ip", "link", "set", "there", "up"}, {"ip", "route", "add", Address, "dev", "there", "src", "192.0.2.2"}} {
		out, err := inThere(args...).CombinedOutput()
		require.NoError(t, err, "%v: %s", args, out)
	}
	other := inThere(os.Args[0], "-test.run=^TestServe_LinkLocalAddress$", "-test.count=1", "-test.v")
	other.Env = append(os.Environ(), inNamespace+"="+asNeighbour)
	out, err := other.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "--- PASS: TestServe_LinkLocalAddress")

	for range 2 {
		require.NoError(t, SetAddress(t.Context(), run, false))
	}
	_, err = (&net.Dialer{Timeout: time.Second}).Dial("tcp", Address+":80")
	require.Error(t, err, "the address is gone with the allocation")
	fails := func(context.Context, string, ...string) ([]byte, error) { return nil, nil } // says OK and does nothing
	require.ErrorContains(t, SetAddress(t.Context(), fails, true), "has not got the address")
}

func runInNamespace(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("ip"); err != nil || os.Geteuid() != 0 {
		t.Skip("this needs root and the program ip: it makes a network namespace")
	}
	ctx, cancel := context.WithTimeout(t.Context(), runenv.Patience(time.Minute))
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestServe_LinkLocalAddress$", "-test.count=1", "-test.v")
	cmd.Env = append(os.Environ(), inNamespace+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "--- PASS: TestServe_LinkLocalAddress")
}
