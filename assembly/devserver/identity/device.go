package identity

import (
	"context"
	"crypto/subtle"
	"html/template"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/zitadel/oidc/v3/pkg/op"
)

const (
	devicePath  = "/device"
	deviceLasts = 5 * time.Minute
	devicePoll  = time.Second
)

// device is a sign-in of a program on a machine without a browser (RFC 8628). The address is where
// the program asked from, which the page shows: whoever confirms another user's code gives that
// user their rights.
type device struct {
	op.DeviceAuthorizationState
	userCode, address, program string
	began                      time.Time
}

var _ op.DeviceAuthorizationStorage = storage{}

type callerKey struct{}

// caller is where a request comes from, and what its program calls itself.
type caller struct{ address, program string }

const maxProgram = 200

// withCaller notes in the context who sends a request.
func withCaller(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil {
			host = r.RemoteAddr
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, caller{host, r.UserAgent()[:min(len(r.UserAgent()), maxProgram)]})))
	})
}

// StoreDeviceAuthorization keeps a sign-in that begins, and drops those that took too long.
func (s storage) StoreDeviceAuthorization(ctx context.Context, clientID, deviceCode, userCode string, expires time.Time, scopes []string) error {
	from, _ := ctx.Value(callerKey{}).(caller)
	s.mu.Lock()
	defer s.mu.Unlock()
	for code, old := range s.devices {
		if time.Now().After(old.Expires) {
			delete(s.devices, code)
		}
	}
	for _, other := range s.devices {
		if other.userCode == userCode {
			return op.ErrDuplicateUserCode
		}
	}
	s.devices[deviceCode] = &device{
		DeviceAuthorizationState: op.DeviceAuthorizationState{ClientID: clientID, Audience: []string{Audience}, Scopes: scopes, Expires: expires, AMR: []string{"pwd"}},
		userCode:                 userCode, address: from.address, program: from.program, began: time.Now(),
	}
	return nil
}

// GetDeviceAuthorizatonState returns how far a sign-in is. A confirmed sign-in counts once.
func (s storage) GetDeviceAuthorizatonState(_ context.Context, clientID, deviceCode string) (*op.DeviceAuthorizationState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.devices[deviceCode]
	if d == nil || d.ClientID != clientID {
		return nil, errUnknown
	}
	state := d.DeviceAuthorizationState
	if state.Done || state.Denied {
		delete(s.devices, deviceCode)
	}
	return &state, nil
}

// deviceOf returns a copy of the sign-in with the code that a user typed.
func (p *Provider) deviceOf(userCode string) (device, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range p.devices {
		if subtle.ConstantTimeCompare([]byte(d.userCode), []byte(userCode)) == 1 && !d.Done && !d.Denied && time.Now().Before(d.Expires) {
			return *d, true
		}
	}
	return device{}, false
}

var devicePage = template.Must(template.New("device").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><link rel="icon" href="data:,"><title>Slipway dev identity provider</title>
<main><h1>{{.Heading}}</h1>
{{if .Problem}}<p role="alert">{{.Problem}}</p>{{end}}
{{if .Ask}}<form method="get" action="` + devicePath + `">
<p><label>Code that the program shows <input name="user_code" required autofocus></label></p>
<p><button>Go on</button></p>
</form>{{end}}
{{if .Code}}<p>The program <b>{{.Client}}</b> at the address <b>{{.Address}}</b> asked at {{.Began}} to sign in as you. It calls itself and its device <b>{{.Program}}</b>. It shows the code <b>{{.Code}}</b>.</p>
<p>Confirm only if you have started it yourself, on this device, and the code is the same: whoever started it gets your rights.</p>
<form method="post" action="` + devicePath + `">
<input type="hidden" name="user_code" value="{{.Code}}">
<p><label>User name <input name="user" autocomplete="username" required autofocus></label></p>
<p><label>Password <input name="password" type="password" autocomplete="current-password" required></label></p>
<p><button name="answer" value="confirm">Confirm</button> <button name="answer" value="deny">Deny</button></p>
</form>{{end}}
</main></html>
`))

type deviceData struct {
	Heading, Problem, Client, Address, Program, Began, Code string
	Ask                                                     bool
}

func showDevicePage(w http.ResponseWriter, status int, d deviceData) {
	pageHeaders(w)
	w.WriteHeader(status)
	_ = devicePage.Execute(w, d) // the status is out; a broken connection is the browser's to notice
}

const deviceHeading = "Sign in a program"

func (d device) pageData(problem string) deviceData {
	return deviceData{
		Heading: deviceHeading, Problem: problem, Client: d.ClientID, Address: d.address, Program: d.program, Began: d.began.UTC().Format(time.RFC3339), Code: d.userCode,
	}
}

// showDevice asks for the code, and shows which program asks, from where.
func (p *Provider) showDevice(w http.ResponseWriter, r *http.Request) {
	code := strings.ToUpper(strings.TrimSpace(r.URL.Query().Get("user_code")))
	if code == "" {
		showDevicePage(w, http.StatusOK, deviceData{Heading: deviceHeading, Ask: true})
		return
	}
	d, found := p.deviceOf(code)
	if !found {
		showDevicePage(w, http.StatusBadRequest, deviceData{Heading: deviceHeading, Problem: "The code is wrong, was used already, or is too old.", Ask: true})
		return
	}
	showDevicePage(w, http.StatusOK, d.pageData(""))
}

// takeDevice takes the user's answer. It always asks for the password, so that no other page can
// confirm a code with the cookie of a browser that is signed in.
func (p *Provider) takeDevice(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	d, found := p.deviceOf(r.PostFormValue("user_code"))
	if !found {
		showDevicePage(w, http.StatusBadRequest, deviceData{Heading: deviceHeading, Problem: "The code is wrong, was used already, or is too old.", Ask: true})
		return
	}
	u, err := p.User(r.PostFormValue("user"))
	if err != nil || subtle.ConstantTimeCompare([]byte(u.Password), []byte(r.PostFormValue("password"))) != 1 {
		showDevicePage(w, http.StatusUnauthorized, d.pageData("User name or password is wrong. slipway-dev prints both."))
		return
	}
	answer := r.PostFormValue("answer")
	if !slices.Contains([]string{"confirm", "deny"}, answer) {
		showDevicePage(w, http.StatusBadRequest, d.pageData("Choose Confirm or Deny."))
		return
	}
	p.mu.Lock()
	for _, live := range p.devices {
		if live.userCode == d.userCode {
			live.Done, live.Denied = answer == "confirm", answer == "deny"
			live.Subject, live.AuthTime = u.Subject(), time.Now()
		}
	}
	p.mu.Unlock()
	showDevicePage(w, http.StatusOK, deviceData{Heading: map[string]string{
		"confirm": "The program is signed in", "deny": "The program is not signed in",
	}[answer]})
}
