package stripe_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/stripe/stripe-go/v85/webhook"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/stripe"
	stripesim "github.com/slipway-cloud/slipway/sim/stripe"
	"github.com/slipway-cloud/slipway/test/runenv"
)

const (
	oldSecret = "whsec_the_old_secret"
	newSecret = "whsec_the_new_secret"
)

func secretsOf(values ...string) []providers.Secret {
	var out []providers.Secret
	for _, v := range values {
		out = append(out, providers.NewSecret(v))
	}
	return out
}

var testTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func verifier(t testing.TB, secrets ...string) *stripe.Verifier {
	t.Helper()
	v, err := stripe.NewVerifier(stripe.VerifierOptions{Secrets: secretsOf(secrets...), Now: func() time.Time { return testTime }})
	require.NoError(t, err)
	return v
}

const body = `{"id":"evt_1","object":"event","type":"checkout.session.completed","api_version":"2026-05-27.dahlia","created":1772366400,"livemode":false,` +
	`"data":{"object":{"id":"cs_test_a1","object":"checkout.session","amount_total":2500}}}`

// signed is a header made by Stripe's own library.
func signed(at time.Time, secret, body string) string {
	return webhook.GenerateTestSignedPayload(&webhook.UnsignedPayload{Payload: []byte(body), Secret: secret, Timestamp: at}).Header
}

func reason(err error) stripe.RefusalReason {
	var r *stripe.WebhookRefusal
	if errors.As(err, &r) {
		return r.Reason
	}
	return ""
}

func TestVerify_AcceptsAndRefuses(t *testing.T) {
	t.Parallel()
	good := signed(testTime, newSecret, body)
	stamp, sum, _ := strings.Cut(good, ",")
	for name, c := range map[string]struct {
		header, body string
		want         stripe.RefusalReason // "" is accepted
	}{
		"signed":                        {good, body, ""},
		"by the old secret":             {signed(testTime, oldSecret, body), body, ""},
		"by both, the other first":      {good + "," + strings.Split(signed(testTime, oldSecret, body), ",")[1], body, ""},
		"among signatures of others":    {stamp + ",v1=" + strings.Repeat("00", 32) + "," + sum, body, ""},
		"as old as allowed":             {signed(testTime.Add(-5*time.Minute), newSecret, body), body, ""},
		"as far ahead as allowed":       {signed(testTime.Add(time.Minute), newSecret, body), body, ""},
		"by nobody":                     {"", body, stripe.RefusedUnsigned},
		"by another secret":             {signed(testTime, "whsec_another_secret", body), body, stripe.RefusedSignature},
		"by an empty secret":            {signed(testTime, "", body), body, stripe.RefusedSignature},
		"another body":                  {good, strings.Replace(body, "2500", "9500", 1), stripe.RefusedSignature},
		"another time than signed":      {"t=1772366401," + sum, body, stripe.RefusedSignature},
		"too old":                       {signed(testTime.Add(-5*time.Minute-time.Second), newSecret, body), body, stripe.RefusedStale},
		"a day ahead":                   {signed(testTime.Add(24*time.Hour), newSecret, body), body, stripe.RefusedFuture},
		"a little too far ahead":        {signed(testTime.Add(time.Minute+time.Second), newSecret, body), body, stripe.RefusedFuture},
		"only the test scheme":          {strings.Replace(good, "v1=", "v0=", 1), body, stripe.RefusedHeader},
		"two times":                     {stamp + "," + good, body, stripe.RefusedHeader},
		"no time":                       {sum, body, stripe.RefusedHeader},
		"no number":                     {"t=now," + sum, body, stripe.RefusedHeader},
		"a number that is too large":    {"t=9223372036854775807," + sum, body, stripe.RefusedHeader},
		"no pairs":                      {"signature", body, stripe.RefusedHeader},
		"a very long header":            {good + strings.Repeat(",v1=00", 1000), body, stripe.RefusedHeader},
		"no hexadecimal":                {stamp + ",v1=xyz", body, stripe.RefusedHeader},
		"half a signature":              {good[:len(good)-10], body, stripe.RefusedSignature},
		"no JSON":                       {signed(testTime, newSecret, "hello"), "hello", stripe.RefusedNoEvent},
		"no event":                      {signed(testTime, newSecret, `{"object":"charge"}`), `{"object":"charge"}`, stripe.RefusedNoEvent},
		"an id that is none":            {signed(testTime, newSecret, strings.Replace(body, "evt_1", "evt 1", 1)), strings.Replace(body, "evt_1", "evt 1", 1), stripe.RefusedNoEvent},
		"a time that no database takes": {signed(testTime, newSecret, strings.Replace(body, "1772366400", "1e18", 1)), strings.Replace(body, "1772366400", "1e18", 1), stripe.RefusedNoEvent},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, err := verifier(t, newSecret, oldSecret).Verify(c.header, []byte(c.body))
			if c.want != "" {
				require.Equal(t, c.want, reason(err), "%v", err)
				require.Empty(t, d.Body, "nothing of a refused webhook may be stored")
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.body, string(d.Body))
			require.Equal(t, "evt_1", d.Event.ID)
			require.Equal(t, "checkout.session", d.Event.ObjectKind)
			require.Equal(t, "cs_test_a1", d.Event.ObjectID)
			require.True(t, d.Event.KnownRelease)
			require.False(t, d.OtherMode)
		})
	}
}

