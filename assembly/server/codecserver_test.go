package server

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"

	"github.com/slipway-cloud/slipway/internal/temporalx/payloadcodec"
	"github.com/slipway-cloud/slipway/providers/secrets"
)

// allowOperator stands for the API's check of roles, which test/e2e uses.
func allowOperator(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer operator" {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
}

const webUI = "https://temporal.example.com"

func newCodecServer(t *testing.T) (*payloadcodec.Codec, *httptest.Server) {
	t.Helper()
	store, err := secrets.Open(t.Context(), &secrets.Memory{}, secrets.Keeper{KeyFile: filepath.Join(t.TempDir(), "key")}, secrets.Options{})
	require.NoError(t, err)
	codec, err := payloadcodec.Open(t.Context(), store, slog.New(slog.DiscardHandler), false)
	require.NoError(t, err)
	srv := httptest.NewServer(codecServer(codec, []string{webUI}, allowOperator))
	t.Cleanup(srv.Close)
	return codec, srv
}

func TestCodecServer_DecodesForOperators(t *testing.T) {
	t.Parallel()
	codec, srv := newCodecServer(t)
	plain, err := converter.GetDefaultDataConverter().ToPayloads("a text", "another one")
	require.NoError(t, err)
	sealed, err := codec.Encode(plain.Payloads)
	require.NoError(t, err)
	remote := func(token string) converter.PayloadCodec {
		return converter.NewRemotePayloadCodec(converter.RemotePayloadCodecOptions{
			Endpoint: srv.URL + codecPath, ModifyRequest: func(r *http.Request) error { r.Header.Set("Authorization", token); return nil },
		})
	}
	got, err := remote("Bearer operator").Decode(append(sealed, plain.Payloads[0]))
	require.NoError(t, err)
	require.Len(t, got, 3)
	require.True(t, plain.Payloads[1].Equal(got[1]))
	require.True(t, plain.Payloads[0].Equal(got[2]), "plain input of an operator")
	encoded, err := remote("Bearer operator").Encode(plain.Payloads)
	require.NoError(t, err, "the Web UI and the command line encode what an operator sends")
	require.Equal(t, "binary/encrypted", string(encoded[0].Metadata["encoding"]))
	_, err = remote("").Decode(sealed)
	require.ErrorContains(t, err, "Unauthorized")

	many := make([]*commonpb.Payload, maxCodecPayloads+1)
	for i := range many {
		many[i] = plain.Payloads[0]
	}
	_, err = remote("Bearer operator").Decode(many)
	require.ErrorContains(t, err, "a request may hold 2000 payloads")
	sealed[0].Data[30] ^= 1
	_, err = remote("Bearer operator").Decode(sealed)
	require.ErrorContains(t, err, "it was altered")
}

func TestCodecServer_Limits(t *testing.T) {
	t.Parallel()
	_, srv := newCodecServer(t)
	ask := func(method, path, origin, body string) *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), method, srv.URL+codecPath+path, strings.NewReader(body))
		require.NoError(t, err)
		if method != http.MethodOptions { // a browser sends no token with it
			r.Header.Set("Authorization", "Bearer operator")
		}
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		res, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		return res
	}
	const body = `{"payloads": []}`
	require.Equal(t, http.StatusOK, ask("POST", "/decode", "", body).StatusCode)
	require.Equal(t, http.StatusNotFound, ask("GET", "/decode", "", "").StatusCode)
	require.Equal(t, http.StatusNotFound, ask("POST", "/other", "", body).StatusCode)
	require.Equal(t, http.StatusRequestEntityTooLarge, ask("POST", "/decode", "", strings.Repeat(" ", maxCodecBody+1)).StatusCode)
	require.Equal(t, http.StatusBadRequest, ask("POST", "/decode", "", `{"payloads": [`+strings.Repeat(" ", maxCodecBody-14)).StatusCode)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+codecPath+"/decode", io.MultiReader(strings.NewReader(body)))
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer operator")
	res, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusLengthRequired, res.StatusCode, "a body of unknown length")

	allowed := ask("OPTIONS", "/decode", webUI, "")
	require.Equal(t, http.StatusNoContent, allowed.StatusCode)
	require.Equal(t, webUI, allowed.Header.Get("Access-Control-Allow-Origin"))
	require.Contains(t, allowed.Header.Get("Access-Control-Allow-Headers"), "Authorization")
	require.Equal(t, webUI, ask("POST", "/decode?preserveStorageRefs=true", webUI, body).Header.Get("Access-Control-Allow-Origin"))
	for _, origin := range []string{"https://evil.example.com", webUI + ".evil.example.com", "null", "http://temporal.example.com"} {
		for _, method := range []string{"OPTIONS", "POST"} {
			res := ask(method, "/decode", origin, body)
			require.Equal(t, http.StatusForbidden, res.StatusCode, origin)
			require.Empty(t, res.Header.Get("Access-Control-Allow-Origin"), origin)
		}
	}
}
