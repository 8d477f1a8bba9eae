package ipmi

import (
	"bytes"
	"testing"

	"github.com/bougou/go-ipmi/pkg/command/app"
	"github.com/bougou/go-ipmi/pkg/command/chassis"
	"github.com/bougou/go-ipmi/pkg/command/sensor"
	"github.com/bougou/go-ipmi/pkg/command/storage"
	"github.com/bougou/go-ipmi/pkg/crypto"
	"github.com/bougou/go-ipmi/pkg/types"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
)

func testKeys(t testing.TB, id int) *keys {
	t.Helper()
	s, ok := suiteOf(id)
	require.True(t, ok)
	_, k1, k2, err := crypto.DeriveSessionKeys(s.auth, bytes.Repeat([]byte{1}, 16), bytes.Repeat([]byte{2}, 16), 0x13, "operator", crypto.PadPassword20([]byte("password")))
	require.NoError(t, err)
	return &keys{suite: s, consoleID: 7, bmcID: 7, k1: k1, k2: k2} // one id for both ways, so that it opens what it sealed
}

func TestASealedMessageOpensOnce(t *testing.T) {
	t.Parallel()
	for _, id := range []int{CipherSuite17, CipherSuite3} {
		k := testKeys(t, id)
		for n := range 40 {
			message := bytes.Repeat([]byte{0xa5}, n)
			d, err := k.seal(message)
			require.NoError(t, err)
			for i := rmcpLen; i < len(d); i++ { // RMCP's own header is not signed
				broken := append([]byte(nil), d...)
				broken[i] ^= 1
				_, v := k.open(broken)
				require.NotEqual(t, taken, v, "byte %d of %d", i, len(d))
			}
			got, v := k.open(d)
			require.Equal(t, taken, v)
			require.Equal(t, message, got[:len(message)])
			_, v = k.open(d)
			require.Equal(t, ignored, v, "the same again")
		}
	}
}

// A BMC that knows the keys may still send anything: padding longer than the
// message is where go-ipmi's own client ends the process.
func FuzzASignedAnswerNeverPanics(f *testing.F) {
	f.Add([]byte{0x81, 0x04, 0x7b, 0x20, 0x04, 0x01, 0x00, 0x01, 0x00, 0x00, 0xda}, byte(0))
	f.Add([]byte{}, byte(0xff))
	f.Add(bytes.Repeat([]byte{0xff}, 64), byte(64))
	f.Fuzz(func(t *testing.T, message []byte, padLength byte) {
		if len(message) > 900 {
			return
		}
		k := testKeys(t, CipherSuite17)
		d, err := k.seal(message)
		require.NoError(t, err)
		if m, v := k.open(d); v == taken {
			_, _, _ = response(m, types.CommandGetChassisStatus, 1)
		}
		// The same with a padding length of its own, signed again.
		padded := crypto.PadAES(message)
		padded[len(padded)-1] = padLength
		iv := make([]byte, 16)
		sealed, err := crypto.EncryptAES(padded, k.k2[:16], iv)
		require.NoError(t, err)
		payload := append(iv, sealed...)
		d = append(rmcp(), authRMCPP, flagSealed, 7, 0, 0, 0, 0xff, 0xff, 0, 0, byte(len(payload)), byte(len(payload)>>8))
		d = append(d, payload...)
		d = append(d, 0, nextHeader)
		code, err := crypto.SessionIntegrityAuthCode(k.suite.integ, d[rmcpLen:], k.k1, "")
		require.NoError(t, err)
		if m, v := k.open(append(d, code...)); v == taken {
			_, _, _ = response(m, types.CommandGetChassisStatus, 1)
		}
	})
}

