package pg

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRootRunsTheServerAsSomebodyElse(t *testing.T) {
	t.Parallel()
	srv, err := Start(t.Context(), Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, srv.Stop()) }()
	info, err := os.Stat(srv.cluster.data())
	require.NoError(t, err)
	owner := info.Sys().(*syscall.Stat_t).Uid
	switch {
	case os.Geteuid() != 0:
		require.EqualValues(t, os.Geteuid(), owner)
	case srv.cluster.who.namespace:
		require.Zero(t, owner)
	default:
		require.Equal(t, srv.cluster.who.credential.Uid, owner)
		require.NotZero(t, owner)
	}
}

// In a checkout under /root no other user can reach the data: then only a user namespace helps,
// where the machine allows one.
func TestAClosedFolderNeedsAUserNamespace(t *testing.T) {
	t.Parallel()
	closed := filepath.Join(t.TempDir(), "closed")
	require.NoError(t, os.Mkdir(closed, 0o700))
	srv, err := Start(t.Context(), Options{Dir: filepath.Join(closed, "pg")})
	if os.Geteuid() == 0 && (identity{namespace: true}).try(t.Context()) != nil {
		require.ErrorContains(t, err, "refuses to run as root")
		require.ErrorContains(t, err, closed)
		return
	}
	require.NoError(t, err)
	require.Equal(t, os.Geteuid() == 0, srv.cluster.who.namespace)
	require.NoError(t, srv.Stop())

	again, err := Start(t.Context(), Options{Dir: filepath.Join(closed, "pg")})
	require.NoError(t, err, "the owner of existing data is kept")
	require.NoError(t, again.Stop())
}

func TestAnotherUserMustBeAbleToWalkDown(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o700))
	const otherUID = 4242
	require.ErrorContains(t, reachable(filepath.Join(dir, "not", "yet"), otherUID), dir)
	require.NoError(t, reachable(filepath.Join("/", "usr", "bin"), otherUID))
}

// The whole package again as an ordinary user, when we are root and can become one.
func TestAnOrdinaryUserNeedsNothing(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		return // then every other test of this package shows it
	}
	dir, err := os.MkdirTemp("", "slipway-pg-user-")
	require.NoError(t, err)
	defer func() { require.NoError(t, os.RemoveAll(dir)) }()
	const nobody = 65534
	bin, err := FindBinaries(t.Context())
	require.NoError(t, err)
	if reachable(bin.Dir, nobody) != nil {
		return // PostgreSQL lies in a folder of root's: nobody could not run it by hand either
	}
	require.NoError(t, os.Chown(dir, nobody, nobody))
	// A child process writes the copy. Were it open for writing here, a process that another test
	// forks meanwhile would hold it open, and it could not be run: "text file busy".
	binary := filepath.Join(dir, "pg.test")
	copied, err := exec.CommandContext(t.Context(), "install", "-m", "755", os.Args[0], binary).CombinedOutput()
	require.NoError(t, err, string(copied))

	cmd := exec.CommandContext(t.Context(), binary, "-test.run=^TestATemporaryServerKeepsCommits", "-test.v")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TMPDIR="+dir, "HOME="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "--- PASS: TestATemporaryServer")
}
