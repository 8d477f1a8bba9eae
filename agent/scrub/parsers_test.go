package scrub

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/gpupattern"
	"github.com/slipway-cloud/slipway/agent/hostscan"
)

func TestParseSanitizeLogInAllItsForms(t *testing.T) {
	t.Parallel()
	for in, want := range map[string][2]int{
		`{"nvme0":{"sprog":65535,"sstat":{"global_erased":1,"no_cmplted_passes":0,"status":"(1) Most Recent Sanitize Command Completed Successfully."},"cdw10_info":2}}`: {sanitizeDone, 65535},
		`{"nvme0":{"sprog":1200,"sstat":{"status":"(2) Sanitize in Progress."}}}`:                                                                                        {sanitizeRunning, 1200},
		`{"nvme3":{"sprog":65535,"sstat":259}}`:            {sanitizeFailed, 65535},
		`{"sprog":0,"sstat":0}`:                            {sanitizeNever, 0},
		`{"nvme0":{"sprog":65535,"sstat":{"status":260}}}`: {sanitizeDoneFree, 65535},
	} {
		status, progress, err := parseSanitizeLog([]byte(in))
		require.NoError(t, err, in)
		require.Equal(t, want, [2]int{status, progress}, in)
	}
	for _, bad := range []string{"", "[]", `{"nvme0":{}}`, `{"nvme0":{"sprog":1}}`, `{"nvme0":{"sprog":1,"sstat":{"status":"done"}}}`, `{"nvme0":{"sprog":1,"sstat":null}, "nvme1":{}}`, `{"nvme0":7}`} {
		_, _, err := parseSanitizeLog([]byte(bad))
		require.Error(t, err, bad)
	}
}

func TestParseIdentityWantsEveryCapability(t *testing.T) {
	t.Parallel()
	id, err := parseIdentity([]byte(`{"vid":5197,"sn":"S64FNE0R501234      ","mn":"SAMSUNG","oacs":94,"fna":4,"sanicap":1610612739,"nn":32}`))
	require.NoError(t, err)
	require.Equal(t, "S64FNE0R501234", id.Serial)
	args, how := sanitizeAction(*id.SaniCap)
	require.Equal(t, []string{"--sanact=2"}, args)
	require.Equal(t, "(block erase)", how)
	args, _ = sanitizeAction(1)
	require.Equal(t, []string{"--sanact=4"}, args)
	args, _ = sanitizeAction(4)
	require.Equal(t, "--sanact=3", args[0])
	for _, bad := range []string{"", "{}", `{"sn":"S","oacs":94,"fna":4}`, `{"sn":"","oacs":94,"fna":4,"sanicap":0}`, `{"sn":"S","oacs":"N/A","fna":4,"sanicap":0}`} {
		_, err := parseIdentity([]byte(bad))
		require.Error(t, err, bad)
	}
}

const identify = `
/dev/sdb:

ATA device, with non-removable media
	Model Number:       MICRON_M510DC_MTFDDAK960MBP
	Serial Number:      164614ACB4A0
	Firmware Revision:  0013
Capabilities:
	LBA, IORDY(can be disabled)
Commands/features:
	Enabled	Supported:
	   *	SMART feature set
	   *	Security Mode feature set
Security: 
	Master password revision code = 65534
		supported
	not	enabled
	not	locked
	not	frozen
	not	expired: security count
		supported: enhanced erase
	2min for SECURITY ERASE UNIT. 2min for ENHANCED SECURITY ERASE UNIT.
Logical Unit WWN Device Identifier: 500a075114acb4a0
Checksum: correct
`

func TestParseIdentifyFailsClosed(t *testing.T) {
	t.Parallel()
	s, err := parseIdentify([]byte(identify))
	require.NoError(t, err)
	require.Equal(t, "164614ACB4A0", s.serial)
	require.True(t, s.enhanced)
	require.NoError(t, s.ready(false))
	for change, says := range map[[2]string]string{
		{"not\tfrozen", "\tfrozen"}:               "frozen by the firmware",
		{"not\tlocked", "\tlocked"}:               "Slipway did not set",
		{"not\tenabled", "\tenabled"}:             "Slipway did not set",
		{"not\texpired", "\texpired"}:             "wrong passwords",
		{"\tnot\tfrozen\n", ""}:                   "does not tell",
		{"\t\tsupported\n", "\tnot\tsupported\n"}: errNoPurge.Error(),
		{identify[strings.Index(identify, "Security: "):], "Checksum: correct\n"}: errNoPurge.Error(),
	} {
		s, err := parseIdentify([]byte(strings.Replace(identify, change[0], change[1], 1)))
		require.NoError(t, err)
		require.ErrorContains(t, s.ready(false), says)
	}
	locked, err := parseIdentify([]byte(strings.Replace(identify, "not\tenabled", "\tenabled", 1)))
	require.NoError(t, err)
	require.NoError(t, locked.ready(true), "a drive that this run gave a password is finished")
	_, err = parseIdentify([]byte("SG_IO: bad/missing sense data\n"))
	require.Error(t, err)
}

