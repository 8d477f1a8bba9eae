package ipmi

import (
	"crypto/hmac"
	"encoding/binary"

	"github.com/bougou/go-ipmi/pkg/crypto"
	"github.com/bougou/go-ipmi/pkg/types"
)

// The fixed parts of a datagram (IPMI 2.0, tables 13-1 and 13-8).
const (
	rmcpLen    = 4
	header15   = rmcpLen + 10 // without an authentication code
	header20   = rmcpLen + 12
	authRMCPP  = byte(types.AuthTypeRMCPPlus)
	flagSealed = types.PayloadFlagEncrypted | types.PayloadFlagAuthenticated
	nextHeader = 0x07
	maxPayload = 1024
)

// rmcp is the RMCP header of an IPMI message that wants no acknowledgement.
func rmcp() []byte { return []byte{types.RmcpVersion, 0, 0xff, types.MessageClassIPMI} }

func isRMCP(d []byte) bool {
	return len(d) > rmcpLen && d[0] == types.RmcpVersion && d[3] == types.MessageClassIPMI
}

// keys are those of an active session.
type keys struct {
	suite     suite
	consoleID uint32 // our id: what the BMC's messages carry
	bmcID     uint32 // its id: what ours carry
	k1, k2    []byte
	guid      [16]byte // of the system, as the login proved it
	sent      uint32   // session sequence numbers, counted up
	seen      uint32
}

// wrapPlain packs a payload outside of a session.
func wrapPlain(payloadType types.PayloadType, payload []byte) []byte {
	d := append(rmcp(), authRMCPP, byte(payloadType), 0, 0, 0, 0, 0, 0, 0, 0)
	d = binary.LittleEndian.AppendUint16(d, uint16(len(payload))) //nolint:gosec // payloads are ours and short
	return append(d, payload...)
}

// unwrapPlain is the payload of that type, or ok is false.
func unwrapPlain(d []byte, payloadType types.PayloadType) (payload []byte, ok bool) {
	if len(d) < header20 || !isRMCP(d) || d[4] != authRMCPP || d[5] != byte(payloadType) || binary.LittleEndian.Uint32(d[6:]) != 0 {
		return nil, false
	}
	n := int(binary.LittleEndian.Uint16(d[14:]))
	if n > len(d)-header20 {
		return nil, false
	}
	return d[header20 : header20+n], true
}

// seal encrypts and signs an IPMI message under the next sequence number.
func (k *keys) seal(message []byte) ([]byte, error) {
	payload, err := crypto.EncryptAESPayload(message, k.k2, crypto.RandomBytes(16))
	if err != nil {
		return nil, err
	}
	k.sent++
	d := append(rmcp(), authRMCPP, flagSealed|byte(types.PayloadTypeIPMI))
	d = binary.LittleEndian.AppendUint32(d, k.bmcID)
	d = binary.LittleEndian.AppendUint32(d, k.sent)
	d = binary.LittleEndian.AppendUint16(d, uint16(len(payload))) //nolint:gosec // messages are ours and short
	d = append(d, payload...)
	pad := types.IntegrityPadLen(header20-rmcpLen, len(payload))
	for range pad {
		d = append(d, 0xff)
	}
	d = append(d, byte(pad), nextHeader)
	code, err := crypto.SessionIntegrityAuthCode(k.suite.integ, d[rmcpLen:], k.k1, "")
	if err != nil {
		return nil, err
	}
	return append(d, code...), nil
}

// open checks a datagram of the session and decrypts its IPMI message. An
// answer that is unsigned, in the clear, of another session or not newer than
// the last one is spoiled: it may come from anybody.
func (k *keys) open(d []byte) ([]byte, verdict) {
	codeLen, ok := crypto.IntegrityAuthCodeLen(k.suite.integ)
	if !ok || !isRMCP(d) || len(d) < header20+2+codeLen || d[4] != authRMCPP {
		return nil, spoiled
	}
	if d[5]&0x3f != byte(types.PayloadTypeIPMI) {
		return nil, ignored // a late answer of the handshake
	}
	n := int(binary.LittleEndian.Uint16(d[14:]))
	signed := len(d) - codeLen
	if d[5] != flagSealed|byte(types.PayloadTypeIPMI) || binary.LittleEndian.Uint32(d[6:]) != k.consoleID ||
		n > maxPayload || n > signed-2-header20 || n < 32 || n%16 != 0 {
		return nil, spoiled
	}
	code, err := crypto.SessionIntegrityAuthCode(k.suite.integ, d[rmcpLen:signed], k.k1, "")
	if err != nil || !hmac.Equal(code, d[signed:]) {
		return nil, spoiled
	}
	if seq := binary.LittleEndian.Uint32(d[10:]); seq > k.seen {
		k.seen = seq
	} else {
		return nil, ignored
	}
	message, err := crypto.DecryptAESPayload(d[header20:header20+n], k.k2)
	if err != nil {
		return nil, spoiled
	}
	return message, taken
}

// request packs an IPMI message (section 13.8).
func request(c types.Command, seq uint8, data []byte) []byte {
	r := types.IPMIRequest{
		ResponderAddr: types.BMC_SA, NetFn: c.NetFn, RequesterAddr: types.RemoteConsole_SWID,
		RequesterSequence: seq, Command: c.ID, CommandData: data,
	}
	r.ComputeChecksum()
	return r.Pack()
}

// response reads the answer to a request: its completion code and data. ok is
// false when the message answers something else or is damaged.
func response(message []byte, c types.Command, seq uint8) (code byte, data []byte, ok bool) {
	if len(message) < 8 || sum(message[:3]) != 0 || sum(message[3:]) != 0 ||
		message[1]>>2 != byte(c.NetFn)|1 || message[4]>>2 != seq || message[5] != c.ID {
		return 0, nil, false
	}
	return message[6], message[7 : len(message)-1], true
}

func sum(b []byte) (s byte) {
	for _, v := range b {
		s += v
	}
	return s
}
