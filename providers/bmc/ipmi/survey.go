package ipmi

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/bougou/go-ipmi/pkg/command/storage"
	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/slipway-cloud/slipway/lifecycle/hardware"
	"github.com/slipway-cloud/slipway/providers"
)

// maxProbes bounds the probes of a survey.
const maxProbes = 512

// Survey reads the sensors and the inventory record (FRU 0), whose parts are one board: IPMI lists
// no others, and no kind of part whole.
func (b *BMC) Survey(ctx context.Context, _ bool) (providers.Survey, error) {
	r, err := b.readHealth(ctx, "ipmi.survey")
	if err != nil {
		return providers.Survey{}, err
	}
	out := providers.Survey{Health: r.out}
	for _, health := range []string{healthCritical.String(), healthWarning.String(), "Unknown", healthOK.String()} {
		for _, p := range r.probes {
			if p.Health == health {
				out.Probes = append(out.Probes, p)
			}
		}
	}
	out.LeftOut, out.Partial = r.dropped, r.missing
	f, err := b.fru(ctx, "ipmi.survey")
	if err != nil {
		if !tolerable(err) && !providers.IsKind(err, providers.KindUnsupported) {
			return out, err
		}
		out.Partial = append(out.Partial, "inventory record: "+string(providers.KindOf(err)))
		return out, nil
	}
	if f.damaged {
		out.Partial = append(out.Partial, "inventory record: a part of it is blank, or its checksum is wrong")
	}
	if serial := b.clean(f.serial); serial != "" || f.model != "" {
		out.Parts = append(out.Parts, providers.BMCPart{
			Kind: hardware.Board, URI: "ipmi:fru/0", Name: "FRU 0", Manufacturer: b.clean(f.manufacturer), Model: b.clean(f.model), Serial: serial,
		})
	}
	return out, nil
}

// probe keeps what a report was told of one part. Parts that are well give way to those that are
// not.
func (r *report) probe(target string, kind byte, health string) {
	p := providers.BMCProbe{Target: target, Category: categoryOf(target, kind), Health: health}
	if len(r.probes) < maxProbes {
		r.probes = append(r.probes, p)
		return
	}
	r.dropped++
	if health == healthOK.String() {
		return
	}
	for i, other := range r.probes {
		if other.Health == healthOK.String() || other.Health == "Unknown" && health == healthCritical.String() {
			r.probes[i] = p
			return
		}
	}
}

// categoryOf tells the category of a sensor by its type (table 42-3), and of a fault of the chassis
// by its name.
func categoryOf(target string, kind byte) providers.ProbeCategory {
	switch kind {
	case 0x01, 0x04, 0x0a:
		return hardware.CategoryThermal
	case 0x02, 0x03, 0x08, 0x09, 0x0b:
		return hardware.CategoryPower
	case 0x0c:
		return hardware.CategoryMemory
	case 0x0d:
		return hardware.CategoryDrive
	case 0x27:
		return hardware.CategoryNetwork
	}
	switch {
	case strings.Contains(target, "power"):
		return hardware.CategoryPower
	case strings.Contains(target, "drive"):
		return hardware.CategoryDrive
	case strings.Contains(target, "fan"):
		return hardware.CategoryThermal
	}
	return hardware.CategoryDevice
}

// selService is the name of the one log of IPMI.
const selService = "SEL"

// maxSEL bounds the entries that are read; a system event log holds some thousands at most.
const maxSEL = 4096

// Logs reads the system event log.
func (b *BMC) Logs(ctx context.Context, known func(providers.BMCLogEntry) bool) (providers.BMCLogs, error) {
	return b.LogsFrom(ctx, nil, known)
}

// LogsFrom reads the system event log on from the record that was read last, and whole where the
// log does not have that record any more: it was cleared, or its oldest records gave way. A reading
// that is cut off is read on by the next, so that a log which takes longer than one reading shows
// its newest records too.
func (b *BMC) LogsFrom(ctx context.Context, cursors map[string]string, known func(providers.BMCLogEntry) bool) (providers.BMCLogs, error) {
	const op = "ipmi.logs"
	cursor := cursors[selService]
	out := providers.BMCLogs{Cursors: map[string]string{}}
	if cursor != "" {
		out.Cursors[selService] = cursor // also of a reading that is cut off before its first record
	}
	erased, err := b.lastErase(ctx, op)
	if err != nil {
		return cutOff(ctx, out, err)
	}
	start := selStart(cursor, erased)
	if start == 0 {
		delete(out.Cursors, selService)
	}
	visited := map[uint16]bool{}
	for id := start; id != lastRecord; {
		if visited[id] || len(visited) >= maxSEL {
			out.Partial = append(out.Partial, selService+": its entries do not end")
			return out, nil
		}
		visited[id] = true
		var res storage.GetSELEntryResponse
		err := b.ask(ctx, op, &storage.GetSELEntryRequest{RecordID: id, ReadBytes: wholeRecord}, &res, reads)
		isStart := len(visited) == 1 && start != 0
		switch {
		case isStart && (err == nil && selCursor(id, res.Data, erased) != cursor || err != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) && tolerable(err)):
			id, start, visited = 0, 0, map[uint16]bool{}
			delete(out.Cursors, selService)
			continue
		case err != nil && id == 0 && (absent(err) || providers.IsKind(err, providers.KindUnsupported)):
			return out, nil // empty, or no log
		case err != nil:
			return cutOff(ctx, out, err)
		}
		if e := b.logEntry(id, res.Data); !known(e) {
			out.Entries = append(out.Entries, e)
		}
		if own := recordID(res.Data); own != 0 {
			out.Cursors[selService] = selCursor(own, res.Data, erased)
		}
		id = res.NextRecordID
	}
	return out, nil
}