// Whatever comes by UDP, and whatever stands in an answer, decodes or is
// refused.
func FuzzNoBytesPanic(f *testing.F) {
	f.Add([]byte{6, 0, 0xff, 7, 6, 0xc0, 7, 0, 0, 0, 1, 0, 0, 0, 32, 0})
	f.Add([]byte{6, 0, 0xff, 7, 6, 0x11, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff})
	f.Add([]byte{0, 0, 0x51, 0x02, 0x1b, 0x20, 0, 0x20})
	f.Add(bytes.Repeat([]byte{0xc1}, 48))
	f.Add(bytes.Repeat([]byte{0x3f}, 80))
	f.Fuzz(func(t *testing.T, d []byte) {
		k := testKeys(t, CipherSuite3)
		_, v := k.open(d)
		require.NotEqual(t, taken, v, "nobody signs by chance")
		for _, payload := range []types.PayloadType{types.PayloadTypeRmcpOpenSessionResponse, types.PayloadTypeRAKPMessage2, types.PayloadTypeRAKPMessage4} {
			_, _ = unwrapPlain(d, payload)
		}
		_, _, _ = response(d, types.CommandGetSDR, 3)
		for _, res := range []types.Response{
			&chassis.GetChassisStatusResponse{}, &chassis.GetSystemBootOptionsParamResponse{}, &app.GetSystemGUIDResponse{},
			&app.GetChannelAuthenticationCapabilitiesResponse{}, &app.GetUserAccessResponse{}, &app.GetUsernameResponse{},
			&storage.GetSDRResponse{}, &storage.GetSELInfoResponse{}, &storage.GetFRUInventoryAreaInfoResponse{}, &storage.ReadFRUDataResponse{},
			&storage.ReserveSDRRepoResponse{}, &sensor.GetSensorReadingResponse{}, &types.BootOptionParam_BootFlags{},
		} {
			if err := decode("ipmi.fuzz", res, d); err != nil {
				require.Equal(t, providers.KindProtocol, providers.KindOf(err))
			}
		}
		b := &BMC{}
		_, _ = b.sensorOf(d)
		for _, field := range fruFields(d, 3) {
			require.LessOrEqual(t, len(b.clean(field)), 64)
		}
		var guid [16]byte
		copy(guid[:], d)
		if u := uuidOf(guid); u != "" {
			require.Len(t, u, 36)
		}
	})
}

func TestGUIDsInEveryByteOrder(t *testing.T) {
	t.Parallel()
	const want = "7d0e15d8-6c21-44c5-a9b5-f24fa1d3ce11"
	for name, guid := range map[string][16]byte{
		"SMBIOS":   {0xd8, 0x15, 0x0e, 0x7d, 0x21, 0x6c, 0xc5, 0x44, 0xa9, 0xb5, 0xf2, 0x4f, 0xa1, 0xd3, 0xce, 0x11},
		"IPMI":     {0x11, 0xce, 0xd3, 0xa1, 0x4f, 0xf2, 0xb5, 0xa9, 0xc5, 0x44, 0x21, 0x6c, 0xd8, 0x15, 0x0e, 0x7d},
		"RFC 4122": {0x7d, 0x0e, 0x15, 0xd8, 0x6c, 0x21, 0x44, 0xc5, 0xa9, 0xb5, 0xf2, 0x4f, 0xa1, 0xd3, 0xce, 0x11},
	} {
		require.Equal(t, want, uuidOf(guid), name)
	}
	require.Empty(t, uuidOf([16]byte{}))
	require.Empty(t, uuidOf([16]byte(bytes.Repeat([]byte{0xff}, 16))))
}

// Completion codes are failures of the right kind.
func TestCompletionCodes(t *testing.T) {
	t.Parallel()
	for code, want := range map[completion]providers.Kind{
		0xc0: providers.KindBusy, 0xc1: providers.KindUnsupported, 0xc3: providers.KindUnavailable, 0xc8: providers.KindInvalid,
		0xcb: providers.KindNotFound, 0xd4: providers.KindForbidden, 0xd5: providers.KindStateConflict, 0xff: providers.KindUnavailable, 0x91: providers.KindProtocol,
	} {
		err := error(refused("ipmi.test", code))
		require.Equal(t, want, providers.KindOf(err))
		got, ok := codeOf(err)
		require.True(t, ok)
		require.Equal(t, code, got)
	}
	require.True(t, absent(refused("ipmi.test", 0xcb)), "an empty event log answers so")
}
