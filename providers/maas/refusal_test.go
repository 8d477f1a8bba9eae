package maas_test

import (
	"errors"
	"io"
	"log"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/maas"
)

func quiet() *log.Logger { return log.New(io.Discard, "", 0) }

// TestStatusMapping walks through what MAAS answers, for a read and for a mutation.
func TestStatusMapping(t *testing.T) {
	t.Parallel()
	const page = "<html><body>Conflict</body></html>"
	for name, c := range map[string]struct {
		status      int
		contentType string
		body        string
		read, write providers.Kind
		says        string
	}{
		"field errors":       {400, "application/json", `{"hostname":["Node with this Hostname already exists."],"a":["b"]}`, providers.KindInvalid, providers.KindInvalid, "a: b; hostname: Node with this"},
		"list of errors":     {400, "application/json", `["one","two"]`, providers.KindInvalid, providers.KindInvalid, "one two"},
		"plain 400":          {400, "text/plain", "Machine is missing a boot disk", providers.KindInvalid, providers.KindInvalid, "missing a boot disk"},
		"wrong state as 400": {400, "application/json", `{"__all__":["Commission is not available because of the current state of the node."]}`, providers.KindStateConflict, providers.KindStateConflict, "current state"},
		"no credentials":     {400, "text/plain", "Unrecognised signature: method=GET op=None", providers.KindUnauthorized, providers.KindUnauthorized, "proxy"},
		"unknown operation":  {400, "text/plain", "Unrecognised signature: method=POST op=new_op", providers.KindUnsupported, providers.KindUnsupported, "version"},
		"bad key":            {401, "text/plain", "Authorization Error: 'Invalid access token: tokenQ2'", providers.KindUnauthorized, providers.KindUnauthorized, "[secret]"},
		"clock skew":         {401, "text/plain", "Authorization Error: 'Expired timestamp: given 1 and now 900 has a greater difference than threshold 300'", providers.KindUnauthorized, providers.KindUnauthorized, "clocks differ"},
		"locked":             {403, "text/plain", "", providers.KindForbidden, providers.KindForbidden, "locked"},
		"absent":             {404, "text/plain", "No Machine matches the given query.", providers.KindNotFound, providers.KindNotFound, "No Machine"},
		"absent as html":     {404, "text/html", "No Machine matches the given query.", providers.KindNotFound, providers.KindNotFound, ""},
		"wrong path":         {404, "text/plain", "Unknown API endpoint: /MAAS/x/.", providers.KindProtocol, providers.KindProtocol, "no MAAS 2.0 API"},
		"some web server":    {404, "text/html", "<html>404</html>", providers.KindProtocol, providers.KindProtocol, "no MAAS 2.0 API"},
		"some gateway":       {404, "application/json", `{"message":"no Route matched"}`, providers.KindProtocol, providers.KindProtocol, "no MAAS 2.0 API"},
		"state":              {409, "text/plain", "Machine cannot be released in its current state ('New').", providers.KindStateConflict, providers.KindStateConflict, "'New'"},
		"serialization":      {409, "text/html", page, providers.KindBusy, providers.KindBusy, "busy"},
		"teapot":             {418, "text/plain", "", providers.KindProtocol, providers.KindProtocol, ""},
		"exception":          {500, "text/plain", "Power action failed", providers.KindUnavailable, providers.KindUncertain, "Power action failed"},
		"bad gateway":        {502, "text/html", page, providers.KindUnavailable, providers.KindUncertain, ""},
		"no rack":            {503, "text/plain", "No rack controllers can access the BMC of node n1", providers.KindUnavailable, providers.KindUncertain, "No rack controllers"},
		"proxy gave up":      {504, "text/html", page, providers.KindUnavailable, providers.KindUncertain, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStub(t, answer(c.status, c.contentType, c.body))
			m := open(t, s.URL)
			check := func(op operation, want providers.Kind) {
				pe := requireKind(t, op.run(within(t), m), want)
				require.Equal(t, c.status, pe.Status)
				require.Contains(t, pe.Message, c.says)
				require.NotContains(t, pe.Message, "<")
				require.ErrorContains(t, pe.Err, "trace-77")
			}
			for _, op := range allReads() {
				check(op, c.read)
			}
			for _, op := range allMutations() {
				if op.name != "delete" || c.write != providers.KindNotFound {
					check(op, c.write)
				}
			}
		})
	}
}