// cutOff ends a reading at err. The entries that were read before count, unless err concerns the
// whole BMC.
func cutOff(ctx context.Context, out providers.BMCLogs, err error) (providers.BMCLogs, error) {
	if !tolerable(err) && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return out, err
	}
	out.Partial = append(out.Partial, selService+": "+string(providers.KindOf(err)))
	return out, nil
}

// lastErase returns when the log was last cleared, by the BMC's clock; "-" where the BMC does not
// say.
func (b *BMC) lastErase(ctx context.Context, op string) (string, error) {
	var info storage.GetSELInfoResponse
	switch err := b.ask(ctx, op, &storage.GetSELInfoRequest{}, &info, reads); {
	case err == nil:
		return strconv.FormatInt(info.RecentEraseTime.Unix(), 16), nil
	case tolerable(err):
		return "-", nil
	default:
		return "", err
	}
}

// recordID returns the id that a record states itself; 0 for none.
func recordID(raw []byte) uint16 {
	if len(raw) < 2 {
		return 0
	}
	return uint16(raw[0]) | uint16(raw[1])<<8
}

// selCursor names a record so that another one which has its id after the log was cleared is told
// from it. A log that is cleared while it is read shows no other id; when it was last cleared
// tells.
func selCursor(id uint16, raw []byte, erased string) string {
	return strconv.Itoa(int(id)) + " " + hex.EncodeToString(raw[:min(len(raw), 16)]) + " " + erased
}

// selStart returns the record of a cursor; 0, the first, where the log was cleared since.
func selStart(cursor, erased string) uint16 {
	at, _, ok := strings.Cut(cursor, " ")
	if !ok || !strings.HasSuffix(cursor, " "+erased) {
		return 0
	}
	n, err := strconv.ParseUint(at, 10, 16)
	if err != nil {
		return 0
	}
	return uint16(n)
}

// logEntry decodes a record of the log. A record that is not as IPMI says is an entry too.
func (b *BMC) logEntry(id uint16, raw []byte) (e providers.BMCLogEntry) {
	if own := recordID(raw); own != 0 {
		id = own
	}
	undecoded := providers.BMCLogEntry{
		Service: selService, ID: strconv.Itoa(int(id)), Severity: "Unknown", Message: "record that cannot be decoded: " + hex.EncodeToString(raw[:min(len(raw), 16)]),
	}
	defer func() { // the decoder is not ours
		if recover() != nil {
			e = undecoded
		}
	}()
	sel, err := types.ParseSEL(raw)
	if err != nil {
		return undecoded
	}
	e = providers.BMCLogEntry{Service: selService, ID: strconv.Itoa(int(sel.RecordID)), Severity: "Unknown"}
	switch {
	case sel.Standard != nil:
		s := sel.Standard
		direction := "asserted"
		if s.EventDir {
			direction = "deasserted"
		}
		e.Created, e.Message = s.Timestamp.UTC(), b.clean(fmt.Sprintf("%s #0x%02x: %s %s", s.SensorType, uint8(s.SensorNumber), s.EventString(), direction))
		e.MessageID = b.clean(fmt.Sprintf("%02x%02x%02x", uint8(s.SensorType), uint8(s.EventReadingType), s.EventData.EventData1))
		switch s.EventSeverity() {
		case types.EventSeverityInfo, types.EventSeverityOK:
			e.Severity = healthOK.String()
		case types.EventSeverityWarning, types.EventSeverityDegraded:
			e.Severity = healthWarning.String()
		case types.EventSeverityCritical, types.EventSeverityNonFatal:
			e.Severity = healthCritical.String()
		}
	case sel.OEMTimestamped != nil:
		e.Created, e.Message = sel.OEMTimestamped.Timestamp.UTC(), "OEM record "+hex.EncodeToString(raw[:min(len(raw), 16)])
	default:
		e.Message = "OEM record " + hex.EncodeToString(raw[:min(len(raw), 16)])
	}
	return e
}
