package simnode

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	simhw "github.com/slipway-cloud/slipway/sim/hw"
)

const recordings = "../../agent/testdata/"

// elementPaths are the paths of all elements of a document.
func elementPaths(t *testing.T, raw []byte) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	var at []string
	d := xml.NewDecoder(strings.NewReader(string(raw)))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return out
		}
		require.NoError(t, err)
		switch e := token.(type) {
		case xml.StartElement:
			at = append(at, e.Name.Local)
			out[strings.Join(at, ">")] = true
		case xml.EndElement:
			at = at[:len(at)-1]
		}
	}
}

// The simulator writes fewer elements than the driver, and no other.
func TestNvidiaXML_AsRecorded(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(recordings + "h200-580.xml")
	require.NoError(t, err)
	simulated := nvidiaXML(simhw.Spec{GPUs: 1, GPUModel: "NVIDIA H200"}, Faults{})
	require.Equal(t, strings.SplitN(string(raw), "\n", 3)[:2], strings.SplitN(string(simulated), "\n", 3)[:2])
	recorded := elementPaths(t, raw)
	for path := range elementPaths(t, simulated) {
		require.True(t, recorded[path], "the driver does not write %s", path)
	}
	for _, name := range []string{"driver_version", "cuda_version", "attached_gpus", "product_name", "display_mode", "display_attached", "gpu_recovery_action", "total", "reserved"} {
		text := regexp.MustCompile("<" + name + ">.*</" + name + ">").FindString(string(raw))
		require.NotEmpty(t, text)
		require.Contains(t, string(simulated), text)
	}
}

func TestNvidiaTable_AsRecorded(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(recordings + "h200-580.txt")
	require.NoError(t, err)
	shape := func(s string) string { return regexp.MustCompile("[A-Za-z0-9]").ReplaceAllString(s, "x") }
	recorded := strings.Split(string(raw), "\n")
	simulated := strings.Split(nvidiaTable(simhw.Spec{GPUs: 1, GPUModel: "NVIDIA H200"}, Faults{}), "\n")
	require.Len(t, simulated[0], len(recorded[0]), "the date") // a day can have one digit
	require.Len(t, simulated, len(recorded))
	for i, line := range simulated[1:] {
		require.Equal(t, shape(recorded[i+1]), shape(line))
	}
	require.Equal(t, recorded[1:8], simulated[1:8], "the head")
	require.Equal(t, recorded[12:], simulated[12:], "no process")
}

// newSMI lays the program and its state out for one H200 and returns how to run it.
func newSMI(t *testing.T) (state string, run func(args ...string) (string, int)) {
	t.Helper()
	dir := t.TempDir()
	state = filepath.Join(dir, "state")
	program := filepath.Join(dir, "bin", "nvidia-smi")
	require.NoError(t, os.Mkdir(filepath.Dir(program), 0o700))
	require.NoError(t, os.MkdirAll(filepath.Join(state, "faults"), 0o700))
	raw, err := os.ReadFile("tools/nvidia-smi")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(program, raw, 0o600))
	s := simhw.Spec{GPUs: 1, GPUModel: "NVIDIA H200"}
	for name, content := range map[string]string{gpuState: string(nvidiaXML(s, Faults{})), gpuQueryState: nvidiaQuery(s, Faults{}), gpuTableState: nvidiaTable(s, Faults{})} {
		require.NoError(t, os.WriteFile(filepath.Join(state, name), []byte(content), 0o600))
	}
	return state, func(args ...string) (string, int) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "/bin/sh", append([]string{program}, args...)...)
		out, err := cmd.CombinedOutput()
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
			require.NoError(t, err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
}

func TestNvidiaSMI_Query(t *testing.T) {
	t.Parallel()
	_, run := newSMI(t)
	for _, c := range []struct {
		args []string
		want string
		rc   int
	}{
		{[]string{"--query-gpu=index,name,memory.total,mig.mode.current", "--format=csv,noheader,nounits"}, "0, NVIDIA H200, 143771, Disabled\n", 0},
		{[]string{"--query-gpu=index,name"}, "index, name\n0, NVIDIA H200\n", 0},
		{[]string{"--query-gpu=gpu_name,gpu_bus_id", "--format=csv"}, "name, pci.bus_id\nNVIDIA H200, 00000000:19:00.0\n", 0},
		{[]string{"--query-gpu=memory.reserved,power.limit", "--format=csv"}, "memory.reserved [MiB], power.limit [W]\n616 MiB, 700.00 W\n", 0},
		{[]string{"--query-gpu=nosuchfield", "--format=csv"}, "Field \"nosuchfield\" is not a valid field to query.\n\n", 2},
	} {
		out, rc := run(c.args...)
		require.Equal(t, c.rc, rc, out)
		require.Equal(t, c.want, out)
	}
	out, rc := run("--query-gpu=gpu_uuid")
	require.Zero(t, rc)
	require.Regexp(t, `^uuid\nGPU-[0-9a-f-]{36}\n$`, out)
}

func TestNvidiaSMI_Faults(t *testing.T) {
	t.Parallel()
	state, run := newSMI(t)
	plain, rc := run()
	require.Zero(t, rc)
	require.Equal(t, nvidiaTable(simhw.Spec{GPUs: 1, GPUModel: "NVIDIA H200"}, Faults{}), plain)
	for _, name := range []string{"gpu-mig", "faults/gpu_process"} {
		require.NoError(t, os.WriteFile(filepath.Join(state, name), nil, 0o600))
	}
	table, rc := run()
	require.Zero(t, rc)
	for _, line := range strings.Split(table, "\n")[1:] {
		require.Contains(t, []int{0, 91}, len(line), line)
	}
	require.Contains(t, table, "|    0   N/A  N/A            4711      C   python3                                 512MiB |\n")
	require.Contains(t, table, "|                                         |                        |              Enabled |\n")
	require.NotContains(t, table, "Disabled")
	report, rc := run("-q", "-x")
	require.Zero(t, rc)
	for _, text := range []string{"<current_mig>Enabled</current_mig>", "<pid>4711</pid>", "<remapped_row_pending>N/A<"} {
		require.Contains(t, report, text)
	}
	query, rc := run("--query-gpu=mig.mode.current")
	require.Zero(t, rc)
	require.Equal(t, "mig.mode.current\nEnabled\n", query)
}
