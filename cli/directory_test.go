package cli_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
)

// row is one resource of a list.
type row = map[string]any

// directory is a server that answers with lists in pages, and takes every change.
type directory struct {
	mu      sync.Mutex
	roles   []string
	project string           // of the token
	lists   map[string][]row // by path
	single  map[string]row   // what is no list, by path
	refuses map[string]bool  // paths that the caller may not read
	asked   []string         // paths of reads
	changes []string         // method and path
	headers []http.Header    // of calls of the gRPC API
}

// newDirectory starts the server of lists and returns a user of it who has contexts.
func newDirectory(t *testing.T, d *directory) *world {
	t.Helper()
	srv := httptest.NewServer(d)
	t.Cleanup(srv.Close)
	w := &world{t: t, home: t.TempDir(), env: map[string]string{}, url: srv.URL}
	w.run("slp_x\n", "login", "--server", srv.URL, "--token-stdin", "--name", "dev").exits(0)
	d.asked = nil
	return w
}

func (d *directory) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_, isList := d.lists[r.URL.Path]
	switch {
	case r.URL.Path == "/api/v1/whoami":
		d.answer(w, row{"id": "token:x", "name": "x", "roles": d.roles, "project": d.project})
	case r.Header.Get("Connect-Protocol-Version") != "":
		d.headers = append(d.headers, r.Header)
		w.WriteHeader(http.StatusNotFound)
		d.answer(w, row{"code": "not_found", "message": "Nothing is here."})
	case r.Method != http.MethodGet:
		d.changes = append(d.changes, r.Method+" "+r.URL.Path)
		d.answer(w, row{"id": "done_1", "status": "done"})
	case d.refuses[r.URL.Path]:
		w.WriteHeader(http.StatusForbidden)
		d.answer(w, row{"status": http.StatusForbidden, "detail": "This call needs another role."})
	case isList:
		d.asked = append(d.asked, r.URL.Path)
		d.servePage(w, r)
	case d.single[r.URL.Path] != nil:
		d.asked = append(d.asked, r.URL.Path)
		d.answer(w, d.single[r.URL.Path])
	default:
		d.asked = append(d.asked, r.URL.Path)
		w.WriteHeader(http.StatusNotFound)
		d.answer(w, row{"status": http.StatusNotFound, "detail": "It was not found."})
	}
}

func (d *directory) servePage(w http.ResponseWriter, r *http.Request) {
	rows := d.lists[r.URL.Path]
	if name := r.URL.Query().Get("name"); name != "" {
		rows = slices.DeleteFunc(slices.Clone(rows), func(one row) bool { return one["name"] != name })
	}
	after, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	end := len(rows)
	if limit > 0 {
		end = min(end, after+limit)
	}
	out := row{"data": rows[after:end]}
	if end < len(rows) {
		out["next_cursor"] = strconv.Itoa(end)
	}
	d.answer(w, out)
}

func (d *directory) answer(w http.ResponseWriter, v row) { _ = json.NewEncoder(w).Encode(v) }
