package scrub

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

func expectedDrives() []spec.ExpectedDrive {
	return []spec.ExpectedDrive{{Serial: "BOOT"}, {Serial: "n0", Model: "model", Bytes: diskBytes}, {Serial: "S1", Model: "MODEL", Bytes: diskBytes}}
}

func TestExpectedDrives_Unexpected(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*bench, []spec.ExpectedDrive) []spec.ExpectedDrive
		says   string
	}{
		"one more":    {func(b *bench, e []spec.ExpectedDrive) []spec.ExpectedDrive { b.disk("sdc", "NEW"); return e }, `does not expect the drive sdc (serial number "NEW"`},
		"other model": {func(_ *bench, e []spec.ExpectedDrive) []spec.ExpectedDrive { e[1].Model = "OTHER"; return e }, `model "MODEL" and not "OTHER"`},
		"other size":  {func(_ *bench, e []spec.ExpectedDrive) []spec.ExpectedDrive { e[2].Bytes++; return e }, "bytes and not"},
		"no serial": {func(b *bench, e []spec.ExpectedDrive) []spec.ExpectedDrive {
			b.put("/sys/block/sdb/device/serial", "\n")
			return e
		}, `drive sdb (serial number ""`},
		"system disk":  {func(_ *bench, e []spec.ExpectedDrive) []spec.ExpectedDrive { return e[1:] }, "does not expect the drive sda"},
		"another of a": {func(b *bench, e []spec.ExpectedDrive) []spec.ExpectedDrive { b.disk("sdc", "S1"); return e }, "sdc"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			drives := c.change(b, expectedDrives())
			res, _ := b.erase(func(a *spec.ScrubArgs) { a.ExpectedDrives = drives })
			require.Equal(t, lifecycle.TaskCodeDriveUnexpected, res.Code)
			require.Contains(t, res.Message, c.says)
			require.Len(t, res.Steps, 1, "nothing is done")
			require.Empty(t, b.said)
			require.NotContains(t, b.image("nvme0n1")+b.image("sdb"), canaryMark)
			validated := Validate(t.Context(), b.host, spec.ValidateArgs{RunID: "job_1", ExpectedDrives: drives}, nil)
			require.False(t, stepOf(validated, StepFreshBoot).OK)
			require.Contains(t, stepOf(validated, StepDiskBlank).Detail, c.says)
			require.Equal(t, lifecycle.TaskCodeDriveUnexpected, validated.Code)
		})
	}
}

func TestExpectedDrives_Missing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	res, devices := b.erase(func(a *spec.ScrubArgs) {
		protectS1(a)
		a.ExpectedDrives = append(expectedDrives(), spec.ExpectedDrive{Serial: "GONE", Model: "M"})
	})
	require.False(t, res.OK)
	require.Equal(t, lifecycle.TaskCodeDriveMissing, res.Code)
	require.Contains(t, res.Message, "expects a drive with serial number GONE, which is not there")
	require.Contains(t, stepOf(res, StepIdentity).Detail, "3 of 4 drives as the task says")
	require.Equal(t, "GONE", devices["missing"].Serial)
	require.False(t, devices["missing"].Verified)
	require.True(t, devices["nvme0n1"].Verified, "the drives that are there are erased")
	validated := Validate(t.Context(), b.host, spec.ValidateArgs{RunID: "job_1", ExpectedDrives: append(expectedDrives(), spec.ExpectedDrive{Serial: "GONE"})}, nil)
	require.Contains(t, stepOf(validated, StepDiskBlank).Detail, "GONE")
}