func TestParseGPUsKeepsUnknownUnknown(t *testing.T) {
	t.Parallel()
	one := func(model, mig string) string {
		return `<?xml version="1.0" ?><nvidia_smi_log><driver_version>535.54</driver_version><attached_gpus>1</attached_gpus><gpu id="00000000:07:00.0">
<product_name>` + model + `</product_name><uuid>GPU-1</uuid><mig_mode><current_mig>` + mig + `</current_mig><pending_mig>` + mig + `</pending_mig></mig_mode>
<gpu_reset_status><reset_required>N/A</reset_required></gpu_reset_status><compute_mode>Default</compute_mode></gpu></nvidia_smi_log>`
	}
	for _, c := range []struct{ model, mig, says string }{
		{"NVIDIA A100-SXM4-80GB", "Disabled", ""},
		{"NVIDIA A100-SXM4-80GB", "N/A", "does not tell"},
		{"NVIDIA H100 80GB HBM3", "Enabled", "has MIG enabled"},
		{"NVIDIA H100 80GB HBM3", "[Unknown Error]", "does not tell"},
		{"NVIDIA L40S", "N/A", ""},
		{"Tesla T4", "N/A", ""},
	} {
		gpus, driver, err := parseGPUs([]byte(one(c.model, c.mig)))
		require.NoError(t, err)
		require.Equal(t, "535.54", driver)
		if c.says == "" {
			require.NoError(t, gpus[0].migOff(), c.model)
		} else {
			require.ErrorContains(t, gpus[0].migOff(), c.says)
		}
		require.ErrorContains(t, sameAndReset(gpus, gpus), "does not tell whether it needs a reset")
	}
	for _, bad := range []string{"", "<x/>", strings.Replace(one("A", "B"), "<attached_gpus>1", "<attached_gpus>8", 1), strings.Replace(one("A", "B"), "GPU-1", "N/A", 1)} {
		_, _, err := parseGPUs([]byte(bad))
		require.Error(t, err)
	}
}

func TestParsePatternWantsEveryAnswer(t *testing.T) {
	t.Parallel()
	good := `{"uuid":"GPU-1","bytes_total":1000000,"bytes_checked":990000,"residue":false,"match":true}`
	found, version, err := parsePattern([]byte(`{"version":"1.2","gpus":[` + good + `]}`))
	require.NoError(t, err)
	require.Equal(t, "1.2", version)
	require.NoError(t, found["GPU-1"].check("GPU-1"))
	require.ErrorContains(t, found["GPU-2"].check("GPU-2"), "does not tell")
	for old, change := range map[string]string{`"residue":false`: `"residue":true`, `"match":true`: `"match":false`, `"residue":false,`: "", `990000`: "900000", `:1000000`: ":0", `"match":true` + "}": `"error":"out of memory"}`} {
		found, _, err := parsePattern([]byte(`{"version":"1.2","gpus":[` + strings.Replace(good, old, change, 1) + `]}`))
		require.NoError(t, err)
		require.Error(t, found["GPU-1"].check("GPU-1"), change)
	}
	for _, bad := range []string{"", "{}", `{"version":"1","gpus":[` + good + "," + good + `]}`} {
		_, _, err := parsePattern([]byte(bad))
		require.Error(t, err, bad)
	}
}

