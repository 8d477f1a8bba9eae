// Package iface has the part of the module's types that the Temporal server names.
package iface

import (
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
)

// ComputeProviderType names a cloud that would run workers.
type ComputeProviderType string

// ScalingAlgorithmType names a rule by which workers would be added.
type ScalingAlgorithmType string

// ComputeProviderSpec is a provider with its settings.
type ComputeProviderSpec struct {
	ProviderType  ComputeProviderType `json:"provider_type,omitempty"`
	Config        *commonpb.Payload   `json:"config,omitempty"`
	NexusEndpoint string              `json:"nexus_endpoint,omitempty"`
}

// ScalingAlgorithmSpec is a rule with its settings.
type ScalingAlgorithmSpec struct {
	ScalingAlgorithm ScalingAlgorithmType `json:"scaling_algorithm,omitempty"`
	Config           *commonpb.Payload    `json:"config,omitempty"`
}

// ScalingGroupSpec says which tasks the workers of a group take.
type ScalingGroupSpec struct {
	TaskTypes []enumspb.TaskQueueType `json:"task_types"`
	Compute   ComputeProviderSpec     `json:"compute"`
	Scaling   *ScalingAlgorithmSpec   `json:"scaling,omitempty"`
}

// ScalingGroupSpecUpdate is a change of a group.
type ScalingGroupSpecUpdate struct {
	Spec       ScalingGroupSpec `json:"spec"`
	UpdateMask []string         `json:"update_mask"`
}

// WorkerControllerInstanceSpec has all groups of a deployment version.
type WorkerControllerInstanceSpec struct {
	ScalingGroupSpecs map[string]ScalingGroupSpec `json:"scaling_group_specs"`
}

// QueryDescribeWorkerControllerInstanceResponse describes the instance of a deployment version.
type QueryDescribeWorkerControllerInstanceResponse struct {
	Spec             *WorkerControllerInstanceSpec `json:"spec,omitempty"`
	ValidationStatus *ValidationStatus             `json:"validation_state,omitempty"`
}

// UpdateWorkerControllerInstanceResponse is the answer to a change.
type UpdateWorkerControllerInstanceResponse struct {
	Spec *WorkerControllerInstanceSpec `json:"spec,omitempty"`
}

// ValidationResult is how a check of a spec ended.
type ValidationResult string

// ValidationResultFailed is the end of a check that found a fault.
const ValidationResultFailed ValidationResult = "failed"

// ValidationStatus is the last check of a spec.
type ValidationStatus struct {
	LastValidationTime time.Time        `json:"last_validation_time"`
	Status             ValidationResult `json:"status"`
	ErrMessage         string           `json:"err_message,omitempty"`
}
