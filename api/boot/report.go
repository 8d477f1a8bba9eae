package boot

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humachi"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/api/ratelimit"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

const maxReport = 16 << 10 // bytes

// sourceKey is the context key of the address that a report came from.
type sourceKey struct{}

// NodeReport is what a node says of itself.
type NodeReport struct {
	MACAddress   string  `json:"mac_address" required:"true" maxLength:"32" doc:"Ethernet address, with colons, dashes, dots or nothing between the digits"`
	IPAddress    *string `json:"ip_address,omitempty" maxLength:"64"`
	Hostname     *string `json:"hostname,omitempty" maxLength:"253"`
	Vendor       *string `json:"vendor,omitempty" maxLength:"256"`
	Model        *string `json:"model,omitempty" maxLength:"256"`
	SerialNumber *string `json:"serial_number,omitempty" maxLength:"256"`
	SystemUUID   *string `json:"system_uuid,omitempty" maxLength:"64"`

	InstallationStatus   *string `json:"installation_status,omitempty" enum:"started,progress,complete,failed"`
	InstallationProgress *int    `json:"installation_progress,omitempty" minimum:"0" maximum:"100" doc:"Percent"`
	InstallationError    *string `json:"installation_error,omitempty" maxLength:"4096"`

	Drives []ReportedDrive `json:"drives,omitempty" maxItems:"64" doc:"With a token, of an installation: the drives of the machine. They become the record of those that the node is expected to have"`
}

// ReportedDrive is a drive that an installer has found.
type ReportedDrive struct {
	SerialNumber string `json:"serial_number" required:"true" minLength:"1" maxLength:"128"`
	Model        string `json:"model,omitempty" maxLength:"128"`
	Bytes        int64  `json:"bytes,omitempty" minimum:"0" maximum:"1152921504606846976"`
}

// ReportAnswer says where the node stands after a report.
type ReportAnswer struct {
	NodeID          string                 `json:"node_id,omitempty" doc:"Absent where a report without a token is of a node that is more than discovered: it proves nothing, and is told nothing"`
	State           lifecycle.NodeStatus   `json:"state,omitempty"`
	Effect          lifecycle.ReportEffect `json:"effect" doc:"What the report did; ignored when it came late, was said already, or does not fit the state. heard: a sign of life of the attempt that runs, whose deadline moves. begins, advances, warns and leaves: noted for the job that boots the node; no state changes"`
	InstallAttempts int                    `json:"install_attempts"`
}

func (s *Server) registerReport(a *op.API) {
	a.Grant(op.Access{op.RoleNone: {"POST /report"}})
	admitted := func(c huma.Context, next func(huma.Context)) { s.admitted(a, c, next) }
	op.Add(a, huma.Operation{
		OperationID: "report", Method: http.MethodPost, Path: "/report", Tags: []string{"pxe"}, Summary: "A node reports itself or its installation",
		Description: "Without a token a report registers a machine that nobody knows, in state discovered, and no more. " +
			"A report with installation_status carries the token that the node's boot script handed out, as Authorization: Bearer pxe_...; " +
			"it counts for the attempt of that token only, so it may be repeated. While a job boots the node (deprovisioning, migrating) it moves no state: the job does.",
		MaxBodyBytes: maxReport, Middlewares: huma.Middlewares{admitted},
	}, s.report)
}

// admitted lets a bounded number of reports through. The body is read before a place is taken: a
// sender who is slow keeps nobody waiting.
func (s *Server) admitted(a *op.API, c huma.Context, next func(huma.Context)) {
	r, w := humachi.Unwrap(c)
	source := ratelimit.RemoteAddress(r)
	if err := s.admission.paced(source); err != nil {
		a.WriteError(w, r, busy(err))
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxReport+1)) // a body that is too large is refused as such
	if err != nil {
		a.WriteError(w, r, problem.New(problem.RequestTimeout, "the body of the report did not come in time or ended early; send it again"))
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	leave, err := s.admission.place(r.Context(), source)
	if err != nil {
		a.WriteError(w, r, busy(err))
		return
	}
	defer leave()
	next(huma.WithValue(c, sourceKey{}, source))
}

