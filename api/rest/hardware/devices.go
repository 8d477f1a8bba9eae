package hardware

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/db"
	driftdb "github.com/slipway-cloud/slipway/db/drift"
	hardwaredb "github.com/slipway-cloud/slipway/db/hardware"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/rackdevice"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/hardware"
)

const devicesPath = "/admin/rack-devices"

func (s *server) registerDevices() {
	s.api.Grant(op.Access{
		op.RoleViewer: {"GET " + devicesPath, "GET " + devicesPath + "/{id}"},
		op.RoleAdmin:  {"POST " + devicesPath, "DELETE " + devicesPath + "/{id}"},
	})
	tags := []string{"rack-devices"}
	op.Add(s.api, huma.Operation{
		OperationID: "create-rack-device", Method: http.MethodPost, Path: devicesPath, Tags: tags, Summary: "Add a switch tray or power shelf of a rack",
		Description: "It is a BMC with health and firmware and no node: nothing can claim it. Its certificate is probed in the next pass and waits for the BMC's action approve-pin, unless pin_sha256 names it. Its log is at /admin/bmcs/{id}/log.",
	}, s.createDevice)
	op.Add(s.api, huma.Operation{OperationID: "list-rack-devices", Method: http.MethodGet, Path: devicesPath, Tags: tags, Summary: "List switch trays and power shelves"}, s.listDevices)
	op.Add(s.api, huma.Operation{OperationID: "get-rack-device", Method: http.MethodGet, Path: devicesPath + "/{id}", Tags: tags, Summary: "Read a switch tray or power shelf with its health and parts"}, s.getDevice)
	op.Add(s.api, huma.Operation{
		OperationID: "delete-rack-device", Method: http.MethodDelete, Path: devicesPath + "/{id}", Tags: tags, Summary: "Remove a switch tray or power shelf with the record of its BMC and its log", DefaultStatus: http.StatusNoContent,
	}, s.deleteDevice)
}

// RackDeviceRequest is a switch tray or power shelf of a rack.
type RackDeviceRequest struct {
	SiteID        string `json:"site_id" required:"true" maxLength:"200"`
	Kind          string `json:"kind" required:"true" enum:"switch_tray,power_shelf"`
	Name          string `json:"name" required:"true" minLength:"1" maxLength:"100" doc:"Unique in its site"`
	Rack          string `json:"rack,omitempty" maxLength:"100"`
	Address       string `json:"address" required:"true" maxLength:"300" doc:"Of its BMC: host, host:port or https://host:port; no login, no path"`
	CredentialRef string `json:"credential_ref" required:"true" maxLength:"210" doc:"A stored secret: name, or name@version"`
	Protocol      string `json:"protocol,omitempty" enum:"redfish,ipmi" doc:"redfish when absent"`
	PinSHA256     string `json:"pin_sha256,omitempty" maxLength:"64" pattern:"^[0-9a-f]{64}$" doc:"The pin of its certificate's public key, if you have compared it"`
}

// RackDevice is a switch tray or power shelf of a rack.
type RackDevice struct {
	ID        string     `json:"id"`
	SiteID    string     `json:"site_id"`
	Kind      string     `json:"kind" enum:"switch_tray,power_shelf"`
	Name      string     `json:"name"`
	Rack      string     `json:"rack,omitempty"`
	BMCID     string     `json:"bmc_id"`
	Class     string     `json:"class" enum:"ok,unknown,warning,critical" doc:"unknown before its BMC was read"`
	ReadAt    *time.Time `json:"read_at,omitempty"`
	CreatedAt time.Time  `json:"created_at"`
}

// RackDeviceDetails is one with its health and parts.
type RackDeviceDetails struct {
	RackDevice
	Probes  []HealthProbe     `json:"probes" nullable:"false" doc:"The worst first"`
	Parts   []InventoryPart   `json:"parts" nullable:"false"`
	Changes []InventoryChange `json:"changes" nullable:"false"`
	Partial []string          `json:"partial" nullable:"false"`
}

// RackDevicePath is the path of one.
type RackDevicePath struct {
	ID string `path:"id" maxLength:"200" doc:"rackdev_..."`
}

func deviceView(d hardwaredb.RackDevice, health string, readAt *time.Time, now time.Time) RackDevice {
	class := hardware.ClassUnknown
	if readAt != nil {
		class = classOf(health, *readAt, now)
	}
	return RackDevice{
		ID: d.ID, SiteID: d.SiteID, Kind: d.Kind, Name: d.Name, Rack: d.Rack, BMCID: d.BMCID, Class: string(class), ReadAt: utc(readAt), CreatedAt: d.CreatedAt.UTC(),
	}
}

