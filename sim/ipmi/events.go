package ipmisim

import (
	"context"
	"encoding/binary"
	"sync"
	"time"

	"github.com/bougou/go-ipmi/pkg/handlers"
	"github.com/bougou/go-ipmi/pkg/types"
)

// notSet is the time of what never happened.
const notSet = 0xffffffff

// lastEvent is the record id after the last one, and asks for the last one.
const lastEvent = 0xffff

// eventLog is a system event log (IPMI 2.0, section 31) whose oldest records give way to new ones.
// A log that was cleared begins with the first id again.
type eventLog struct {
	mu            sync.Mutex
	capacity      int
	records       [][]byte
	next          uint16
	reservation   uint16
	added, erased uint32
	onRead        func(id uint16)
}

func newEventLog(capacity int) *eventLog {
	if capacity <= 0 {
		capacity = 512
	}
	return &eventLog{capacity: capacity, next: 1, added: notSet, erased: notSet}
}

func (l *eventLog) register(r *handlers.Registry) {
	for command, answer := range map[types.Command]func(req []byte) ([]byte, types.CompletionCode){
		types.CommandGetSELInfo: l.info, types.CommandReserveSEL: l.reserve, types.CommandGetSELEntry: l.read, types.CommandClearSEL: l.clear,
	} {
		r.RegisterFunc(command, func(_ context.Context, _ *handlers.HandlerContext, req []byte) ([]byte, types.CompletionCode, error) {
			data, code := answer(req)
			return data, code, nil
		})
	}
}

func (l *eventLog) info([]byte) ([]byte, types.CompletionCode) {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]byte, 14)
	out[0], out[13] = 0x51, 0x02                                                   // version; reservations are supported
	binary.LittleEndian.PutUint16(out[1:], uint16(len(l.records)))                 //nolint:gosec // bounded by capacity
	binary.LittleEndian.PutUint16(out[3:], uint16(16*(l.capacity-len(l.records)))) //nolint:gosec // bounded by capacity
	binary.LittleEndian.PutUint32(out[5:], l.added)
	binary.LittleEndian.PutUint32(out[9:], l.erased)
	return out, types.CodeOK
}

func (l *eventLog) reserve([]byte) ([]byte, types.CompletionCode) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reservation++
	return binary.LittleEndian.AppendUint16(nil, l.reservation), types.CodeOK
}

func (l *eventLog) read(req []byte) ([]byte, types.CompletionCode) {
	if len(req) < 6 {
		return nil, types.CodeRequestDataTruncated
	}
	id := binary.LittleEndian.Uint16(req[2:])
	l.mu.Lock()
	onRead := l.onRead
	l.mu.Unlock()
	if onRead != nil {
		onRead(id)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, record := range l.records {
		next := uint16(lastEvent)
		if i+1 < len(l.records) {
			next = binary.LittleEndian.Uint16(l.records[i+1])
		}
		if id == binary.LittleEndian.Uint16(record) || id == 0 && i == 0 || id == lastEvent && next == lastEvent {
			from := min(int(req[4]), len(record))
			return append(binary.LittleEndian.AppendUint16(nil, next), record[from:min(from+int(req[5]), len(record))]...), types.CodeOK
		}
	}
	return nil, types.CodeRequestedDataNotPresent
}

func (l *eventLog) clear(req []byte) ([]byte, types.CompletionCode) {
	if len(req) < 6 || string(req[2:5]) != "CLR" {
		return nil, types.CodeRequestDataFieldInvalid
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if binary.LittleEndian.Uint16(req) != l.reservation {
		return nil, types.CodeReservationCanceled
	}
	if req[5] == 0xaa {
		l.erase()
	}
	return []byte{1}, types.CodeOK // completed
}

func (l *eventLog) erase() {
	l.records, l.next, l.erased = nil, 1, uint32(time.Now().Unix()) //nolint:gosec // until 2106
}

// AddEvent writes a record: a discrete sensor of that type has asserted the state. The time is the
// BMC's.
func (r *Reference) AddEvent(at time.Time, sensorType, sensor, state byte) {
	record := make([]byte, 16)
	record[2], record[7], record[9] = 0x02, 0x20, 0x04           // system event of the BMC, by the revision of IPMI 2.0
	binary.LittleEndian.PutUint32(record[3:], uint32(at.Unix())) //nolint:gosec // until 2106
	record[10], record[11], record[12], record[13] = sensorType, sensor, 0x6f, state
	r.AddRawEvent(record)
}

// AddRawEvent writes a record as it is, but for its id. It returns the id.
func (r *Reference) AddRawEvent(record []byte) uint16 {
	l := r.events
	l.mu.Lock()
	defer l.mu.Unlock()
	id := l.next
	binary.LittleEndian.PutUint16(record, id)
	l.next, l.added = l.next+1, uint32(time.Now().Unix()) //nolint:gosec // until 2106
	l.records = append(l.records, record)
	l.records = l.records[max(0, len(l.records)-l.capacity):]
	return id
}

// ClearEvents empties the log, as root on the machine does. The next record has the first id again.
func (r *Reference) ClearEvents() {
	r.events.mu.Lock()
	defer r.events.mu.Unlock()
	r.events.erase()
}

// Events lists the ids of the records that the log has.
func (r *Reference) Events() (ids []uint16) {
	r.events.mu.Lock()
	defer r.events.mu.Unlock()
	for _, record := range r.events.records {
		ids = append(ids, binary.LittleEndian.Uint16(record))
	}
	return ids
}

// OnEventRead is called before a record is read, with the id that was asked for.
func (r *Reference) OnEventRead(f func(id uint16)) {
	r.events.mu.Lock()
	defer r.events.mu.Unlock()
	r.events.onRead = f
}