func busy(err error) error {
	var b *busyError
	if errors.As(err, &b) {
		return problem.New(problem.TooManyRequests, b.Error()).After(b.seconds())
	}
	return err
}

func (s *Server) report(ctx context.Context, in *struct {
	Authorization string `header:"Authorization" maxLength:"200" doc:"Bearer and the token of the boot script; none for a machine that has none yet"`
	Body          NodeReport
}) (*struct{ Body ReportAnswer }, error) {
	mac, ok := spec.NormalMAC(in.Body.MACAddress)
	if !ok {
		return nil, problem.NewInvalid(problem.Field{Location: "body.mac_address", Message: "must be the Ethernet address of a network card, such as 52:54:00:12:34:56"})
	}
	source, _ := ctx.Value(sourceKey{}).(string)
	if in.Authorization == "" {
		return s.discovered(ctx, in.Body, mac, source)
	}
	scheme, token, _ := strings.Cut(in.Authorization, " ")
	hash, ok := tokenHash(strings.TrimSpace(token))
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return nil, noBootToken()
	}
	b := in.Body
	r := db.InstallReport{
		TokenHash: hash, MAC: mac, Source: source, Facts: b.facts(), Status: lifecycle.InstallStatus(text(b.InstallationStatus)),
		Error: spec.OneLine(text(b.InstallationError)),
	}
	for _, d := range b.Drives {
		r.Drives = append(r.Drives, spec.ExpectedDrive{Serial: spec.OneLine(d.SerialNumber), Model: spec.OneLine(d.Model), Bytes: d.Bytes})
	}
	if b.InstallationProgress != nil {
		r.Progress = *b.InstallationProgress
	}
	out := ReportAnswer{}
	err := s.cfg.Store.Tx(ctx, func(tx *db.Tx) error {
		n, effect, err := tx.ReportInstall(ctx, r)
		out = ReportAnswer{NodeID: n.ID, State: n.Status, Effect: effect, InstallAttempts: n.InstallAttempts}
		return err
	})
	if errors.Is(err, db.ErrNotFound) {
		return nil, noBootToken()
	}
	return &struct{ Body ReportAnswer }{out}, err
}

func text(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}

func noBootToken() error {
	return problem.New(problem.Unauthenticated, "the token is unknown, expired, of another machine or of an installation that is over; boot the machine again to get a new one")
}

// discovered registers a machine, or sees it again.
func (s *Server) discovered(ctx context.Context, b NodeReport, mac, source string) (*struct{ Body ReportAnswer }, error) {
	if b.InstallationStatus != nil {
		return nil, problem.New(problem.Unauthenticated, "a report of an installation needs the token that the boot script handed out, as Authorization: Bearer pxe_...")
	}
	n, err := s.seen(ctx, db.Discovery{MAC: mac, Source: source, Facts: b.facts()})
	if errors.Is(err, errManaged) {
		return nil, problem.New(problem.Conflict, err.Error()+"; let it boot its disk")
	}
	if err != nil {
		return nil, busy(err)
	}
	out := ReportAnswer{Effect: lifecycle.ReportIgnored}
	if n.Status == lifecycle.NodeDiscovered {
		out.NodeID, out.State = n.ID, n.Status
	}
	return &struct{ Body ReportAnswer }{out}, nil
}

// facts are cleaned: they are shown to people and stand in templates.
func (b NodeReport) facts() db.PXEFacts {
	clean := func(p *string) string { return spec.CleanText(text(p), spec.MaxFact) }
	keys := spec.MachineKeys{Serial: text(b.SerialNumber), UUID: text(b.SystemUUID)}.Normal()
	return db.PXEFacts{
		IPAddress: spec.NormalIP(text(b.IPAddress)), Hostname: clean(b.Hostname), Vendor: clean(b.Vendor), Model: clean(b.Model),
		SerialNumber: keys.Serial, SystemUUID: keys.UUID,
	}
}
