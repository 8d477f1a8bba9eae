package cli

import (
	"bufio"
	"context"
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// callback takes the answer to one sign-in on a port of this machine.
type callback struct {
	state   string
	answers chan url.Values
	// isOurs reports whether the program that brings an answer belongs to the user who signs in.
	isOurs func(here, there string) bool
	server *http.Server
	url    string
}

// listenForAnswer opens a port of this machine for the answer to the sign-in with a state. It
// listens on the address, not on a name that another program could resolve otherwise, and on a port
// that nobody else had.
func (a *app) listenForAnswer(ctx context.Context, state string) (*callback, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &callback{state: state, answers: make(chan url.Values, 1), isOurs: a.isOurs, url: "http://" + l.Addr().String() + callbackPath}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+callbackPath, c.takeAnswer)
	c.server = &http.Server{Handler: mux, ReadTimeout: providerLimit, WriteTimeout: providerLimit, MaxHeaderBytes: 32 << 10}
	go func() { _ = c.server.Serve(l) }() // it ends when it is closed
	return c, nil
}

// takeAnswer takes the answer, once. It refuses an answer that a program of another user of this
// machine brings: who sees the address of the sign-in in the list of processes could finish it as
// himself.
func (c *callback) takeAnswer(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	here, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	got := r.URL.Query()
	switch {
	case subtle.ConstantTimeCompare([]byte(got.Get("state")), []byte(c.state)) != 1:
		http.Error(w, "This answer belongs to no sign-in that waits here. Run slipway login again.", http.StatusBadRequest)
		return
	case here != nil && !c.isOurs(here.String(), r.RemoteAddr):
		http.Error(w, "This browser belongs to another user of this machine than slipway login. "+
			"Open the address in a browser of that user, or use slipway login --device.", http.StatusForbidden)
		return
	}
	select {
	case c.answers <- got:
		fmt.Fprintln(w, "The command line goes on. You can close this page.")
	default:
		http.Error(w, "This sign-in is already complete.", http.StatusConflict)
	}
}

// closeSoon gives the browser the time to read its page.
func (c *callback) closeSoon() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = c.server.Shutdown(ctx)
}

// isOurs reports whether the other end of a connection on this machine belongs to the user who runs
// slipway, to the user who runs it with sudo, or to the administrator, whom nothing keeps out.
// Where the system does not tell the owner, the state and the nonce alone protect the sign-in.
func (a *app) isOurs(here, there string) bool {
	owner := a.PortOwner
	if owner == nil {
		owner = portOwner
	}
	uid, known := owner(here, there)
	return !known || uid == 0 || uid == os.Getuid() || strconv.Itoa(uid) == a.Getenv("SUDO_UID")
}

// portOwner returns the user whose program has the far end of a connection on this machine. Only
// Linux lists the connections with their owners.
func portOwner(here, there string) (uid int, known bool) {
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(table)
		if err != nil {
			continue
		}
		uid, known = ownerIn(f, there, here)
		_ = f.Close()
		if known {
			return uid, true
		}
	}
	return 0, false
}

// The columns of a line of /proc/net/tcp.
const (
	columnLocal  = 1
	columnRemote = 2
	columnOwner  = 7
)

// ownerIn finds the owner of the connection between two addresses in a table of /proc/net.
func ownerIn(table io.Reader, local, remote string) (uid int, known bool) {
	lines := bufio.NewScanner(table)
	for lines.Scan() {
		columns := strings.Fields(lines.Text())
		if len(columns) <= columnOwner || endpointOf(columns[columnLocal]) != local || endpointOf(columns[columnRemote]) != remote {
			continue
		}
		uid, err := strconv.Atoi(columns[columnOwner])
		return uid, err == nil
	}
	return 0, false
}

// endpointOf turns an address of /proc/net into the usual form, such as 127.0.0.1:80, and "" when
// it is none. The kernel prints each four bytes of an IP address as one number of the machine.
func endpointOf(text string) string {
	host, port, found := strings.Cut(text, ":")
	raw, err := hex.DecodeString(host)
	number, errPort := strconv.ParseUint(port, 16, 16)
	if !found || err != nil || errPort != nil || len(raw)%4 != 0 {
		return ""
	}
	for i := 0; i < len(raw); i += 4 {
		binary.NativeEndian.PutUint32(raw[i:], binary.BigEndian.Uint32(raw[i:]))
	}
	ip, ok := netip.AddrFromSlice(raw)
	if !ok {
		return ""
	}
	return netip.AddrPortFrom(ip.Unmap(), uint16(number)).String()
}
