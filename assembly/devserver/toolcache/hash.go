package toolcache

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Hash returns the SHA-256 of label and of the files at the paths, which are relative to root. It
// reads a folder with all that is below it, except hidden files and folders with other modules. The
// result depends on names and contents, not on the order of paths.
func Hash(root, label string, paths ...string) (string, error) {
	return hash(root, label, func(string) bool { return true }, paths...)
}

func hash(root, label string, keep func(name string) bool, paths ...string) (string, error) {
	var files []string
	for _, path := range paths {
		top := filepath.Join(root, path)
		err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case path != top && d.IsDir() && isOther(path, d.Name()):
				return filepath.SkipDir
			case d.Type().IsRegular() && !strings.HasPrefix(d.Name(), ".") && keep(d.Name()):
				files = append(files, path)
			}
			return nil
		})
		if err != nil {
			return "", fmt.Errorf("list the files to hash: %w", err)
		}
	}
	slices.Sort(files)
	sum := sha256.New()
	_, _ = fmt.Fprintf(sum, "%q\n", label)
	for _, path := range slices.Compact(files) {
		content, err := os.ReadFile(path)
		if err != nil {
			return "", fmt.Errorf("read a file to hash: %w", err)
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return "", err
		}
		_, _ = fmt.Fprintf(sum, "%q %d\n", filepath.ToSlash(name), len(content))
		_, _ = sum.Write(content)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// isOther reports whether the folder is no part of the module around it.
func isOther(path, name string) bool {
	return strings.HasPrefix(name, ".") || name == "node_modules" || isFile(filepath.Join(path, "go.mod"))
}

// hash covers all that the program is made of: the files and pinned versions of its module, the
// folders that replace other modules, the compiler, its settings and what is built.
func (t Tool) hash(root string) (string, error) {
	label := fmt.Sprintln(t.Name, t.Package, runtime.Version(), runtime.GOOS, runtime.GOARCH, buildFlags(), settings(os.Getenv))
	replaced, err := replacements(root, t.Module)
	if err != nil {
		return "", err
	}
	return hash(root, label, isSource, append(replaced, t.Module)...)
}

// replacements returns the folders that the go.mod of the module names in place of other modules,
// relative to root.
func replacements(root, module string) (folders []string, err error) {
	text, err := os.ReadFile(filepath.Join(root, module, "go.mod"))
	if err != nil {
		return nil, fmt.Errorf("read the versions of a tool: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if _, folder, ok := strings.Cut(strings.TrimSpace(line), "=> ."); ok {
			folders = append(folders, filepath.Join(module, "."+folder))
		}
	}
	return folders, nil
}

// settings returns what the environment changes in a program. `go env -w` can change the same, and
// is not asked: that needs the Go toolchain, and a program that is in the cache does not.
func settings(getenv func(string) string) (out []string) {
	for _, name := range []string{"CGO_ENABLED", "GOEXPERIMENT", "GOAMD64", "GOARM64", "GOTOOLCHAIN"} {
		out = append(out, name+"="+getenv(name))
	}
	changes := []string{
		"asan", "asmflags", "buildmode", "compiler", "cover", "covermode", "coverpkg", "gccgoflags", "gcflags", "linkshared", "mod",
		"modfile", "msan", "overlay", "pgo", "race", "tags",
	}
	for _, flag := range strings.Fields(getenv("GOFLAGS")) {
		name, _, _ := strings.Cut(strings.TrimLeft(flag, "'\"-"), "=")
		if slices.Contains(changes, name) {
			out = append(out, flag)
		}
	}
	return out
}

// isSource reports whether a file may be part of a program. An embedded one has any name.
func isSource(name string) bool {
	return !strings.HasSuffix(name, "_test.go") && !strings.HasSuffix(name, ".md")
}

// Sources returns the Go files, tests aside, of the packages that the patterns name and of all
// packages of the checkout that these import, and go.mod and go.sum, relative to root. They are the
// paths to Hash for a check that reads no more than these.
func Sources(ctx context.Context, root string, patterns ...string) ([]string, error) {
	const format = `{{if .Module}}{{if .Module.Main}}{{range .GoFiles}}{{$.Module.Path}} {{$.ImportPath}}/{{.}}{{"\n"}}{{end}}{{end}}{{end}}`
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-deps", "-f", format}, patterns...)...)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the sources of %v: %w", patterns, err)
	}
	paths := []string{"go.mod", "go.sum"}
	for line := range strings.Lines(string(out)) {
		if module, file, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			paths = append(paths, strings.TrimPrefix(file, module+"/"))
		}
	}
	return paths, nil
}
