// Package hardware is the area of the HTTP API for the parts of machines: their health, an
// inventory, and the entries of BMCs' logs. It reads what the reconciler has kept and asks no
// machine.
package hardware

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	hardwaredb "github.com/slipway-cloud/slipway/db/hardware"
	"github.com/slipway-cloud/slipway/lifecycle/hardware"
)

// fresh is how old a heartbeat may be for its report to be of now, as the reconciler takes it.
const fresh = 90 * time.Second

// bmcFresh is how old the reading of a BMC may be for what was ok to be ok: four readings.
const bmcFresh = 24 * time.Hour

type server struct {
	api   *op.API
	store *db.Store
}

// Register declares the area's operations.
func Register(api *op.API) {
	s := &server{api: api, store: api.Store()}
	s.registerDevices()
	api.Grant(op.Access{op.RoleViewer: {"GET /nodes/{id}/health", "GET /nodes/{id}/inventory", "GET /nodes/{id}/bmc-log", "GET /admin/bmcs/{id}/log"}})
	op.Add(api, huma.Operation{
		OperationID: "get-node-health", Method: http.MethodGet, Path: "/nodes/{id}/health", Tags: []string{"nodes"},
		Summary: "Read how well the parts of a node are",
		Description: "What its agent reports, what its BMC told when it was last read, and what the reconciler has found, the worst first. " +
			"What was not read is unknown, and a category that nothing tells has a probe that says so.",
	}, s.health)
	op.Add(api, huma.Operation{
		OperationID: "get-node-inventory", Method: http.MethodGet, Path: "/nodes/{id}/inventory", Tags: []string{"nodes"},
		Summary:     "List the parts of a node's machine and how they have changed",
		Description: "As its BMC and its agent told them last. A part that has no serial number has an id that stands for its place: derived. A change is a drift finding too.",
	}, s.inventory)
	op.Add(api, huma.Operation{
		OperationID: "list-node-bmc-log", Method: http.MethodGet, Path: "/nodes/{id}/bmc-log", Tags: []string{"nodes"},
		Summary:     "List the entries of the logs of a node's BMC, as they were copied",
		Description: logDescription,
	}, s.nodeLog)
	op.Add(api, huma.Operation{
		OperationID: "list-bmc-log", Method: http.MethodGet, Path: "/admin/bmcs/{id}/log", Tags: []string{"bmcs"},
		Summary:     "List the entries of a BMC's logs, as they were copied",
		Description: logDescription,
	}, s.bmcLog)
}

const logDescription = "In the order in which they were copied, so that the cursor of the last page, also one that was not full, is where the next ones come. " +
	"Clearing the log of a BMC deletes none."

// NodePath is the path of a node.
type NodePath struct {
	ID string `path:"id" maxLength:"200" doc:"node_..."`
}

// HealthProbe is the health of one thing as one source tells it.
type HealthProbe struct {
	ID         string     `json:"id" doc:"The same in every reading"`
	Source     string     `json:"source" enum:"agent,bmc,drift"`
	Category   string     `json:"category" enum:"gpu,thermal,memory,power,drive,network,leak,device"`
	Target     string     `json:"target,omitempty" doc:"The part: a URI of the BMC, a sensor, a GPU of the agent, or a detector. Absent where a category has none"`
	Class      string     `json:"class" enum:"ok,unknown,warning,critical"`
	Note       string     `json:"note,omitempty"`
	ObservedAt *time.Time `json:"observed_at,omitempty" doc:"Absent for what was never read"`
}

// NodeHealth is how well a node is.
type NodeHealth struct {
	NodeID   string        `json:"node_id"`
	Hostname string        `json:"hostname"`
	Class    string        `json:"class" enum:"ok,unknown,warning,critical" doc:"The worst of all probes; unknown where a source was not read"`
	Probes   []HealthProbe `json:"probes" nullable:"false" doc:"The worst first"`
	LeftOut  int           `json:"left_out,omitempty" doc:"Parts of the BMC that were too many to keep; the worst are kept"`
	AgentAt  *time.Time    `json:"agent_at,omitempty"`
	BMCAt    *time.Time    `json:"bmc_at,omitempty" doc:"When the parts were last read from the BMC"`
}