// When a secret is rolled, its old form is refused once it is taken out.
func TestVerify_RolledSecretIsRefused(t *testing.T) {
	t.Parallel()
	_, err := verifier(t, newSecret).Verify(signed(testTime, oldSecret, body), []byte(body))
	require.Equal(t, stripe.RefusedSignature, reason(err))
}

// An event that this build cannot use is kept: an event of another release, of the other mode, of
// an unknown type, without an object, and of Stripe's second API.
func TestVerify_KeepsWhatItCannotUse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body                string
		known, other        bool
		objectKind, release string
	}{
		"another release": {strings.Replace(body, "2026-05-27.dahlia", "2025-11-17.clover", 1), false, false, "checkout.session", "2025-11-17.clover"},
		"a later release": {strings.Replace(body, "2026-05-27.dahlia", "2026-08-26.dahlia", 1), true, false, "checkout.session", "2026-08-26.dahlia"},
		"before releases": {strings.Replace(body, "2026-05-27.dahlia", "2019-12-03", 1), false, false, "checkout.session", "2019-12-03"},
		"no release":      {strings.Replace(body, `"api_version":"2026-05-27.dahlia",`, `"api_version":null,`, 1), false, false, "checkout.session", ""},
		"the live mode":   {strings.Replace(body, `"livemode":false`, `"livemode":true`, 1), true, true, "checkout.session", "2026-05-27.dahlia"},
		"an unknown type": {strings.Replace(body, "checkout.session.completed", "moon.phase_changed", 1), true, false, "checkout.session", "2026-05-27.dahlia"},
		"no object":       {`{"id":"evt_1","object":"event","type":"a.b","api_version":"2026-05-27.dahlia","created":1772366400,"livemode":false}`, true, false, "", "2026-05-27.dahlia"},
		"the second API":  {`{"id":"evt_1","object":"v2.core.event","type":"v1.billing.meter.no_meter_found","created":"2026-03-01T12:00:00.000Z","livemode":false}`, false, false, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, err := verifier(t, newSecret).Verify(signed(testTime, newSecret, c.body), []byte(c.body))
			require.NoError(t, err)
			require.Equal(t, c.body, string(d.Body))
			require.Equal(t, c.known, d.Event.KnownRelease)
			require.Equal(t, c.other, d.OtherMode)
			require.Equal(t, c.objectKind, d.Event.ObjectKind)
			require.Equal(t, c.release, d.Event.Release)
			require.Equal(t, testTime, d.Event.Created)
		})
	}
}

func TestVerifier_NeedsSecrets(t *testing.T) {
	t.Parallel()
	for want, secrets := range map[string][]string{
		"name one signing secret": {},
		"empty, too short":        {newSecret, ""},
		"spaces around it":        {newSecret + "\n"},
		"two while one is rolled": {newSecret, oldSecret, "whsec_a_third_one"},
	} {
		_, err := stripe.NewVerifier(stripe.VerifierOptions{Secrets: secretsOf(secrets...)})
		require.ErrorContains(t, err, want)
	}
}

