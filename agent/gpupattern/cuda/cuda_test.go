package cuda

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/gpupattern"
)

// library builds the driver library that needs no GPU.
func library(t *testing.T, flags ...string) string {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler: the calls of the driver library are not tried on this machine")
	}
	out := filepath.Join(t.TempDir(), "libcuda.so.1")
	said, err := exec.CommandContext(t.Context(), cc, append([]string{"-shared", "-fPIC", "-O2", "-o", out, "testdata/fakecuda.c"}, flags...)...).CombinedOutput()
	require.NoError(t, err, string(said))
	return out
}

func TestTheCallsOfTheDriverLibrary(t *testing.T) {
	t.Parallel()
	l, err := open(library(t))
	require.NoError(t, err)
	for range 2 { // what was given back can be taken again
		r, err := gpupattern.Run(l, gpupattern.Check, "v1")
		require.NoError(t, err)
		require.Len(t, r.GPUs, 1)
		g := r.GPUs[0]
		require.Empty(t, g.Error)
		require.Equal(t, "GPU-01020304-0506-0708-090a-0b0c0d0e0f10", g.UUID)
		require.EqualValues(t, 24<<20, g.Total)
		require.EqualValues(t, 24<<20, g.Checked)
		require.False(t, *g.Residue)
		require.True(t, *g.Match)
	}
	s, err := l.Open(0)
	require.NoError(t, err)
	_, err = s.Take(25 << 20)
	require.ErrorIs(t, err, gpupattern.ErrNoMemory)
	_, err = s.Read(make([]byte, 16), gpupattern.Block{Address: 4096, Bytes: 16}, 0)
	require.EqualError(t, err, "cuMemcpyDtoH: CUDA_ERROR_INVALID_CONTEXT (201)")
	require.NoError(t, s.Close())
	_, err = l.Open(1)
	require.ErrorContains(t, err, "cuDeviceGet")
}

func TestADriverThatIsNotThere(t *testing.T) {
	_, err := open(filepath.Join(t.TempDir(), "libcuda.so.1"))
	require.ErrorContains(t, err, "install the NVIDIA driver")
	old := filepath.Join(t.TempDir(), "old.c")
	require.NoError(t, os.WriteFile(old, []byte("int cuInit(unsigned f) { return 0; }\n"), 0o600))
	_, err = open(library(t, "-DcuCtxSynchronize=cuOther"))
	require.ErrorContains(t, err, "has no function cuCtxSynchronize")
	t.Setenv("FAKE_NO_DEVICE", "1")
	t.Setenv("CUDA_VISIBLE_DEVICES", "0")
	_, err = Open()
	require.ErrorContains(t, err, "unset it")
}
