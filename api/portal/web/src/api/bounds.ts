// Written by make generate. Do not edit.

/** Bound is what the API takes in a field. */
export interface Bound {
  type: string;
  maxLength?: number;
  min?: number;
  max?: number;
  maxItems?: number;
}

/** bounds are those of the fields of requests, by their path. An item of a list is named 0. */
export const bounds = {
  InstallWorkflowRequest: {
    "name": {"type":"string","maxLength":100},
    "spec.agent.allow_overwrite": {"type":"boolean"},
    "spec.agent.binary_sha256": {"type":"string","maxLength":64},
    "spec.agent.binary_url": {"type":"string","maxLength":1024},
    "spec.agent.heartbeat_seconds": {"type":"integer","min":0,"max":30},
    "spec.agent.platform_users": {"type":"array","maxItems":16},
    "spec.agent.simulated": {"type":"boolean"},
    "spec.agent.update_key": {"type":"string","maxLength":64},
    "spec.command_line": {"type":"string","maxLength":2048},
    "spec.deadline_minutes": {"type":"integer","min":0,"max":1440},
    "spec.initrds.0.sha256": {"type":"string","maxLength":64},
    "spec.initrds.0.url": {"type":"string","maxLength":1024},
    "spec.kernel.sha256": {"type":"string","maxLength":64},
    "spec.kernel.url": {"type":"string","maxLength":1024},
    "spec.user_data": {"type":"string","maxLength":32768},
  },
  ProfileRequest: {
    "name": {"type":"string","maxLength":100},
    "spec.agent_binary_sha256": {"type":"string","maxLength":64},
    "spec.agent_binary_url": {"type":"string","maxLength":1024},
    "spec.agent_heartbeat_interval": {"type":"string","maxLength":32},
    "spec.agent_update_key": {"type":"string","maxLength":64},
    "spec.agent_url": {"type":"string","maxLength":500},
    "spec.architecture": {"type":"string","maxLength":100},
    "spec.auto_claim_single_new_machine": {"type":"boolean"},
    "spec.batch_max_parallel": {"type":"integer","min":0,"max":500},
    "spec.boot_disk.max_bytes": {"type":"integer","min":0,"max":1000000000000000},
    "spec.boot_disk.min_bytes": {"type":"integer","min":0,"max":1000000000000000},
    "spec.boot_disk.model_contains": {"type":"string","maxLength":100},
    "spec.distro_series": {"type":"string","maxLength":100},
    "spec.enable_deploy_retry_on_datasource_failure": {"type":"boolean"},
    "spec.enable_phase2_roce": {"type":"boolean"},
    "spec.enrollment_token_ttl_seconds": {"type":"integer","min":0,"max":86400},
    "spec.hardware_sync_interval": {"type":"string","maxLength":32},
    "spec.hwe_kernel": {"type":"string","maxLength":100},
    "spec.max_deploy_retry_attempts": {"type":"integer","min":0,"max":10},
    "spec.poll_interval": {"type":"string","maxLength":32},
    "spec.power_type": {"type":"string","maxLength":20},
    "spec.protect_serials": {"type":"array","maxItems":64},
    "spec.release_fallback_no_erase": {"type":"boolean"},
    "spec.require_hw_sync": {"type":"boolean"},
    "spec.scrub_allow_overwrite": {"type":"boolean"},
    "spec.site_bootstrap_bundle_ref": {"type":"string","maxLength":210},
    "spec.stage_deadlines": {"type":"object"},
    "spec.storage_layout": {"type":"string","maxLength":100},
    "spec.strict_pxe_preflight": {"type":"boolean"},
  },
  SKURequest: {
    "name": {"type":"string","maxLength":100},
    "spec.data_disks": {"type":"integer","min":0,"max":1024},
    "spec.driver_min_version": {"type":"string","maxLength":64},
    "spec.gpu_memory_mib": {"type":"integer","min":0,"max":16777216},
    "spec.gpu_model_contains": {"type":"string","maxLength":100},
    "spec.gpus": {"type":"integer","min":0,"max":256},
    "spec.max_uncorrected_ecc": {"type":"integer","min":0,"max":1000000},
    "spec.min_memory_mib": {"type":"integer","min":0,"max":1073741824},
    "spec.nics_up": {"type":"integer","min":0,"max":1024},
    "spec.protect_serials": {"type":"array","maxItems":64},
    "spec.require_ecc": {"type":"boolean"},
  },
  SiteRequest: {
    "name": {"type":"string","maxLength":100},
    "spec.bmc_ca_pem": {"type":"string","maxLength":65536},
    "spec.bmc_networks": {"type":"array","maxItems":100},
    "spec.default_domain": {"type":"string","maxLength":253},
    "spec.maas_api_key_ref": {"type":"string","maxLength":210},
    "spec.maas_ca_pem": {"type":"string","maxLength":65536},
    "spec.maas_plain_http": {"type":"boolean"},
    "spec.maas_url": {"type":"string","maxLength":500},
    "spec.node_networks": {"type":"array","maxItems":100},
    "spec.pool": {"type":"string","maxLength":100},
    "spec.region": {"type":"string","maxLength":100},
    "spec.simulated": {"type":"boolean"},
    "spec.ssh_key_ref": {"type":"string","maxLength":210},
    "spec.ssh_port": {"type":"integer","min":0,"max":65535},
    "spec.ssh_user": {"type":"string","maxLength":32},
    "spec.trust_first_bmc_pin": {"type":"boolean"},
    "spec.zone": {"type":"string","maxLength":100},
  },
} satisfies Record<string, Record<string, Bound>>;
