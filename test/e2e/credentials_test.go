package e2e_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/maas"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
)

// credentials are what an installation leaves on the disk of a node.
type credentials struct {
	maasKey string // consumer:token:secret
	texts   []string
}

const (
	machineKeyFile = "/etc/maas/maas-machine-creds.yml"
	userDataFile   = "/var/lib/cloud/instance/user-data.txt"
)

// credentialsOf collects them as root of the node can, before there is a tenant.
func (w *world) credentialsOf(t *testing.T, m *simhw.Machine) credentials {
	t.Helper()
	root := w.Sims.Nodes[m.Spec().ID].Root()
	raw, err := os.ReadFile(filepath.Join(root, machineKeyFile))
	require.NoError(t, err)
	var doc struct {
		Reporting struct {
			MAAS struct {
				Consumer string `yaml:"consumer_key"`
				Token    string `yaml:"token_key"`
				Secret   string `yaml:"token_secret"`
			} `yaml:"maas"`
		} `yaml:"reporting"`
	}
	require.NoError(t, yaml.Unmarshal(raw, &doc))
	key := doc.Reporting.MAAS
	require.NotEmpty(t, key.Secret)
	user, err := os.ReadFile(filepath.Join(root, userDataFile))
	require.NoError(t, err)
	require.NotEmpty(t, user)
	out := credentials{maasKey: strings.Join([]string{key.Consumer, key.Token, key.Secret}, ":"), texts: []string{key.Secret, string(user)}}
	require.NotEmpty(t, filesWith(t, root, out.texts), "they are on the disk before a tenant comes")
	return out
}

// filesWith lists the files below a directory that hold one of the texts.
func filesWith(t *testing.T, root string, texts []string) []string {
	t.Helper()
	var out []string
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil //nolint:nilerr // a file that has just gone holds nothing
		}
		raw, err := os.ReadFile(path)
		for _, text := range texts {
			if err == nil && strings.Contains(string(raw), text) {
				out = append(out, strings.TrimPrefix(path, root))
			}
		}
		return nil
	}))
	return out
}

// requireWorthless looks for the credentials of the installation where root of the node would, and
// tries the key for MAAS.
func (w *world) requireWorthless(t *testing.T, m *simhw.Machine, c credentials) {
	t.Helper()
	require.Empty(t, filesWith(t, w.Sims.Nodes[m.Spec().ID].Root(), c.texts), "nothing of it is on the disk any more")
	region, err := maas.Opener{}.OpenMAAS(providers.MAASSite{Rule: providers.SimulatedAddresses(), URL: w.Sims.URL, APIKey: providers.NewSecret(c.maasKey)})
	require.NoError(t, err)
	_, err = region.FindMachines(t.Context(), providers.MAASQuery{Hostname: "any"})
	require.True(t, providers.IsKind(err, providers.KindUnauthorized), "%v", err)
}

// marked returns the allocation that MAAS has a node's machine marked for.
func (w *world) marked(t *testing.T, nodeID string) string {
	t.Helper()
	region, err := maas.Opener{}.OpenMAAS(providers.MAASSite{Rule: providers.SimulatedAddresses(), URL: w.Sims.URL, APIKey: providers.NewSecret(w.Sims.APIKey)})
	require.NoError(t, err)
	got, err := region.Machine(t.Context(), *w.node(t, nodeID).MAASSystemID)
	require.NoError(t, err)
	return got.Annotations[lifecycle.MAASAllocationMark]
}

// bmcPassword returns the reference of the password of a node's BMC: each password has its own.
func (w *world) bmcPassword(t *testing.T, nodeID string) string {
	t.Helper()
	b, err := w.App.Store.BMCOfNode(t.Context(), nodeID)
	require.NoError(t, err)
	return b.CredentialRef
}
