package webhook

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"
)

// receive is the example of docs/webhooks.md, which TestPage_ExampleVerifies compares with the
// page.
func receive(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		http.Error(w, "the body cannot be read", http.StatusBadRequest)
		return
	}
	verifier, err := standardwebhooks.NewWebhook(os.Getenv("WEBHOOK_SECRET")) // whsec_...
	if err == nil {
		err = verifier.Verify(body, r.Header)
	}
	if err != nil {
		http.Error(w, "the signature is wrong", http.StatusUnauthorized)
		return
	}
	var event struct{ ID, Type, Sequence string }
	if err := json.Unmarshal(body, &event); err != nil {
		http.Error(w, "this is no event", http.StatusBadRequest)
		return
	}
	fmt.Println("received", event.Type, event.Sequence)
	w.WriteHeader(http.StatusNoContent)
}

// TestPage_ExampleVerifies sends to the receiver that the page shows: it accepts what its secret
// has signed, and nothing else.
func TestPage_ExampleVerifies(t *testing.T) {
	page, err := os.ReadFile("../../docs/webhooks.md")
	require.NoError(t, err)
	_, example, _ := strings.Cut(string(page), "```go\n")
	example, _, _ = strings.Cut(example, "```")
	source, err := os.ReadFile("page_test.go")
	require.NoError(t, err)
	require.NotEmpty(t, example)
	require.Contains(t, string(source), example, "the page and this file show the same receiver")
	secret := NewSecret()
	t.Setenv("WEBHOOK_SECRET", secret.Reveal())
	server, o := newEndpoint(t, receive)
	require.Equal(t, http.StatusNoContent, send(t, o, newMessage(server.URL, secret)).Status)
	require.Equal(t, http.StatusNoContent, send(t, o, newMessage(server.URL, NewSecret(), secret)).Status, "while both sign")
	require.Equal(t, http.StatusUnauthorized, send(t, o, newMessage(server.URL, NewSecret())).Status)
}
