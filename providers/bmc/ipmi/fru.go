package ipmi

import (
	"cmp"
	"context"

	"github.com/bougou/go-ipmi/pkg/command/storage"
	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// fru is what an inventory record says of the machine. Of a record with a part that is blank or
// whose checksum is wrong the part is damaged, and does not count.
type fru struct {
	manufacturer, model, serial string
	damaged                     bool
}

// fruChunk is read at once; BMCs that cannot return so much say so, and then
// it is halved.
const fruChunk = 32

// maxFRU bounds the part of the record that is read.
const maxFRU = 4096

// fru reads FRU 0, the machine's own. The product area counts; what it leaves
// open is taken from the board and the chassis, in this order.
func (b *BMC) fru(ctx context.Context, op string) (fru, error) {
	var info storage.GetFRUInventoryAreaInfoResponse
	if err := b.ask(ctx, op, &storage.GetFRUInventoryAreaInfoRequest{}, &info, reads); err != nil {
		return fru{}, err
	}
	r := &fruReader{b: b, op: op, size: int(info.AreaSizeBytes), chunk: fruChunk}
	if info.DeviceAccessedByWords {
		r.words = true
	}
	head, err := r.read(ctx, 0, int(types.FRUCommonHeaderSize))
	if err != nil {
		return fru{}, err
	}
	if len(head) < int(types.FRUCommonHeaderSize) || head[0]&0x0f != types.FRUFormatVersion || sum(head) != 0 {
		return fru{damaged: true}, nil
	}
	var out fru
	fill := func(to *string, fields []string, i int) {
		if *to == "" && i < len(fields) {
			*to = fields[i]
		}
	}
	for _, area := range []struct {
		offset      byte
		skip        int // bytes before the first field
		mfr, mod, s int // which field is what; -1: none
	}{
		{head[4], 3, 0, 1, 4},   // product: manufacturer, name, part, version, serial
		{head[3], 6, 0, 1, 2},   // board: manufacturer, product, serial
		{head[2], 3, -1, -1, 1}, // chassis: part, serial
	} {
		if area.offset == 0 {
			continue
		}
		data, err := r.area(ctx, int(area.offset)*8)
		if err != nil {
			return out, err
		}
		out.damaged = out.damaged || data == nil
		fields := fruFields(data, area.skip)
		if area.mfr >= 0 {
			fill(&out.manufacturer, fields, area.mfr)
			fill(&out.model, fields, area.mod)
		}
		if area.s < len(fields) {
			out.serial = cmp.Or(out.serial, spec.NormalSerial(r.b.clean(fields[area.s])))
		}
	}
	return out, nil
}

type fruReader struct {
	b     *BMC
	op    string
	size  int
	chunk int
	words bool
}

// area reads one area whole; its second byte is its length in eights. An area
// whose checksum is wrong is empty: half a serial is worse than none.
func (r *fruReader) area(ctx context.Context, offset int) ([]byte, error) {
	head, err := r.read(ctx, offset, 2)
	if err != nil || len(head) < 2 {
		return nil, err
	}
	data, err := r.read(ctx, offset, int(head[1])*8)
	if err != nil || len(data) < int(head[1])*8 || sum(data) != 0 {
		return nil, err
	}
	return data, nil
}

// read reads n bytes, fewer where the record ends.
func (r *fruReader) read(ctx context.Context, offset, n int) ([]byte, error) {
	n = min(n, min(r.size, maxFRU)-offset)
	var out []byte
	for len(out) < n {
		want := min(r.chunk, n-len(out))
		at, count := offset+len(out), want
		if r.words {
			at, count = at/2, (want+1)/2
		}
		req := &storage.ReadFRUDataRequest{ReadOffset: uint16(at), ReadCount: uint8(count)} //nolint:gosec // bounded by maxFRU and fruChunk
		var res storage.ReadFRUDataResponse
		err := r.b.ask(ctx, r.op, req, &res, reads)
		if code, ok := codeOf(err); ok && storage.ReadFRUDataLength2Big(types.CompletionCode(code)) && r.chunk > 2 {
			r.chunk /= 2
			continue
		}
		if err != nil {
			return nil, err
		}
		got := res.Data[:min(len(res.Data), want)]
		if len(got) == 0 {
			return nil, &providers.Error{Kind: providers.KindProtocol, Op: r.op, Message: "the BMC's inventory record ends before its own length"}
		}
		out = append(out, got...)
	}
	return out, nil
}

// fruFields reads the type/length fields of an area (FRU specification,
// section 13) up to its end mark.
func fruFields(area []byte, skip int) (out []string) {
	defer func() { // the decoder is not ours
		if recover() != nil {
			out = nil
		}
	}()
	for i := skip; i < len(area) && area[i] != types.FRUAreaFieldsEndMark; {
		n := int(area[i] & 0x3f)
		if i+1+n > len(area) {
			return out
		}
		out = append(out, types.FRUFieldString(types.TypeLength(area[i]), area[i+1:i+1+n]))
		i += 1 + n
	}
	return out
}