func (s *server) health(ctx context.Context, in *NodePath) (*struct{ Body NodeHealth }, error) {
	var out NodeHealth
	err := s.store.ReadTx(ctx, func(tx *db.Tx) error {
		node, found, err := hardwaredb.StateOf(ctx, tx, in.ID)
		if err != nil {
			return err
		}
		now, err := s.store.Clock(ctx)
		if err != nil {
			return err
		}
		current := node.OfThisBoot && node.ReceivedAt != nil && now.Sub(*node.ReceivedAt) <= fresh
		all := hardware.AgentProbes(node.Report, node.SKU, utc(node.ReceivedAt), current)
		out = NodeHealth{NodeID: node.ID, Hostname: node.Hostname, AgentAt: utc(node.ReceivedAt)}
		survey, ofBMC, err := bmcProbes(ctx, tx, node, now)
		if err != nil {
			return err
		}
		if survey != nil {
			out.BMCAt, out.LeftOut = utc(&survey.ReadAt), survey.LeftOut
		}
		all = append(all, ofBMC...)
		for _, f := range found {
			all = append(all, driftProbe(f))
		}
		probes, class := hardware.Combine(all)
		out.Class, out.Probes = string(class), make([]HealthProbe, 0, len(probes))
		for _, p := range probes {
			out.Probes = append(out.Probes, probeView(p))
		}
		return nil
	})
	return &struct{ Body NodeHealth }{out}, err
}

func probeView(p hardware.Probe) HealthProbe {
	return HealthProbe{
		ID: p.ID, Source: string(p.Source), Category: string(p.Category), Target: p.Target, Class: string(p.Class), Note: p.Note, ObservedAt: p.ObservedAt,
	}
}

// bmcProbes are what the BMC told last. A BMC that has not answered since gets a probe of the whole
// beside them, which is unknown. A part that was ok in a reading of long ago is unknown.
func bmcProbes(ctx context.Context, tx *db.Tx, node hardwaredb.NodeState, now time.Time) (*hardwaredb.Survey, []hardware.Probe, error) {
	whole := func(note string, at *time.Time) []hardware.Probe {
		return []hardware.Probe{hardware.NewProbe(hardware.SourceBMC, hardware.CategoryDevice, "", hardware.ClassUnknown, note, at)}
	}
	if node.BMCID == "" {
		return nil, whole("the node has no BMC", nil), nil
	}
	survey, err := hardwaredb.SurveyOf(ctx, tx, node.BMCID)
	if errors.Is(err, db.ErrNotFound) {
		return nil, whole("the BMC's parts were not read yet", nil), nil
	}
	if err != nil {
		return nil, nil, err
	}
	at := survey.ReadAt.UTC()
	out := make([]hardware.Probe, 0, len(survey.Probes))
	for _, p := range survey.Probes {
		out = append(out, hardware.NewProbe(hardware.SourceBMC, p.Category, p.Target, classOf(p.Health, at, now), p.Note, &at))
	}
	switch {
	case now.Sub(at) > bmcFresh:
		out = append(out, whole("the BMC was not read for long", &at)...)
	case node.BMCFailures > 0:
		out = append(out, whole("the BMC does not answer any more", &at)...)
	case survey.Health == "Unknown":
		out = append(out, whole("the BMC's parts were not read whole", &at)...)
	case survey.LeftOut > 0:
		out = append(out, whole("the BMC lists more parts than are kept", &at)...)
	}
	return &survey, out, nil
}

// classOf rates a health that was read at a time.
func classOf(health string, at, now time.Time) hardware.Class {
	class := hardware.ClassOf(health)
	if class == hardware.ClassOK && now.Sub(at) > bmcFresh {
		return hardware.ClassUnknown
	}
	return class
}

// driftProbe is a finding that lasts. A finding that an operator ignores is still as bad as it is.
func driftProbe(f hardwaredb.Finding) hardware.Probe {
	class := hardware.ClassWarning
	if f.Severity == string(hardware.ClassCritical) {
		class = hardware.ClassCritical
	}
	at := f.LastSeenAt.UTC()
	return hardware.NewProbe(hardware.SourceDrift, hardware.CategoryOfDetector(f.Detector), f.Detector, class, f.Message, &at)
}

