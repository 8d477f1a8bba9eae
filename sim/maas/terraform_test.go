package maassim_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/assembly/devserver/toolcache"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// terraform is a working folder of Terraform with the MAAS provider that Canonical publishes.
type terraform struct {
	dir string
	env []string
}

func newTerraform(t *testing.T, region string) *terraform {
	t.Helper()
	if _, err := exec.LookPath("terraform"); err != nil {
		why := "terraform is not installed: Canonical's provider does not test the simulator"
		if os.Getenv("SLIPWAY_REQUIRE_PEERS") == "1" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	tool, err := toolcache.Find("terraform-provider-maas")
	require.NoError(t, err)
	provider, err := toolcache.Ensure(t.Context(), tool, os.Stderr)
	require.NoError(t, err)
	tf := &terraform{dir: t.TempDir()}
	tf.write(t, "cli.tfrc", fmt.Sprintf("provider_installation {\n  dev_overrides {\n    \"canonical/maas\" = %q\n  }\n  direct {}\n}\n", filepath.Dir(provider)))
	tf.env = append(os.Environ(), "CHECKPOINT_DISABLE=1", "TF_IN_AUTOMATION=1", "TF_INPUT=0", "TF_CLI_CONFIG_FILE="+filepath.Join(tf.dir, "cli.tfrc"),
		"MAAS_API_URL="+region, "MAAS_API_KEY="+apiKey)
	return tf
}

func (tf *terraform) write(t *testing.T, name, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(tf.dir, name), []byte(text), 0o600))
}

func (tf *terraform) run(t *testing.T, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), runenv.Patience(3*time.Minute))
	defer cancel()
	cmd := exec.CommandContext(ctx, "terraform", append([]string{"-chdir=" + tf.dir}, args...)...)
	cmd.Env = tf.env
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "terraform %v:\n%s", args, out)
}

// TestTerraform lets Canonical's provider for Terraform enlist a machine, deploy it, find nothing
// to change, release it, and delete it. The provider waits ten seconds before it first reads a
// status, and its build takes minutes, so this belongs to the long form.
func TestTerraform(t *testing.T) {
	t.Parallel()
	runenv.ProofOnly(t, "peers")
	r := newRegion(t.Context(), t, 600)
	addrs, stop, err := r.srv.Start(context.WithoutCancel(t.Context()), "127.0.0.1:0", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(stop)
	hw := r.fleet.All()[0]
	tf := newTerraform(t, addrs.URL())
	tf.write(t, "main.tf", fmt.Sprintf(`terraform {
  required_providers {
    maas = { source = "canonical/maas" }
  }
}
resource "maas_machine" "gpu" {
  hostname         = "gpu-1"
  power_type       = "redfish"
  pxe_mac_address  = %q
  power_parameters = {
    power_address = %q
    power_user    = "root"
    power_pass    = "bmc-pass-1"
  }
}
resource "maas_instance" "gpu" {
  allocate_params {
    hostname = maas_machine.gpu.hostname
  }
  deploy_params {
    distro_series = "jammy"
    user_data     = "#cloud-config\n"
  }
}
`, hw.Spec().NICs[0].MAC, hw.Spec().BMCAddress))

	tf.run(t, "apply", "-auto-approve")
	ids := r.ids()
	require.Len(t, ids, 1)
	require.Equal(t, "Deployed", r.statusName(t, ids[0]))
	require.NoError(t, hw.CheckBMC("root", "bmc-pass-1"), "commissioning makes a login of its own and leaves this one")
	tf.run(t, "plan", "-detailed-exitcode")

	tf.run(t, "destroy", "-auto-approve", "-target=maas_instance.gpu")
	require.Equal(t, "Ready", r.statusName(t, ids[0]), "the instance is released, its machine stays")
	tf.run(t, "destroy", "-auto-approve")
	require.Empty(t, r.ids())
	require.NoError(t, hw.CheckBMC("root", "bmc-pass-1"))
	require.Equal(t, simhw.Off, hw.Power())
}

func (r *region) statusName(t *testing.T, id string) string {
	t.Helper()
	code, body := r.ask(http.MethodGet, "machines/"+id+"/", url.Values{})
	require.Equal(t, http.StatusOK, code, "%s", body)
	return answer{body: body}.object(t)["status_name"].(string)
}
