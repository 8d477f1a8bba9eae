package toolrunner

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const repository = "../.."

// table returns the rows of the table below a heading of docs/scrub.md, by the text in their first
// column. The columns after it must not be empty.
func table(t *testing.T, heading string) map[string][]string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(repository, "docs/scrub.md"))
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(raw), "\n### "+heading+"\n")
	require.True(t, ok, "docs/scrub.md has no heading %q", heading)
	rest, _, _ = strings.Cut(rest, "\n#")
	rows := map[string][]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|(.+)\\|$").FindAllStringSubmatch(rest, -1) {
		for _, cell := range strings.Split(m[2], "|") {
			require.NotEmpty(t, strings.TrimSpace(cell), m[1])
			rows[m[1]] = append(rows[m[1]], strings.TrimSpace(cell))
		}
	}
	return rows
}

func TestCommands_DestructiveOnesAreDocumented(t *testing.T) {
	t.Parallel()
	want := map[string][]string{}
	for _, c := range Commands() {
		require.Equal(t, c.Destroys == "", c.Guard == "", "%s", c)
		if c.Destroys != "" {
			want[c.String()] = []string{c.Destroys, string(c.Guard)}
		}
	}
	require.Equal(t, want, table(t, "Commands that destroy data"))
}

// changesFiles reports whether a call removes or overwrites a file or a device, or may.
func changesFiles(call *ast.CallExpr) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	pkg, _ := sel.X.(*ast.Ident)
	switch sel.Sel.Name {
	case "RemoveAll", "Remove", "WriteFile", "Create", "Truncate", "Rename", "Unlink", "Unlinkat", "WriteAt", "Lchown", "Pwrite":
		return pkg == nil || pkg.Name != "steps"
	case "Replace", "ReplaceLike":
		return pkg != nil && pkg.Name == "atomicfile"
	case "Syscall", "Syscall6", "RawSyscall", "IoctlSetInt":
		return true
	case "OpenFile":
		readOnly := false
		for _, arg := range call.Args {
			ast.Inspect(arg, func(n ast.Node) bool {
				id, ok := n.(*ast.Ident)
				readOnly = readOnly || ok && id.Name == "O_RDONLY"
				return true
			})
		}
		return !readOnly
	}
	return false
}

// changesTenantData reports whether the functions of a package may change what is not the agent's own.
func changesTenantData(pkg string) bool { return pkg == "agent/scrub" || pkg == "agent/taskhandlers" }

// Each function of the agent that removes or overwrites files or devices is in docs/scrub.md. Packages
// that change the agent's own files only are there as a whole.
func TestFileChanges_AreDocumented(t *testing.T) {
	t.Parallel()
	var found []string
	for _, dir := range []string{"agent", "cmd/slipway-agent", "cmd/slipway-gpu-pattern"} {
		err := filepath.WalkDir(filepath.Join(repository, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "blockdev/sysfs/") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(repository, filepath.Dir(path))
			for _, decl := range file.Decls {
				f, ok := decl.(*ast.FuncDecl)
				if !ok {
					continue
				}
				ast.Inspect(f, func(n ast.Node) bool {
					if call, ok := n.(*ast.CallExpr); ok && changesFiles(call) {
						name := filepath.ToSlash(rel)
						if changesTenantData(name) {
							name += " " + f.Name.Name
						}
						found = append(found, name)
					}
					return true
				})
			}
			return err
		})
		require.NoError(t, err)
	}
	slices.Sort(found)
	found = slices.Compact(found)
	var documented []string
	for row := range table(t, "Files and devices that the agent changes itself") {
		documented = append(documented, row)
	}
	slices.Sort(documented)
	require.Equal(t, found, documented)
}

func TestCheck(t *testing.T) {
	t.Parallel()
	drive := Permit(t.Context(), GuardDrive, "/dev/sdb")
	require.NoError(t, Check(t.Context(), "nvme", "id-ctrl", "/dev/nvme0", "-o", "json"))
	require.NoError(t, Check(drive, "blkdiscard", "-f", "--zeroout", "/dev/sdb"))
	require.NoError(t, Check(Permit(t.Context(), GuardStorage), "docker", "rm", "-f", "-v", "c0ffee"))

	for _, line := range []string{"mkfs.ext4 /dev/sdb", "dd of=/dev/sdb", "wipefs -a /dev/sdb", "nvme write-zeroes /dev/nvme0n1", "nvme delete-ns /dev/nvme0",
		"hdparm --trim-sector-ranges 0:8 /dev/sdb", "blkdiscard /dev/sdb", "docker volume rm x", "ctr content prune", "systemctl mask x", "sh -c true"} {
		f := strings.Fields(line)
		require.ErrorIs(t, Check(drive, f[0], f[1:]...), errUnlisted, line)
	}
	for _, line := range []string{"blkdiscard -f --zeroout /dev/sdb", "nvme sanitize /dev/nvme0 --sanact=2", "userdel -f -r -- t", "nvidia-smi --gpu-reset"} {
		f := strings.Fields(line)
		require.ErrorIs(t, Check(t.Context(), f[0], f[1:]...), errUnguarded, line)
	}
	require.ErrorIs(t, Check(drive, "blkdiscard", "-f", "/dev/sdc"), errUnguarded, "another drive")
	require.ErrorIs(t, Check(drive, "userdel", "-f", "-r", "--", "t"), errUnguarded, "another guard")
	require.ErrorIs(t, Check(Permit(drive, GuardStorage), "blkdiscard", "-f", "/dev/sdb"), errUnguarded)
	require.ErrorIs(t, Check(t.Context(), "blkdiscard", "--version", "-f", "/dev/sdb"), errUnguarded, "what destroys counts")
}

func TestRun_RefusesBeforeItStarts(t *testing.T) {
	r := newRunner(t, "touch ran")
	r.Commands = nil
	_, err := r.Run(t.Context(), "tool")
	require.ErrorIs(t, err, errUnlisted)
	writeProgram(t, r.Tools, "blkdiscard", "touch ran")
	_, err = r.Run(t.Context(), "blkdiscard", "-f", "/dev/sdb")
	require.ErrorIs(t, err, errUnguarded)
	require.NoFileExists(t, filepath.Join(r.Root, "ran"))
	_, err = r.Run(Permit(t.Context(), GuardDrive, "/dev/sdb"), "blkdiscard", "-f", "/dev/sdb")
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(r.Root, "ran"))
}
