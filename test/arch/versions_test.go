package arch

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// required finds the modules that a go.mod requires, with their versions.
var required = regexp.MustCompile(`(?m)^(?:\t|require )(\S+) (v\S+)(?: // indirect)?$`)

// replaced finds the modules that a go.mod replaces. That go.mod says why.
var replaced = regexp.MustCompile(`(?m)^(?:\t|replace )(\S+) => `)

// newerInDev are modules of which the Temporal server needs a newer version than the product has.
var newerInDev = []string{"github.com/grpc-ecosystem/go-grpc-middleware/v2", "github.com/mattn/go-colorable"}

// A module that the product and the Temporal server link in one version is compiled once for both.
// On a fresh machine the test command would otherwise compile gRPC and the Temporal API twice.
func TestVersions_OfTheTemporalServerAreTheProducts(t *testing.T) {
	t.Parallel()
	versions := func(path string) map[string]string {
		text, err := os.ReadFile(filepath.Join(root, path))
		require.NoError(t, err)
		found := map[string]string{}
		for _, match := range required.FindAllStringSubmatch(string(text), -1) {
			found[match[1]] = match[2]
		}
		for _, match := range replaced.FindAllStringSubmatch(string(text), -1) {
			delete(found, match[1])
		}
		require.NotEmpty(t, found)
		return found
	}
	product, dev := versions("go.mod"), versions("dev/go.mod")
	var differ, get []string
	for _, module := range slices.Sorted(maps.Keys(dev)) {
		if version, shared := product[module]; shared && version != dev[module] {
			differ, get = append(differ, module), append(get, module+"@"+version)
		}
	}
	require.Equal(t, newerInDev, differ, "run go -C dev get %s and go -C dev mod tidy", strings.Join(get, " "))
}
