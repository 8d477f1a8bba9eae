package hardwaredb

import (
	"context"
	"errors"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/hardware/gen"
)

// RackDevice is a switch tray or power shelf of a rack: a BMC of its own, and no node.
type RackDevice = gen.RackDevice

// RackDeviceLine is one with the health that its BMC told last.
type RackDeviceLine = gen.ListRackDevicesRow

// NewRackDevice is one that is added, with its BMC's record.
type NewRackDevice struct{ SiteID, Kind, Name, Rack, BMCID string }

// CreateRackDevice adds a rack device. It returns *db.ConflictError for a name that its site has.
func CreateRackDevice(ctx context.Context, tx *db.Tx, in NewRackDevice) (RackDevice, error) {
	row, err := queries(tx).InsertRackDevice(ctx, gen.InsertRackDeviceParams{
		ID: db.NewID("rackdev"), SiteID: in.SiteID, Kind: in.Kind, Name: in.Name, Rack: in.Rack, BMCID: in.BMCID,
	})
	return row, db.MapError("rack device "+in.Name, err)
}

// RackDeviceByID reads one, or db.ErrNotFound.
func RackDeviceByID(ctx context.Context, c db.Conn, id string) (RackDevice, error) {
	row, err := queries(c).RackDevice(ctx, id)
	return row, db.MapError("rack device "+id, err)
}

// RackDeviceOfBMC reads the one that a BMC is of; ok is false for a BMC of another kind.
func RackDeviceOfBMC(ctx context.Context, c db.Conn, bmcID string) (row RackDevice, ok bool, err error) {
	row, err = queries(c).RackDeviceOfBMC(ctx, bmcID)
	if err = db.MapError("rack device of BMC "+bmcID, err); errors.Is(err, db.ErrNotFound) {
		return row, false, nil
	}
	return row, err == nil, err
}

// ListRackDevices lists them by id, of a site where one is given, from the one after.
func ListRackDevices(ctx context.Context, c db.Conn, siteID, after string, limit int) ([]RackDeviceLine, error) {
	rows, err := queries(c).ListRackDevices(ctx, gen.ListRackDevicesParams{SiteID: siteID, After: after, MaxRows: db.PageLimit(limit)})
	return rows, db.MapError("list rack devices", err)
}

// DeviceHealth is how a rack device was when its BMC was last read.
type DeviceHealth = gen.RackDeviceHealthsRow

// RackDeviceHealths lists them by BMC, from the one after.
func RackDeviceHealths(ctx context.Context, c db.Conn, siteID, after string, limit int) ([]DeviceHealth, error) {
	rows, err := queries(c).RackDeviceHealths(ctx, gen.RackDeviceHealthsParams{SiteID: siteID, After: after, MaxRows: db.PageLimit(limit)})
	return rows, db.MapError("rack devices of site "+siteID, err)
}
