package browser

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/assembly/devserver/toolcache"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// The accessibility checker. Its licence (MPL-2.0) lets it be used unmodified, so it is fetched and
// neither committed nor built into a program.
const (
	axePackage = "axe-core@4.14.1"
	axeArchive = "axe-core-4.14.1.tgz"
	axeSHA256  = "e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745"
	axeScript  = "package/axe.min.js"
	axeLimit   = 2 * time.Minute // for the download
	axeMost    = 16 << 20
)

// ReadAxe returns the script of the accessibility checker. It fetches the package with npm into the
// user's cache when the cache does not have it, and fails the test when it cannot.
func ReadAxe(t *testing.T) string {
	t.Helper()
	dir, err := toolcache.Folder("axe")
	require.NoError(t, err)
	file := filepath.Join(dir, axeArchive)
	script, err := openAxe(file)
	if errors.Is(err, os.ErrNotExist) {
		require.NoError(t, fetchAxe(t.Context(), dir), "the accessibility checker is neither in the cache nor can npm fetch it; with a network and npm run: npm pack %s --pack-destination %s", axePackage, dir)
		script, err = openAxe(file)
	}
	require.NoError(t, err)
	return script
}

// fetchAxe puts the package into dir as a whole or not at all.
func fetchAxe(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, runenv.Patience(axeLimit))
	defer cancel()
	temporary, err := os.MkdirTemp(dir, "fetch-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(temporary) }()
	out, err := exec.CommandContext(ctx, "npm", "pack", axePackage, "--ignore-scripts", "--pack-destination", temporary).CombinedOutput()
	if err != nil {
		return fmt.Errorf("npm pack: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return os.Rename(filepath.Join(temporary, axeArchive), filepath.Join(dir, axeArchive))
}

// openAxe returns the script of the archive when the archive is the one that is pinned.
func openAxe(file string) (string, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	if sum := sha256.Sum256(raw); hex.EncodeToString(sum[:]) != axeSHA256 {
		return "", fmt.Errorf("%s has the SHA-256 %x, not %s: remove it, and find out where it came from", file, sum, axeSHA256)
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return "", err
	}
	for archive := tar.NewReader(unzipped); ; {
		header, err := archive.Next()
		if err != nil {
			return "", fmt.Errorf("%s in %s: %w", axeScript, file, err)
		}
		if header.Name == axeScript {
			script, err := io.ReadAll(io.LimitReader(archive, axeMost))
			return string(script), err
		}
	}
}

// theme is where a style sheet says what is different in a colour scheme.
var theme = regexp.MustCompile(`prefers-color-scheme: *([a-z]+)`)

// Themes returns the colour schemes that a style sheet knows; one without any rule of its own is
// light.
func Themes(style string) []string {
	out := []string{"light"}
	for _, found := range theme.FindAllStringSubmatch(style, -1) {
		if !slices.Contains(out, found[1]) {
			out = append(out, found[1])
		}
	}
	return out
}

// UseTheme makes the page believe that the operator prefers a colour scheme, and no motion.
func (p *Page) UseTheme(theme string) {
	p.t.Helper()
	require.NoError(p.t, p.run(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: theme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	})))
}

// Violations runs the accessibility checker on the page. It returns a line for each element with a
// serious or critical finding.
func (p *Page) Violations(axe string) []string {
	p.t.Helper()
	var out []string
	require.NoError(p.t, p.run(chromedp.Evaluate(axe+";0", nil)))
	p.Evaluate(runAxe, &out)
	return out
}

const runAxe = `axe.run(document, { resultTypes: ["violations"] }).then((r) => r.violations
  .filter((v) => v.impact === "serious" || v.impact === "critical")
  .flatMap((v) => v.nodes.map((n) => [v.impact, v.id, n.target.join(" "), (n.any[0] ?? n.all[0] ?? n.none[0])?.message ?? v.help].join(" | "))))`
