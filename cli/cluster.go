package cli

import (
	"context"
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
)

func clusterShown() []string {
	return []string{"cluster_ref", "project_id", "looked_at", "problem", "version"}
}

// showCluster shows one cluster with its specification.
func (a *app) showCluster(r client.Answer[client.Cluster]) error {
	return a.show(r.Raw, func() error {
		if err := a.printRows(r.Raw, clusterShown()); err != nil {
			return err
		}
		var got struct{ Spec json.RawMessage } // in the order of the answer
		if err := json.Unmarshal(r.Raw, &got); err != nil {
			return err
		}
		return writeYAML(a.Out, got.Spec)
	})
}

func (a *app) clusterCommand() *cobra.Command {
	var force bool
	var reason string
	remove := &cobra.Command{Use: "delete CLUSTER", Short: "Delete a cluster; its machines stay in it", Args: cobra.ExactArgs(1)}
	remove.Flags().BoolVar(&force, "force", false, "delete it although bootstrap tokens may be left in it: its API server is gone for good")
	remove.Flags().StringVar(&reason, "reason", "", "why it is deleted by force")
	remove.MarkFlagsRequiredTogether("force", "reason")
	remove.RunE = does(func(cmd *cobra.Command, args []string) error {
		params := &client.DeleteClusterParams{}
		if force {
			params.Force = &force
		}
		_, err := a.api.DeleteCluster(cmd.Context(), args[0], params, client.IfMatch("*"), client.Because(reason))
		return err
	})
	listing := &cobra.Command{Use: "list", Short: "List the clusters that machines join", Args: cobra.NoArgs}
	listing.RunE = does(func(cmd *cobra.Command, _ []string) error {
		r, err := listAll(cmd.Context(), list(a.api.ListClusters, &client.ListClustersParams{}), 0)
		if err != nil {
			return err
		}
		return a.showRows(r.Raw, clusterShown())
	})
	show := &cobra.Command{Use: "show CLUSTER", Short: "Show a cluster, and when it last answered", Args: cobra.ExactArgs(1)}
	show.RunE = does(func(cmd *cobra.Command, args []string) error {
		r, err := a.api.GetCluster(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		return a.showCluster(r)
	})
	return group("cluster", "Kubernetes clusters that machines join", listing,
		show,
		a.clusterPut("create CLUSTER", "Create a cluster that machines join", func(ctx context.Context, ref string, body map[string]any) (client.Answer[client.Cluster], error) {
			body["cluster_ref"] = ref
			return a.api.CreateCluster(ctx, client.ClusterRequest{}, client.Body(body))
		}),
		a.clusterPut("update CLUSTER", "Replace project and specification of a cluster", func(ctx context.Context, ref string, body map[string]any) (client.Answer[client.Cluster], error) {
			return a.api.UpdateCluster(ctx, ref, client.ClusterChange{}, client.Body(body), client.IfMatch("*"))
		}), remove)
}

// clusterPut writes a cluster as its flags state it.
func (a *app) clusterPut(use, short string, send func(context.Context, string, map[string]any) (client.Answer[client.Cluster], error)) *cobra.Command {
	var project, url, kubeconfig, version string
	var pins []string
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cobra.ExactArgs(1),
		Example: "  slipway cluster create cluster-a --api-url https://10.0.0.1:6443 --ca-pin sha256:... --kubeconfig clusters/a --kubernetes-version v1.34.1",
	}
	f := cmd.Flags()
	f.StringVar(&project, "project", "", "the project whose machines may join, by name or id; empty for machines of no project")
	f.StringVar(&url, "api-url", "", "https://host:port of the API server, as machines reach it")
	f.StringArrayVar(&pins, "ca-pin", nil, "pin of the cluster's CA, as kubeadm prints it; may be repeated")
	f.StringVar(&kubeconfig, "kubeconfig", "", "secret of kind kubeconfig that Slipway uses")
	f.StringVar(&version, "kubernetes-version", "", "of kubeadm and kubelet on the machines, such as v1.34.1")
	for _, name := range []string{"api-url", "ca-pin", "kubeconfig", "kubernetes-version"} {
		_ = cmd.MarkFlagRequired(name)
	}
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		body := map[string]any{"spec": map[string]any{"api_url": url, "ca_pins": pins, "kubeconfig_ref": kubeconfig, "kubernetes_version": version}}
		project, err := a.optionalProject(cmd.Context(), project)
		if err != nil {
			return err
		}
		if project != "" {
			body["project_id"] = project
		}
		r, err := send(cmd.Context(), args[0], body)
		if err != nil {
			return err
		}
		return a.showCluster(r)
	})
	return cmd
}
