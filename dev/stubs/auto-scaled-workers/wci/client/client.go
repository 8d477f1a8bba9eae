// Package client answers for a server on which no cloud runs workers: there is no instance to
// describe or to delete, and none can be made.
package client

import (
	"context"

	deploymentpb "go.temporal.io/api/deployment/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/auto-scaled-workers/wci/workflow/iface"
	"go.temporal.io/server/common/namespace"
	"go.uber.org/fx"
)

// Module provides the client to the server.
var Module = fx.Provide(func() Client { return Client{} })

// Client is what the server asks about the workers that a cloud runs.
type Client struct{}

// DescribeWorkerControllerInstance returns NotFound: the server reads it as "no compute config".
func (Client) DescribeWorkerControllerInstance(
	context.Context, *namespace.Namespace, *deploymentpb.WorkerDeploymentVersion,
) (*iface.QueryDescribeWorkerControllerInstanceResponse, []byte, error) {
	return nil, nil, serviceerror.NewNotFound("this development server has no worker controllers")
}

// DeleteWorkerControllerInstance deletes nothing, since there is nothing.
func (Client) DeleteWorkerControllerInstance(
	context.Context, *namespace.Namespace, *deploymentpb.WorkerDeploymentVersion, string,
) error {
	return nil
}

// UpdateWorkerControllerInstance returns an error.
func (Client) UpdateWorkerControllerInstance(
	context.Context, *namespace.Namespace, *deploymentpb.WorkerDeploymentVersion, []byte, string,
	map[string]iface.ScalingGroupSpecUpdate, []string,
) (*iface.UpdateWorkerControllerInstanceResponse, error) {
	return nil, leftOut()
}

// ValidateWorkerControllerInstanceSpec returns an error.
func (Client) ValidateWorkerControllerInstanceSpec(
	context.Context, *namespace.Namespace, *deploymentpb.WorkerDeploymentVersion, string,
	map[string]iface.ScalingGroupSpecUpdate, []string,
) error {
	return leftOut()
}

// leftOut is an error that the server's workflows do not retry.
func leftOut() error {
	return serviceerror.NewInvalidArgument("worker controllers are left out of this development server: see dev/stubs")
}
