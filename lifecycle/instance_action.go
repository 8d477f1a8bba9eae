package lifecycle

// The action types of instances, as the action log names them. Each is that of a stage of a job,
// but for the last two, which follow a failed startup and a server that somebody deleted at the
// provider.
const (
	ActRequestCreate        = "REQUEST_CREATE"
	ActExecuteCreate        = "EXECUTE_CREATE"
	ActProviderCreate       = "PROVIDER_CREATE"
	ActPersistProviderID    = "PERSIST_PROVIDER_ID"
	ActProviderCreateVolume = "PROVIDER_CREATE_VOLUME"
	ActProviderVolumeResize = "PROVIDER_VOLUME_RESIZE"
	ActProviderStart        = "PROVIDER_START"
	ActProviderGetIP        = "PROVIDER_GET_IP"
	ActProviderGroup        = "PROVIDER_SECURITY_GROUP"
	ActWorkerSSHAccessible  = "WORKER_SSH_ACCESSIBLE"
	ActInstanceCreated      = "INSTANCE_CREATED"
	ActWorkerSSHInstall     = "WORKER_SSH_INSTALL"
	ActWorkerVLLMHTTPOK     = "WORKER_VLLM_HTTP_OK"
	ActWorkerModelLoaded    = "WORKER_MODEL_LOADED"
	ActWorkerVLLMWarmup     = "WORKER_VLLM_WARMUP"
	ActHealthCheck          = "HEALTH_CHECK"
	ActInstanceReady        = "INSTANCE_READY"
	ActRequestTerminate     = "REQUEST_TERMINATE"
	ActProviderStop         = "PROVIDER_STOP"
	ActProviderDeleteVolume = "PROVIDER_DELETE_VOLUME"
	ActProviderDelete       = "PROVIDER_DELETE"
	ActInstanceTerminated   = "INSTANCE_TERMINATED"

	ActInstanceStartupFailed  = "INSTANCE_STARTUP_FAILED"
	ActProviderDeletedByOther = "PROVIDER_DELETED_DETECTED"
)

// InstanceActionTypes lists the action types of instances.
func InstanceActionTypes() []string {
	return []string{
		ActRequestCreate, ActExecuteCreate, ActProviderCreate, ActPersistProviderID, ActProviderCreateVolume, ActProviderVolumeResize, ActProviderStart,
		ActProviderGetIP, ActProviderGroup, ActWorkerSSHAccessible, ActInstanceCreated, ActWorkerSSHInstall, ActWorkerVLLMHTTPOK, ActWorkerModelLoaded,
		ActWorkerVLLMWarmup, ActHealthCheck, ActInstanceReady, ActRequestTerminate, ActProviderStop, ActProviderDeleteVolume, ActProviderDelete,
		ActInstanceTerminated, ActInstanceStartupFailed, ActProviderDeletedByOther,
	}
}

// InstanceStep is a stage of a job of an instance: its action type, and what progress_percent of
// the instance is when the stage is done. 0 declares none.
type InstanceStep struct {
	Stage, ActionType string
	Percent           int
}

// The stages of the job that makes an instance.
const (
	StageAcceptCreate    = "accept_request"
	StageCheckProvider   = "check_provider"
	StageCreateServer    = "create_server"
	StagePersistServer   = "persist_provider_id"
	StageClaimVolume     = "claim_volume"
	StageResizeVolume    = "resize_volume"
	StageServerCreated   = "server_created"
	StageStartServer     = "start_server"
	StageGetAddress      = "get_address"
	StageVerifyGroup     = "verify_security_group"
	StageWaitSSH         = "wait_for_ssh"
	StageInstallWorker   = "install_worker"
	StageWaitHTTP        = "wait_for_vllm"
	StageWaitModel       = "wait_for_model"
	StageWarmUp          = "warm_up_model"
	StageCheckHealth     = "check_health"
	StageInstanceReady   = "become_ready"
	StageAcceptTerminate = "accept_termination"
	StageDrainInstance   = "drain"
	StageStopServer      = "stop_server"
	StageDeleteServer    = "delete_server"
	StageDeleteVolumes   = "delete_volumes"
	StageProveDeleted    = "prove_deleted"
)

// InstanceCreateSteps lists the stages of the job that makes an instance, in order.
func InstanceCreateSteps() []InstanceStep {
	return []InstanceStep{
		{StageAcceptCreate, ActRequestCreate, 5},
		{StageCheckProvider, ActExecuteCreate, 0},
		{StageCreateServer, ActProviderCreate, 20},
		{StagePersistServer, ActPersistProviderID, 0},
		{StageClaimVolume, ActProviderCreateVolume, 0},
		{StageResizeVolume, ActProviderVolumeResize, 25},
		{StageServerCreated, ActInstanceCreated, 25},
		{StageStartServer, ActProviderStart, 30},
		{StageGetAddress, ActProviderGetIP, 40},
		{StageVerifyGroup, ActProviderGroup, 45},
		{StageWaitSSH, ActWorkerSSHAccessible, 50},
		{StageInstallWorker, ActWorkerSSHInstall, 60},
		{StageWaitHTTP, ActWorkerVLLMHTTPOK, 70},
		{StageWaitModel, ActWorkerModelLoaded, 80},
		{StageWarmUp, ActWorkerVLLMWarmup, 90},
		{StageCheckHealth, ActHealthCheck, 95},
		{StageInstanceReady, ActInstanceReady, 100},
	}
}

// InstanceTerminateSteps lists the stages of the job that terminates an instance, in order. The
// volumes go after the server: a provider detaches them when it deletes that, and does not delete
// them.
func InstanceTerminateSteps() []InstanceStep {
	return []InstanceStep{
		{StageAcceptTerminate, ActRequestTerminate, 0},
		{StageDrainInstance, "", 0},
		{StageStopServer, ActProviderStop, 0},
		{StageDeleteServer, ActProviderDelete, 0},
		{StageDeleteVolumes, ActProviderDeleteVolume, 0},
		{StageProveDeleted, ActInstanceTerminated, 0},
	}
}

// InstanceCreateStages lists the names of the stages of the job that makes an instance.
func InstanceCreateStages() []string { return stageNames(InstanceCreateSteps()) }

// InstanceTerminateStages lists the names of the stages of the job that terminates an instance.
func InstanceTerminateStages() []string { return stageNames(InstanceTerminateSteps()) }

func stageNames(steps []InstanceStep) []string {
	out := make([]string, len(steps))
	for i, s := range steps {
		out[i] = s.Stage
	}
	return out
}

// WorkerPhases lists the phases of the installation of a worker, in order.
func WorkerPhases() []string { return []string{"start", "docker_install", "vllm_start", "done"} }
