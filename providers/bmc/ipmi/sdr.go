package ipmi

import (
	"context"

	"github.com/bougou/go-ipmi/pkg/command/storage"
	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/slipway-cloud/slipway/providers"
)

// sensorRecord is what health needs of a full or compact sensor record
// (sections 43.1 and 43.2).
type sensorRecord struct {
	name        string
	owner, lun  byte
	number      byte
	sensorType  byte
	readingType byte
}

// The layout of both kinds of record.
const (
	sdrHeader   = 5
	sdrFull     = 0x01
	sdrCompact  = 0x02
	fullName    = 47
	compactName = 31
	sdrChunk    = 16
	lastRecord  = 0xffff
	wholeRecord = 0xff
)

// sensors walks the sensor repository. An empty one, or none, is an empty
// list. A chain of records that runs in a circle or beyond MaxRecords ends
// with KindProtocol or KindTooBig.
func (b *BMC) sensors(ctx context.Context, op string) ([]sensorRecord, error) {
	w := &sdrWalk{b: b, op: op}
	visited := map[uint16]bool{}
	var out []sensorRecord
	for id := uint16(0); id != lastRecord; {
		if visited[id] {
			return out, &providers.Error{Kind: providers.KindProtocol, Op: op, Message: "the BMC's sensor records run in a circle"}
		}
		if len(visited) >= b.opts.MaxRecords {
			return out, &providers.Error{Kind: providers.KindTooBig, Op: op, Message: "the BMC lists more sensor records than are read"}
		}
		visited[id] = true
		record, next, err := w.record(ctx, id)
		if id == 0 && absent(err) {
			return nil, nil
		}
		if err != nil {
			return out, err
		}
		if r, ok := b.sensorOf(record); ok {
			out = append(out, r)
		}
		id = next
	}
	return out, nil
}

// sensorOf reads a record that describes a sensor.
func (b *BMC) sensorOf(d []byte) (sensorRecord, bool) {
	name := fullName
	switch {
	case len(d) <= sdrHeader || (d[3] != sdrFull && d[3] != sdrCompact):
		return sensorRecord{}, false
	case d[3] == sdrCompact:
		name = compactName
	}
	if len(d) <= 13 {
		return sensorRecord{}, false
	}
	r := sensorRecord{owner: d[5], lun: d[6] & 3, number: d[7], sensorType: d[12], readingType: d[13]}
	if fields := fruFields(d[:min(len(d), name+1+32)], name); len(fields) > 0 {
		r.name = b.clean(fields[0])
	}
	return r, true
}

// sdrWalk reads records whole, or in parts from the first time that the BMC
// cannot return a whole one.
type sdrWalk struct {
	b           *BMC
	op          string
	parts       bool
	reservation uint16
}

func (w *sdrWalk) record(ctx context.Context, id uint16) ([]byte, uint16, error) {
	if !w.parts {
		data, next, err := w.get(ctx, id, 0, wholeRecord)
		if _, answered := codeOf(err); !answered || absent(err) {
			return data, next, err
		}
		w.parts = true
	}
	data, next, err := w.inParts(ctx, id)
	if code, ok := codeOf(err); ok && code == completion(types.CodeReservationCanceled) {
		w.reservation = 0 // somebody changed the repository: once more
		data, next, err = w.inParts(ctx, id)
	}
	return data, next, err
}

func (w *sdrWalk) inParts(ctx context.Context, id uint16) ([]byte, uint16, error) {
	if w.reservation == 0 {
		var res storage.ReserveSDRRepoResponse
		if err := w.b.ask(ctx, w.op, &storage.ReserveSDRRepoRequest{}, &res, reads); err != nil {
			return nil, 0, err
		}
		w.reservation = res.ReservationID
	}
	data, next, err := w.get(ctx, id, 0, sdrHeader)
	if err != nil {
		return nil, 0, err
	}
	for len(data) >= sdrHeader && len(data) < sdrHeader+int(data[4]) {
		n := min(sdrChunk, sdrHeader+int(data[4])-len(data))
		part, _, err := w.get(ctx, id, len(data), n)
		if err != nil {
			return nil, 0, err
		}
		if len(part) == 0 {
			break
		}
		data = append(data, part...)
	}
	return data, next, nil
}

func (w *sdrWalk) get(ctx context.Context, id uint16, offset, n int) ([]byte, uint16, error) {
	if offset > 0xff {
		return nil, 0, &providers.Error{Kind: providers.KindProtocol, Op: w.op, Message: "a sensor record is longer than one can be"}
	}
	req := &storage.GetSDRRequest{ReservationID: w.reservation, RecordID: id, ReadOffset: uint8(offset), ReadBytes: uint8(n)} //nolint:gosec // checked above
	var res storage.GetSDRResponse
	err := w.b.ask(ctx, w.op, req, &res, reads)
	return res.RecordData, res.NextRecordID, err
}
