package e2e_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/client"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// requestTimeout bounds one request of a test.
const requestTimeout = time.Minute

// client returns a client of the API for the owner of the token.
func (w *world) client(t *testing.T, token string) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{Server: w.Config.API.PublicURL, Token: token})
	require.NoError(t, err)
	c.Timeout = runenv.Patience(requestTimeout)
	return c
}

// as returns a client of the API for a user with the role.
func (w *world) as(t *testing.T, role string) *client.Client {
	t.Helper()
	token, err := op.CreateToken(t.Context(), w.App.Store, "e2e-"+role, []string{role}, time.Hour)
	require.NoError(t, err)
	return w.client(t, token)
}

// decoded returns an answer as the server's own type.
func decoded[T any](t *testing.T, raw []byte) (v T) {
	t.Helper()
	require.NoError(t, json.Unmarshal(raw, &v), string(raw))
	return v
}