func TestDeleteOfAnAbsentMachine(t *testing.T) {
	t.Parallel()
	gone := newStub(t, answer(404, "text/plain", "No Machine matches the given query."))
	require.NoError(t, open(t, gone.URL).DeleteMachine(within(t), id))
	elsewhere := newStub(t, answer(404, "text/html", "<html>404</html>"))
	requireKind(t, open(t, elsewhere.URL).DeleteMachine(within(t), id), providers.KindProtocol)
	done := newStub(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete && r.URL.Path == "/MAAS/api/2.0/machines/"+id+"/" {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		w.WriteHeader(http.StatusTeapot)
	})
	require.NoError(t, open(t, done.URL).DeleteMachine(within(t), id))
}

// TestSecretsStayOut has the region repeat everything that it was sent, in
// several spellings, in every sort of refusal.
func TestSecretsStayOut(t *testing.T) {
	t.Parallel()
	secrets := []string{"consumerQ1", "tokenQ2", "signatureQ3", password, url.QueryEscape(password), "Q4", "<x>"}
	for _, status := range []int{200, 400, 401, 403, 404, 409, 418, 500, 503} {
		for _, contentType := range []string{"text/plain", "application/json", "text/html"} {
			s := newStub(t, func(w http.ResponseWriter, r *http.Request) {
				_ = r.ParseForm()
				body := "said " + r.Header.Get("Authorization") + " " + r.PostForm.Encode() + " " + r.PostForm.Get("power_parameters_power_pass")
				if contentType == "application/json" {
					body = `{"power_parameters":["` + strings.NewReplacer(`"`, `\"`, `<`, `\u003c`).Replace(body) + `"]}`
				}
				answer(status, contentType, body)(w, r)
			})
			m := open(t, s.URL)
			for _, op := range append(allMutations(), allReads()...) {
				err := op.run(within(t), m)
				if err == nil {
					continue // an OK or a delete needs no body
				}
				for ; err != nil; err = errors.Unwrap(err) {
					for _, secret := range secrets {
						require.NotContains(t, err.Error(), secret, "%s, HTTP %d, %s", op.name, status, contentType)
					}
				}
			}
		}
	}
}

// TestSecretsStayOutOfBrokenAnswers: the connection's own errors quote what
// came.
func TestSecretsStayOutOfBrokenAnswers(t *testing.T) {
	t.Parallel()
	s := newStub(t, hangUp("tokenQ2 signatureQ3 is no HTTP\r\n"))
	for _, op := range append(allMutations(), allReads()...) {
		pe := requireKind(t, op.run(within(t), open(t, s.URL)), lostKind(op))
		require.NotContains(t, pe.Error()+pe.Err.Error(), "Q2")
		require.NotContains(t, pe.Error()+pe.Err.Error(), "Q3")
		require.Contains(t, pe.Err.Error(), "[secret]")
	}
}

func TestShortPasswordWithholdsTheText(t *testing.T) {
	t.Parallel()
	s := newStub(t, answer(400, "text/plain", "cannot use ab as a password"))
	in := newMachine()
	in.PowerPassword = providers.NewSecret("ab")
	_, err := open(t, s.URL).CreateMachine(within(t), in)
	pe := requireKind(t, err, providers.KindInvalid)
	require.Contains(t, pe.Message, "withheld")
}

func TestBadIDsAreRefusedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	s := newStub(t, answer(200, "application/json", machineJSON(id, providers.MAASReady)))
	m := open(t, s.URL)
	for _, bad := range []string{"", "abc", "abc4efg", "ABC4EF", "../a/b", "../../users/admin", "abc4e/", "abc4e?", "abc4e\n", "abc%2f", "äbc4e"} {
		for _, op := range append(mutations(bad), reads(bad)...) {
			requireKind(t, op.run(within(t), m), providers.KindInvalid)
		}
	}
	ctx := within(t)
	for _, n := range []int{0, -1} {
		requireKind(t, m.SetBootDisk(ctx, id, n), providers.KindInvalid)
		requireKind(t, m.LinkSubnet(ctx, id, n, 1, "auto"), providers.KindInvalid)
		requireKind(t, m.LinkSubnet(ctx, id, 1, n, "auto"), providers.KindInvalid)
		requireKind(t, m.LinkStatic(ctx, id, 1, n, "10.0.0.1"), providers.KindInvalid)
		requireKind(t, m.UnlinkSubnet(ctx, id, 1, n), providers.KindInvalid)
		requireKind(t, m.UnlinkSubnet(ctx, id, n, 1), providers.KindInvalid)
		requireKind(t, m.UpdateInterface(ctx, id, n, 0, nil), providers.KindInvalid)
	}
	requireKind(t, m.SetStorageLayout(ctx, id, "flat", -1), providers.KindInvalid)
	requireKind(t, m.SetStorageLayout(ctx, id, "../flat", 1), providers.KindInvalid)
	requireKind(t, m.LinkSubnet(ctx, id, 1, 1, "magic"), providers.KindInvalid)
	requireKind(t, m.LinkStatic(ctx, id, 1, 1, "10.0.0.0/24"), providers.KindInvalid)
	requireKind(t, m.UpdateInterface(ctx, id, 1, 100, nil), providers.KindInvalid)
	requireKind(t, m.UpdateInterface(ctx, id, 1, 0, []string{"a b"}), providers.KindInvalid)
	requireKind(t, m.SetWorkloadAnnotations(ctx, id, map[string]string{"op": "release"}), providers.KindInvalid)
	_, err := m.Events(ctx, id, "LOUD", 1)
	requireKind(t, err, providers.KindInvalid)
	_, err = m.Events(ctx, id, "INFO", 1001)
	requireKind(t, err, providers.KindInvalid)
	_, err = m.Results(ctx, id, "../x")
	requireKind(t, err, providers.KindInvalid)
	_, err = m.Deploy(ctx, id, providers.MAASDeploy{DistroSeries: "a b"})
	requireKind(t, err, providers.KindInvalid)
	_, err = m.Deploy(ctx, id, providers.MAASDeploy{UserData: make([]byte, 1<<20+1)})
	requireKind(t, err, providers.KindInvalid)
	_, err = m.FindMachines(ctx, providers.MAASQuery{MACs: []string{"nonsense"}})
	requireKind(t, err, providers.KindInvalid)
	require.Zero(t, s.requests.Load())
}

func TestWrongSiteSettings(t *testing.T) {
	t.Parallel()
	good := "https://maas.example:5240/MAAS"
	for _, c := range []providers.MAASSite{
		{URL: "", APIKey: providers.NewSecret(apiKey)},
		{URL: "ftp://maas.example/MAAS", APIKey: providers.NewSecret(apiKey)},
		{URL: "https://", APIKey: providers.NewSecret(apiKey)},
		{URL: "https://u:signatureQ3@maas.example/MAAS", APIKey: providers.NewSecret(apiKey)},
		{URL: "https://maas.example/MAAS?x=1", APIKey: providers.NewSecret(apiKey)},
		{URL: "https://maas.example/a/../MAAS", APIKey: providers.NewSecret(apiKey)},
		{URL: good, APIKey: providers.NewSecret("signatureQ3")},
		{URL: good, APIKey: providers.NewSecret("a:b:")},
		{URL: good, APIKey: providers.NewSecret("a:b:signatureQ3\nx")},
		{URL: good, APIKey: providers.NewSecret(apiKey), CAPEM: "no certificate"},
	} {
		_, err := maas.Opener{}.OpenMAAS(c)
		pe := requireKind(t, err, providers.KindInvalid)
		require.NotContains(t, pe.Error(), "signatureQ3")
	}
	for _, u := range []string{good, good + "/", good + "/api/2.0/", " " + good} {
		_, err := maas.Opener{}.OpenMAAS(providers.MAASSite{Rule: providers.SimulatedAddresses(), URL: u, APIKey: providers.NewSecret(apiKey)})
		require.NoError(t, err)
	}
}
