package webhook

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/providers"
)

// ContentType is that of a body.
const ContentType = "application/cloudevents+json"

// The headers of Standard Webhooks.
const (
	HeaderID        = "Webhook-Id"
	HeaderTimestamp = "Webhook-Timestamp"
	HeaderSignature = "Webhook-Signature"
)

const (
	secretPrefix = "whsec_"
	secretBytes  = 32
	specVersion  = "1.0"
	typePrefix   = "cloud.slipway."
	typeSuffix   = ".v1"
)

// Event is what a webhook receives: a CloudEvent. Sequence is an extension attribute, a decimal
// number that grows with each event of the project.
type Event struct {
	SpecVersion     string          `json:"specversion"`
	ID              string          `json:"id"`
	Source          string          `json:"source"`
	Type            string          `json:"type"`
	Subject         string          `json:"subject,omitempty"`
	Time            time.Time       `json:"time"`
	DataContentType string          `json:"datacontenttype"`
	Sequence        string          `json:"sequence,omitempty"`
	Data            json.RawMessage `json:"data"`
}

// NewEvent returns the event of a project with the given id. kind is such as member.added, and
// subject the resource. Sequence 0 is left out.
func NewEvent(projectID, id, kind, subject string, at time.Time, sequence int64, data json.RawMessage) Event {
	e := Event{
		SpecVersion: specVersion, ID: id, Source: "/projects/" + projectID, Type: typePrefix + kind + typeSuffix, Subject: subject,
		Time: at.UTC(), DataContentType: "application/json", Data: data,
	}
	if sequence > 0 {
		e.Sequence = strconv.FormatInt(sequence, 10)
	}
	return e
}

// NewSecret makes the secret of a webhook, in the text form of Standard Webhooks.
func NewSecret() providers.Secret {
	b := make([]byte, secretBytes)
	_, _ = rand.Read(b) // never fails
	return providers.NewSecret(secretPrefix + base64.StdEncoding.EncodeToString(b))
}

// sign adds the headers of a body. It makes a signature with each secret, so that a receiver may
// change from one to the other.
func sign(h http.Header, id string, at time.Time, body []byte, secrets []providers.Secret) error {
	timestamp := strconv.FormatInt(at.Unix(), 10)
	signatures := make([]string, 0, len(secrets))
	for _, s := range secrets {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(s.Reveal(), secretPrefix))
		if err != nil || len(key) == 0 {
			return fmt.Errorf("the secret of the webhook is not one of Standard Webhooks; rotate it")
		}
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "%s.%s.%s", id, timestamp, body)
		signatures = append(signatures, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	h.Set(HeaderID, id)
	h.Set(HeaderTimestamp, timestamp)
	h.Set(HeaderSignature, strings.Join(signatures, " "))
	return nil
}