// keeper is a secret store that notes what it is asked for.
type keeper struct {
	providers.Secrets
	values map[providers.SecretRef]string
	uses   []providers.Use
}

func (k *keeper) Resolve(_ context.Context, ref providers.SecretRef, use providers.Use) (providers.Secret, error) {
	k.uses = append(k.uses, use)
	value, found := k.values[ref]
	if !found {
		return providers.Secret{}, &providers.Error{Kind: providers.KindNotFound, Op: "secrets.resolve"}
	}
	return providers.NewSecret(value), nil
}

func (k *keeper) AddressRule(_ context.Context, _ providers.SecretRef, use providers.Use) (spec.AddressRule, error) {
	k.uses = append(k.uses, use)
	return providers.SimulatedAddresses(), nil
}

// Secrets are named by reference, and each is asked for with its own use.
func TestSecrets_AreResolvedForTheirUse(t *testing.T) {
	t.Parallel()
	k := &keeper{values: map[providers.SecretRef]string{"stripe/webhook": newSecret, "stripe/key": apiKey}}
	_, err := stripe.LoadVerifier(t.Context(), k, []string{"stripe/webhook"}, false)
	require.NoError(t, err)
	_, err = stripe.LoadVerifier(t.Context(), k, []string{"stripe/webhook", "stripe/missing"}, false)
	require.True(t, providers.IsKind(err, providers.KindNotFound))
	require.Equal(t, providers.Use{Kind: spec.SecretStripeWebhook}, k.uses[0])
	k.uses = nil
	r := newRig(t, stripesim.Options{})
	p, err := stripe.Opener{}.Connect(t.Context(), k, stripe.Settings{URL: r.url, KeyRef: "stripe/key"})
	require.NoError(t, err)
	_, err = p.Sessions(t.Context(), providers.PaymentQuery{})
	require.NoError(t, err)
	for _, use := range k.uses {
		require.Equal(t, providers.Use{Kind: spec.SecretStripeKey, Address: r.url}, use)
	}
	_, err = stripe.Opener{}.Connect(t.Context(), k, stripe.Settings{URL: r.url, KeyRef: "stripe/missing"})
	require.True(t, providers.IsKind(err, providers.KindNotFound))
}

func TestReceive_BoundsWhatItReads(t *testing.T) {
	t.Parallel()
	v := verifier(t, newSecret)
	request := func(header string, body io.Reader) *http.Request {
		r := httptest.NewRequest(http.MethodPost, "/", body)
		if header != "" {
			r.Header.Set(stripe.SignatureHeader, header)
		}
		return r
	}
	d, err := v.Receive(httptest.NewRecorder(), request(signed(testTime, newSecret, body), strings.NewReader(body)))
	require.NoError(t, err)
	require.Equal(t, body, string(d.Body))

	unread := &countingReader{}
	_, err = v.Receive(httptest.NewRecorder(), request("", unread))
	require.Equal(t, stripe.RefusedUnsigned, reason(err))
	_, err = v.Receive(httptest.NewRecorder(), request(signed(testTime.Add(-time.Hour), newSecret, body), unread))
	require.Equal(t, stripe.RefusedStale, reason(err))
	require.Zero(t, unread.read, "what the header refuses is not read")

	endless := &countingReader{}
	_, err = v.Receive(httptest.NewRecorder(), request(signed(testTime, newSecret, body), endless))
	require.Equal(t, stripe.RefusedTooLarge, reason(err))
	require.Less(t, endless.read, int64(2*stripe.MaxWebhook))
	var refusal *stripe.WebhookRefusal
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, http.StatusRequestEntityTooLarge, refusal.Status)

	large := request(signed(testTime, newSecret, body), bytes.NewReader(make([]byte, stripe.MaxWebhook+1)))
	_, err = v.Receive(httptest.NewRecorder(), large)
	require.Equal(t, stripe.RefusedTooLarge, reason(err))

	twice := request(signed(testTime, newSecret, body), strings.NewReader(body))
	twice.Header.Add(stripe.SignatureHeader, signed(testTime, newSecret, body))
	_, err = v.Receive(httptest.NewRecorder(), twice)
	require.Equal(t, stripe.RefusedHeader, reason(err))
}

