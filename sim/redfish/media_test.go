package redfishsim_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const iso = "http://127.0.0.1:1/images/boot.iso"

func TestVirtualMediaByVendor(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, vendor string) {
		r := newRig(t, vendor)
		p := r.s.Personality()
		slot := "/redfish/v1/Managers/" + p.ManagerID + "/VirtualMedia/" + p.Media[0].ID
		insert, eject := slot+"/Actions/VirtualMedia.InsertMedia", slot+"/Actions/VirtualMedia.EjectMedia"
		if p.MediaByPatch {
			require.NotContains(t, r.get(slot).obj, "Actions")
			require.Equal(t, 404, r.do("POST", insert, m{"Image": iso}).status)
			require.Equal(t, 400, r.patch(slot, m{"Inserted": true}).status)
			require.Equal(t, 200, r.patch(slot, m{"Image": iso, "Inserted": true}).status)
			require.Equal(t, true, r.get(slot).obj["Inserted"])
			require.Equal(t, 200, r.patch(slot, m{"Image": nil}).status)
			require.Equal(t, false, r.get(slot).obj["Inserted"])
			return
		}
		require.Equal(t, 405, r.do("PATCH", slot, m{"Image": iso}).status)
		require.Equal(t, 400, r.do("POST", insert, m{}).status)
		full := m{"Image": iso, "Inserted": true, "WriteProtected": true}
		if p.MediaStrict {
			require.Equal(t, 400, r.do("POST", insert, full).status)
			full = m{"Image": iso}
		}
		if p.MediaNeedsProto {
			require.Equal(t, 400, r.do("POST", insert, full).status)
			full["TransferProtocolType"] = "HTTP"
		}
		require.Less(t, r.do("POST", insert, full).status, 300)
		require.Equal(t, iso, r.get(slot).obj["Image"])
		require.Equal(t, 400, r.do("POST", insert, full).status, "a slot holds one image")
		if p.EjectNeedsObject {
			require.Equal(t, 400, r.do("POST", eject, nil).status)
		}
		require.Less(t, r.do("POST", eject, m{}).status, 300)
		require.Equal(t, p.EjectLinger > 0, r.get(slot).obj["Inserted"])
		r.m.Clock().Step(p.EjectLinger + time.Second)
		require.Equal(t, false, r.get(slot).obj["Inserted"])
	})
}