// Lines of public bug reports (gpud 1174, open-gpu-kernel-modules 1150, dcgm-exporter), and what no
// table knows.
func TestParseXIDs_UnknownAndFatalOnesCount(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"NVRM: Xid (PCI:0000:9b:00): 95, pid=1234, name=python3, Uncontained: FBHUB. RST: Yes, D-RST: No": "XID 95 at PCI:0000:9b:00",
		"NVRM: Xid (PCI:0019:01:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x025001c6 0x00000000)":    "XID 149 at PCI:0019:01:00",
		"NVRM: Xid (PCI:0000:19:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset)": "XID 154 at PCI:0000:19:00",
		"NVRM: Xid (PCI:0000:19:00): 94, pid=7, Contained: SM (0x1)":                                      "XID 94 at PCI:0000:19:00",
		"NVRM: Xid (PCI:0000:19:00): 9999, something of a later driver":                                   "XID 9999 at PCI:0000:19:00",
		"NVRM: Xid (PCI:0000:19:00): 99999999999999999999, overflow":                                      "XID 9999999999 at PCI:0000:19:00",
		"NVRM: Xid (PCI:0000:19:00): 31, Fatal error":                                                     "XID 31 at PCI:0000:19:00",
		"nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up":                 "SXid 20034 at PCI:0000:c1:00.0",
		"NVRM: Xid in a form of its own":                                                                  "an error whose number cannot be read: NVRM: Xid in a form of its own",
		"NVRM: GPU 0000:19:00.0: a FATAL error was reported":                                              "an error whose number cannot be read: NVRM: GPU 0000:19:00.0: a FATAL error was reported",
		"NVRM: Xid (PCI:0000:9b:00): 31, pid=9, name=python3, Ch 00000008, intr 00000000. MMU Fault":      "",
		"NVRM: Xid (PCI:0000:9b:00): 45, pid=9, Ch 00000008":                                              "",
		"NVRM: a non-fatal condition":                                                                     "",
		"libfc: exchange xid 0x1f timed out":                                                              "",
		"EXT4-fs: fatal signal pending":                                                                   "",
	} {
		got := parseXIDs([]byte("[ 12.3] " + line + "\n"))
		if want == "" {
			require.Empty(t, got, line)
			continue
		}
		require.Len(t, got, 1, line)
		require.Equal(t, want, strings.ReplaceAll(got[0], "[ 12.3] ", ""), line)
	}
}

func TestParseXIDs(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"SXid 12028 at PCI:0000:c1:00.0", "XID 119 at PCI:0000:9b:00", "XID 79 at PCI:0000:19:00"}, parseXIDs([]byte(`
[  10.1] NVRM: Xid (PCI:0000:19:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
[  10.1] NVRM: Xid (PCI:0000:19:00): 79, pid=1
[  11.0] NVRM: Xid (PCI:0000:9b:00): 119, pid=2106, name=nvc:[driver], Timeout after 6s of waiting for RPC response
[  12.0] NVRM: Xid (PCI:0000:9b:00): 13, Graphics Exception
[  13.0] nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error
`)))
	require.Empty(t, parseXIDs([]byte("NVRM: loading NVIDIA UNIX x86_64 Kernel Module 550.90.07\n")))
}

func TestOnlyHomesAreRemovedAsHomes(t *testing.T) {
	t.Parallel()
	for home, want := range map[string]bool{"/home/a": true, "/home/team/a": true, "/": false, "/home": false, "/etc": false, "": false, "/home/a/../../etc": false, "home/a": false, "/home/": false} {
		require.Equal(t, want, homeOf(hostscan.Account{Home: home}), home)
	}
}

func TestKeysThatMayStay(t *testing.T) {
	t.Parallel()
	r := newRun(Host{}, "job_1", nil, []string{"ssh-ed25519 AAAA ops@slipway"}, nil)
	l := r.sortKeys("# ours\nssh-ed25519 AAAA\n\ncommand=\"id\" ssh-ed25519 AAAA\nssh-rsa BBBB tenant\n")
	require.Equal(t, []string{"# ours\n", "ssh-ed25519 AAAA\n", "\n"}, l.stay)
	require.Len(t, l.leave, 2)
}

func TestOffsetsAreSpreadAndStayTheSame(t *testing.T) {
	t.Parallel()
	const size = 3_840_755_982_336
	a := offsets("job_1", "S1", size)
	require.Equal(t, a, offsets("job_1", "S1", size))
	require.NotEqual(t, a, offsets("job_2", "S1", size))
	require.GreaterOrEqual(t, len(a), samples)
	require.Zero(t, a[0])
	require.Equal(t, int64(size/blockSize-1)*blockSize, a[len(a)-1])
	for i := 1; i < len(a); i++ {
		require.Zero(t, a[i]%blockSize)
		require.Less(t, a[i]-a[i-1], int64(size/samples*2+blockSize))
	}
	require.Equal(t, []int64{0}, offsets("j", "s", blockSize))
	require.Empty(t, offsets("j", "s", 100))
}

// The scrub reads the report as the program writes it.
func TestParsePatternReadsTheProgram(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	raw, err := json.Marshal(gpupattern.Report{Version: "v1", Mode: gpupattern.Check, GPUs: []gpupattern.GPU{
		{UUID: "GPU-a", Total: 1000, Checked: 990, Residue: &no, Match: &yes}, {UUID: "GPU-b", Total: 1000, Checked: 990, Residue: &yes, Match: &yes},
		{UUID: "GPU-c", Total: 1000, Residue: &no, Error: "broken"}}})
	require.NoError(t, err)
	found, version, err := parsePattern(raw)
	require.NoError(t, err)
	require.Equal(t, "v1", version)
	require.NoError(t, found["GPU-a"].check("GPU-a"))
	require.ErrorContains(t, found["GPU-b"].check("GPU-b"), "something was left")
	require.ErrorContains(t, found["GPU-c"].check("GPU-c"), "broken")
}