func (s *server) createDevice(ctx context.Context, in *struct {
	op.Key
	Body RackDeviceRequest
}) (*op.Created[RackDevice], error) {
	b := in.Body
	request := rackdevice.Request{
		SiteID: b.SiteID, Kind: b.Kind, Name: b.Name, Rack: b.Rack, PinSHA256: b.PinSHA256,
		BMC: intent.BMC{Address: b.Address, CredentialRef: b.CredentialRef, Protocol: b.Protocol},
	}
	if request.BMC.Protocol == "" {
		request.BMC.Protocol = intent.ProtocolRedfish
	}
	if err := rackdevice.Check(ctx, s.store, request); err != nil {
		return nil, err
	}
	return op.Create(ctx, s.api, in.Key, in.Body, nil, func(tx *db.Tx) (*op.Created[RackDevice], error) {
		row, err := rackdevice.Create(ctx, tx, request)
		if err != nil {
			return nil, err
		}
		meta := map[string]any{"kind": b.Kind, "name": b.Name, "address": b.Address, "bmc_id": row.BMCID, "pin_sha256": b.PinSHA256}
		return op.NewCreated(op.Prefix+devicesPath+"/"+row.ID, 1, deviceView(row, "", nil, time.Time{})), op.Audit(ctx, tx, "rack_device", row.ID, nil, "create", meta)
	})
}

func (s *server) listDevices(ctx context.Context, in *struct {
	op.Page
	SiteID string `query:"site_id" maxLength:"200"`
}) (*op.Listed[RackDevice], error) {
	after, err := in.After()
	if err != nil {
		return nil, err
	}
	rows, err := hardwaredb.ListRackDevices(ctx, s.store, in.SiteID, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	now, err := s.store.Clock(ctx)
	if err != nil {
		return nil, err
	}
	return op.Paged(rows, in.Limit, func(r hardwaredb.RackDeviceLine) string { return r.RackDevice.ID },
		func(r hardwaredb.RackDeviceLine) RackDevice { return deviceView(r.RackDevice, r.Health, r.ReadAt, now) }), nil
}

func (s *server) getDevice(ctx context.Context, in *RackDevicePath) (*struct{ Body RackDeviceDetails }, error) {
	row, err := hardwaredb.RackDeviceByID(ctx, s.store, in.ID)
	if err != nil {
		return nil, err
	}
	out := RackDeviceDetails{RackDevice: deviceView(row, "", nil, time.Time{}), Probes: []HealthProbe{}, Parts: []InventoryPart{}, Changes: []InventoryChange{}, Partial: []string{}}
	survey, err := hardwaredb.SurveyOf(ctx, s.store, row.BMCID)
	if errors.Is(err, db.ErrNotFound) {
		return &struct{ Body RackDeviceDetails }{out}, nil
	}
	if err != nil {
		return nil, err
	}
	now, err := s.store.Clock(ctx)
	if err != nil {
		return nil, err
	}
	at := survey.ReadAt.UTC()
	out.RackDevice, out.Partial = deviceView(row, survey.Health, &at, now), survey.Partial
	for _, p := range survey.Probes {
		probe := hardware.NewProbe(hardware.SourceBMC, p.Category, p.Target, classOf(p.Health, at, now), p.Note, &at)
		out.Probes = append(out.Probes, probeView(probe))
	}
	var parts NodeInventory
	parts.add(hardware.SourceBMC, survey.Inventory)
	out.Parts, out.Changes = append(out.Parts, parts.Parts...), append(out.Changes, parts.Changes...)
	return &struct{ Body RackDeviceDetails }{out}, nil
}

func (s *server) deleteDevice(ctx context.Context, in *RackDevicePath) (*struct{}, error) {
	return nil, s.store.Tx(ctx, func(tx *db.Tx) error {
		row, err := hardwaredb.RackDeviceByID(ctx, tx, in.ID)
		if err != nil {
			return err
		}
		rec, err := tx.BMC(ctx, row.BMCID)
		if err != nil {
			return err
		}
		if err := tx.DeleteBMC(ctx, rec.ID, rec.Version); err != nil {
			return err
		}
		gone := []driftdb.Ref{{Detector: lifecycle.DriftBMCUnhealthy, Subject: rec.ID, Outcome: "the rack device was removed"}}
		if _, err := driftdb.CloseFindings(ctx, tx, row.SiteID, gone); err != nil {
			return err
		}
		return op.Audit(ctx, tx, "rack_device", row.ID, nil, "delete", map[string]any{"name": row.Name, "bmc_id": rec.ID, "address": rec.Address})
	})
}