// InventoryPart is one part of a machine.
type InventoryPart struct {
	Source       string    `json:"source" enum:"bmc,agent"`
	Kind         string    `json:"kind" enum:"chassis,board,cpu,gpu,memory,nic,dpu,drive,psu,bmc,firmware"`
	ID           string    `json:"id" doc:"Serial number or MAC address, or a value that stands for the place of a part that has none"`
	Derived      bool      `json:"derived" doc:"The id stands for the place"`
	Name         string    `json:"name,omitempty"`
	Manufacturer string    `json:"manufacturer,omitempty"`
	Model        string    `json:"model,omitempty"`
	Serial       string    `json:"serial,omitempty"`
	PartNumber   string    `json:"part_number,omitempty"`
	Firmware     string    `json:"firmware,omitempty"`
	Slot         string    `json:"slot,omitempty"`
	MAC          string    `json:"mac,omitempty"`
	Mode         string    `json:"mode,omitempty" doc:"Of a DPU: NIC or DPU"`
	URI          string    `json:"uri,omitempty" doc:"Where the source lists it"`
	FirstSeen    time.Time `json:"first_seen"`
	LastSeen     time.Time `json:"last_seen"`
	Gone         bool      `json:"gone" doc:"A later reading did not list it"`
}

// InventoryChange is a difference between two readings.
type InventoryChange struct {
	Source string    `json:"source" enum:"bmc,agent"`
	At     time.Time `json:"at"`
	Kind   string    `json:"kind"`
	ID     string    `json:"id"`
	What   string    `json:"what" doc:"added, gone, or the field that differs"`
	From   string    `json:"from,omitempty"`
	To     string    `json:"to,omitempty"`
}

// NodeInventory lists the parts of a node's machine.
type NodeInventory struct {
	NodeID  string            `json:"node_id"`
	Parts   []InventoryPart   `json:"parts" nullable:"false"`
	Changes []InventoryChange `json:"changes" nullable:"false" doc:"Of each source the newest first, at most 50"`
	BMCAt   *time.Time        `json:"bmc_at,omitempty"`
	AgentAt *time.Time        `json:"agent_at,omitempty"`
	Partial []string          `json:"partial" nullable:"false" doc:"What the BMC could not tell, each with the reason"`
	LeftOut int               `json:"left_out,omitempty" doc:"Parts that were too many to keep"`
}

func (s *server) inventory(ctx context.Context, in *NodePath) (*struct{ Body NodeInventory }, error) {
	out := NodeInventory{NodeID: in.ID, Parts: []InventoryPart{}, Changes: []InventoryChange{}, Partial: []string{}}
	err := s.store.ReadTx(ctx, func(tx *db.Tx) error {
		node, _, err := hardwaredb.StateOf(ctx, tx, in.ID)
		if err != nil {
			return err
		}
		if node.BMCID != "" {
			switch survey, err := hardwaredb.SurveyOf(ctx, tx, node.BMCID); {
			case err == nil:
				out.BMCAt, out.Partial = utc(&survey.ReadAt), survey.Partial
				out.add(hardware.SourceBMC, survey.Inventory)
			case !errors.Is(err, db.ErrNotFound):
				return err
			}
		}
		switch agent, err := hardwaredb.AgentInventoryOf(ctx, tx, in.ID); {
		case err == nil:
			out.AgentAt = utc(&agent.ReadAt)
			out.add(hardware.SourceAgent, agent.Inventory)
		case !errors.Is(err, db.ErrNotFound):
			return err
		}
		return nil
	})
	return &struct{ Body NodeInventory }{out}, err
}

func (n *NodeInventory) add(source hardware.Source, inventory hardware.Inventory) {
	n.LeftOut += inventory.LeftOut
	for _, k := range inventory.Parts {
		n.Parts = append(n.Parts, InventoryPart{
			Source: string(source), Kind: string(k.Kind), ID: k.ID, Derived: k.Derived, Name: k.Name, Manufacturer: k.Manufacturer, Model: k.Model, Serial: k.Serial,
			PartNumber: k.PartNumber, Firmware: k.Firmware, Slot: k.Slot, MAC: k.MAC, Mode: k.Mode, URI: k.URI, FirstSeen: k.FirstSeen.UTC(), LastSeen: k.LastSeen.UTC(), Gone: k.Gone,
		})
	}
	for _, c := range inventory.Changes {
		n.Changes = append(n.Changes, InventoryChange{Source: string(source), At: c.At.UTC(), Kind: string(c.Kind), ID: c.ID, What: c.What, From: c.From, To: c.To})
	}
}