// A protected drive is never touched, so it need not be expected; and MAAS may name a drive by its
// WWN.
func TestExpectedDrives_ProtectedOrByWWN(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.disk("sdc", "NEW")
	b.put("/sys/block/nvme0n1/wwid", "eui.0025388b710116a1\n")
	drives := expectedDrives()
	drives[1].Serial = "0025388B710116A1"
	res, devices := b.erase(func(a *spec.ScrubArgs) { a.ProtectSerials, a.ExpectedDrives = []string{"S1", "NEW"}, drives })
	require.True(t, res.OK, res.Message)
	require.Equal(t, lifecycle.SanitizeNone, devices["sdc"].Method)
	require.NotContains(t, b.image("sdc"), canaryMark)

	validated := Validate(t.Context(), b.host, spec.ValidateArgs{RunID: "job_1", ProtectSerials: []string{"S1", "NEW", "n0"},
		ExpectedDrives: append(drives, spec.ExpectedDrive{Serial: "GONE"})}, nil)
	require.False(t, stepOf(validated, StepDiskBlank).OK, "a look at no disk is not skipped where one is missing")
}

func TestExpectedDrives_Match(t *testing.T) {
	t.Parallel()
	for says, drives := range map[string][]spec.ExpectedDrive{
		"3 of 3 drives as the task says":           expectedDrives(),
		"drives not compared: the task names none": nil,
	} {
		b := newBench(t)
		res, _ := b.erase(func(a *spec.ScrubArgs) { protectS1(a); a.ExpectedDrives = drives })
		require.True(t, res.OK, res.Message)
		require.Contains(t, stepOf(res, StepIdentity).Detail, says)
	}
}

func TestSameModel(t *testing.T) {
	t.Parallel()
	require.True(t, sameModel("", "X"))
	require.True(t, sameModel("SAMSUNG_MZ7LH960HAJR-00005", "SAMSUNG MZ7LH960"), "the kernel cuts a SCSI model")
	require.True(t, sameModel("Micron 5300", "MICRON  5300 "))
	require.False(t, sameModel("SAMSUNG MZ7LH960", ""))
	require.False(t, sameModel("SAMSUNG MZ7LH960", "SAM"))
	require.False(t, sameModel("SAMSUNG MZ7LH960", "SAMSUNG MZ7LH480"))
}

// The method of every drive is decided before the first canary is written, and a drive that has
// none gets no canary.
func TestMethodsAreDecidedBeforeAnythingIsWritten(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	asked := 0
	b.answer["hdparm"] = func(args []string) (string, error) {
		if args[0] == "-I" {
			asked++
			require.NotContains(t, b.image("nvme0n1"), canaryMark)
		}
		return strings.Replace(strings.ReplaceAll(identify, "164614ACB4A0", "S1"), "not\tfrozen", "\tfrozen", 1), nil
	}
	local := b.answer["nvme"]
	b.answer["nvme"] = func(args []string) (string, error) {
		if args[0] == "id-ctrl" {
			require.NotContains(t, b.image("nvme0n1"), canaryMark)
		}
		return local(args)
	}
	b.disk("sdc", "SAS1")
	b.put("/sys/block/sdc/device/vendor", "SEAGATE \n")
	res, devices := b.erase(nil)
	require.False(t, res.OK)
	require.Equal(t, 1, asked)
	require.True(t, devices["nvme0n1"].Verified)
	require.Contains(t, devices["sdb"].Detail, "frozen")
	require.Contains(t, devices["sdc"].Detail, "no command that purges it")
	require.NotContains(t, b.image("sdb")+b.image("sdc"), canaryMark)
}

func TestNVMeThatDoesNotAnswer_GetsNoCanary(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.answer["nvme"] = func([]string) (string, error) { return "", errors.New("I/O error") }
	res, _ := b.erase(protectS1)
	require.False(t, res.OK)
	require.NotContains(t, b.image("nvme0n1"), canaryMark)
}

func TestIdentity_FirmwareShowsNoSerial(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.host.Serial = "S1"
	res, _ := b.erase(nil)
	require.Equal(t, lifecycle.TaskCodeOtherMachine, res.Code)
	require.Contains(t, res.Message, "the firmware shows no serial number, and the task is for S1")
	require.Empty(t, b.said)
}