// countingReader is a body without an end.
type countingReader struct{ read int64 }

func (c *countingReader) Read(p []byte) (int, error) {
	c.read += int64(len(p))
	return len(p), nil
}

// The simulator's deliveries with each fault, as the verifier sees them.
func TestVerify_SimulatedDeliveries(t *testing.T) {
	t.Parallel()
	for fault, want := range map[string]stripe.RefusalReason{
		"":                          "",
		stripesim.FaultBadSignature: stripe.RefusedSignature,
		stripesim.FaultBody:         stripe.RefusedSignature,
		stripesim.FaultStale:        stripe.RefusedStale,
		stripesim.FaultFuture:       stripe.RefusedFuture,
		stripesim.FaultEventVersion: "",
		stripesim.FaultEventAmount:  "",
		stripesim.FaultDuplicate:    "",
		stripesim.FaultDelay:        "",
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			var v *stripe.Verifier
			var reasons []stripe.RefusalReason
			var got []stripe.Delivery
			receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				d, err := v.Receive(w, r)
				if err != nil {
					reasons = append(reasons, reason(err))
					w.WriteHeader(http.StatusBadRequest)
					return
				}
				got = append(got, d)
			}))
			t.Cleanup(receiver.Close)
			r := newRig(t, stripesim.Options{Endpoints: []stripesim.Endpoint{
				{URL: receiver.URL, Secrets: []string{newSecret}, Types: []string{"checkout.session.*"}},
			}})
			v, _ = stripe.NewVerifier(stripe.VerifierOptions{Secrets: secretsOf(newSecret), Now: r.clock.Now})
			if fault != "" {
				r.fault(stripesim.Fault{Name: fault, Op: "checkout.session.completed"})
			}
			made := r.session()
			require.NoError(t, r.Pay(made.ID))
			require.Eventually(t, func() bool {
				r.clock.Step(2 * time.Minute) // the retry of a refused delivery, or the delayed one
				return r.Undelivered() == 0
			}, runenv.Patience(20*time.Second), 200*time.Millisecond, "the clock waits for deliveries under way, which it would make stale")
			mu.Lock()
			defer mu.Unlock()
			if want != "" {
				require.Equal(t, want, reasons[0])
			} else {
				require.Empty(t, reasons)
			}
			for _, d := range got {
				require.Equal(t, "checkout.session.completed", d.Event.Type)
				require.Equal(t, made.ID, d.Event.ObjectID)
				require.Equal(t, fault != stripesim.FaultEventVersion, d.Event.KnownRelease)
			}
			require.NotEmpty(t, got, "a refused delivery comes again")
		})
	}
}

// Nothing is accepted that the secret has not signed, whatever the header and the body are.
func FuzzVerify(f *testing.F) {
	good := signed(testTime, newSecret, body)
	f.Add(good, []byte(body), false)
	f.Add("t=1772366400,v1=", []byte(body), true)
	f.Add("t=1772366400,v1="+strings.Repeat("0", 64), []byte(`{"object":"event"}`), true)
	f.Add(",=,t=,v1=,v1", []byte{}, false)
	f.Add("t=-1,v1=00", []byte("null"), true)
	f.Add(good, []byte(`{"id":"evt_1","object":"event","type":"a","created":{},"data":[]}`), true)
	v := verifier(f, newSecret)
	f.Fuzz(func(t *testing.T, header string, body []byte, sign bool) {
		if sign { // a body of any form with a valid signature
			header = signed(testTime, newSecret, string(body))
		}
		d, err := v.Verify(header, body)
		if err == nil {
			require.NoError(t, webhook.ValidatePayloadIgnoringTolerance(body, header, newSecret), "Stripe's own library refuses it")
			require.Equal(t, body, d.Body)
			require.NotEmpty(t, d.Event.ID)
			return
		}
		require.NotEmpty(t, reason(err), "%v", err)
		require.Empty(t, d.Body)
	})
}

func BenchmarkVerify(b *testing.B) {
	v := verifier(b, newSecret, oldSecret)
	header := signed(testTime, oldSecret, body)
	for b.Loop() {
		if _, err := v.Verify(header, []byte(body)); err != nil {
			b.Fatal(err)
		}
	}
}
