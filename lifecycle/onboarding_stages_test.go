package lifecycle_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle"
)

// TestOnboardingStages_HaveTheirNames: operators, histories and dashboards know the stages by these
// names.
func TestOnboardingStages_HaveTheirNames(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{
		"load_site_config", "resolve_power_credentials", "create_or_find_in_maas", "commission_node", "wait_for_ready", "configure_storage", "apply_roce_phase2",
		"ensure_pxe_interface_auto", "render_cloud_init", "deploy_via_maas", "wait_for_deployed", "classify_deploy_failure", "recover_for_datasource_retry",
		"ensure_hardware_sync_configured", "wait_for_hardware_sync_healthy", "wait_for_agent_enrollment",
	}, lifecycle.OnboardingStages())
}
