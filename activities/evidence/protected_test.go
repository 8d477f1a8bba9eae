package evidence_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/evidence"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/test/acttest"
)

// A certificate says that a drive was protected and not erased, and is not called clean. The
// agent's word alone protects nothing: the signed task must name the drive.
func TestCertifyNode_ProtectedDrive(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		protect []string
		proven  bool
	}{
		"by serial number":   {[]string{"safe"}, true},
		"by WWN":             {[]string{"eui.0025388b710116a1"}, true},
		"by the agent alone": {nil, false},
		"another":            {[]string{"OTHER1"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newCertifyFixture(t)
			w.Enrol(1)
			w.Heartbeat("boot-1", 1, 0, nil)
			w.RunTask(lifecycle.TaskKindScrub, "scrub", spec.ScrubArgs{RunID: "r", ProtectSerials: c.protect}, lifecycle.TaskResult{
				OK: true, BootID: "boot-1", Output: json.RawMessage(`{"protected": ["SAFE"]}`), Devices: []lifecycle.DeviceResult{
					disk("nvme0n1", "DATA", lifecycle.SanitizePurge, true), disk("sdb", "SAFE", lifecycle.SanitizeNone, false),
				},
			})
			f := acttest.Must(w, w.acts.CertifyNode, w.certifyIn(lifecycle.ModeSoftReset))
			require.Equal(t, c.proven, len(f.Unproven) == 0, f.Unproven)
			got, _ := w.last()
			require.Equal(t, evidence.VerdictNotVerified, got.Verdict)
			require.Equal(t, c.proven, strings.Contains(strings.Join(got.Failures, "; "), "disk sdb SAFE: protected, not erased"), got.Failures)
		})
	}
}