// BMCLogEntry is an entry of a BMC's log.
type BMCLogEntry struct {
	Cursor     int64     `json:"cursor"`
	BMCID      string    `json:"bmc_id"`
	Service    string    `json:"service" doc:"The log: a URI of the BMC, or SEL"`
	EntryID    string    `json:"entry_id" doc:"In its log; one that was cleared gives it again"`
	Severity   string    `json:"severity" enum:"OK,Warning,Critical,Unknown"`
	MessageID  string    `json:"message_id,omitempty"`
	Message    string    `json:"message"`
	At         time.Time `json:"at" doc:"By the BMC's clock where that can be right, or else when it was copied"`
	RecordedAt time.Time `json:"recorded_at"`
}

// BMCLogPage is a page of a log. NextCursor is where the next entries come, also after the last
// page.
type BMCLogPage struct {
	Data       []BMCLogEntry `json:"data" nullable:"false"`
	NextCursor string        `json:"next_cursor,omitempty"`
	More       bool          `json:"more" doc:"There is another page now"`
	ReadAt     *time.Time    `json:"read_at,omitempty" doc:"When the logs were last read"`
	Partial    []string      `json:"partial" nullable:"false" doc:"Logs that were not read to their end, each with the reason"`
	Dropped    int64         `json:"dropped,omitempty" doc:"Entries that gave way to newer ones since ever"`
}

// LogQuery is which entries are listed.
type LogQuery struct {
	op.Page
	Since    time.Time `query:"since" doc:"Entries made then or later"`
	Until    time.Time `query:"until" doc:"Entries made before"`
	Severity string    `query:"severity" enum:"OK,Warning,Critical,Unknown"`
}

func (s *server) nodeLog(ctx context.Context, in *struct {
	NodePath
	LogQuery
}) (*struct{ Body BMCLogPage }, error) {
	rec, err := s.store.BMCOfNode(ctx, in.ID)
	if errors.Is(err, db.ErrNotFound) {
		if _, err := s.store.Node(ctx, in.ID); err != nil {
			return nil, err
		}
		return nil, problem.New(problem.NotFound, "the node has no BMC")
	}
	if err != nil {
		return nil, err
	}
	return s.log(ctx, rec.ID, in.LogQuery)
}

func (s *server) bmcLog(ctx context.Context, in *struct {
	ID string `path:"id" maxLength:"200" doc:"bmc_..."`
	LogQuery
}) (*struct{ Body BMCLogPage }, error) {
	if _, err := s.store.BMC(ctx, in.ID); err != nil {
		return nil, err
	}
	return s.log(ctx, in.ID, in.LogQuery)
}

func (s *server) log(ctx context.Context, bmcID string, q LogQuery) (*struct{ Body BMCLogPage }, error) {
	after, err := q.AfterNumber()
	if err != nil {
		return nil, err
	}
	if !q.Since.IsZero() && !q.Until.IsZero() && !q.Since.Before(q.Until) {
		return nil, problem.NewInvalid(problem.Field{Location: "query.since", Message: "must be before until"})
	}
	filter := hardwaredb.LogFilter{Since: given(q.Since), Until: given(q.Until), Severity: q.Severity}
	rows, err := hardwaredb.ListLogEntries(ctx, s.store, bmcID, filter, after, q.Limit+1)
	if err != nil {
		return nil, err
	}
	read, err := hardwaredb.LogReadOf(ctx, s.store, bmcID)
	if err != nil {
		return nil, err
	}
	out := BMCLogPage{Data: []BMCLogEntry{}, NextCursor: q.Cursor, More: len(rows) > q.Limit, Partial: db.EmptyIfNil(read.Partial), Dropped: read.Dropped, ReadAt: given(read.ReadAt)}
	for _, r := range rows[:min(len(rows), q.Limit)] {
		out.Data = append(out.Data, BMCLogEntry{
			Cursor: r.ID, BMCID: r.BMCID, Service: r.Service, EntryID: r.EntryID, Severity: r.Severity, MessageID: r.MessageID, Message: r.Message,
			At: r.At.UTC(), RecordedAt: r.RecordedAt.UTC(),
		})
		out.NextCursor = op.CursorOf(strconv.FormatInt(r.ID, 10))
	}
	return &struct{ Body BMCLogPage }{out}, nil
}

func given(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return utc(&t)
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}
