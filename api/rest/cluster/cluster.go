// Package cluster is the area of Kubernetes clusters that machines join.
package cluster

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	clusterdb "github.com/slipway-cloud/slipway/db/cluster"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

const (
	base = "/admin/clusters"
	one  = base + "/{ref}"
)

type server struct{ api *op.API }

// Register declares the area's operations.
func Register(api *op.API) {
	api.Grant(op.Access{
		op.RoleViewer: {"GET " + base, "GET " + one},
		op.RoleAdmin:  {"POST " + base, "PUT " + one, "DELETE " + one},
	})
	api.RequireStepUp(op.StepUp{Route: "PUT " + one}, op.StepUp{Route: "DELETE " + one}) // the address that the kubeconfig is sent to
	s := &server{api}
	route(s, "list-clusters", http.MethodGet, base, http.StatusOK, "List the clusters that machines join", s.list)
	route(s, "create-cluster", http.MethodPost, base, http.StatusCreated, "Create a cluster that machines join", s.create)
	route(s, "get-cluster", http.MethodGet, one, http.StatusOK, "Read a cluster", s.get)
	route(s, "update-cluster", http.MethodPut, one, http.StatusOK, "Replace project and spec of a cluster", s.update)
	route(s, "delete-cluster", http.MethodDelete, one, http.StatusNoContent, "Delete a cluster in which no bootstrap token is left, or one whose API server is gone for good; its machines stay in it", s.remove)
}

// route declares one operation of the area.
func route[I, O any](s *server, id, method, path string, status int, summary string, handler func(context.Context, *I) (*O, error)) {
	op.Add(s.api, huma.Operation{OperationID: id, Method: method, Path: path, Summary: summary, Tags: []string{"clusters"}, DefaultStatus: status}, handler)
}

// Cluster is a Kubernetes cluster that machines join.
type Cluster struct {
	Ref       string           `json:"cluster_ref"`
	ProjectID string           `json:"project_id,omitempty"`
	Spec      spec.ClusterSpec `json:"spec"`
	LookedAt  *time.Time       `json:"looked_at,omitempty" doc:"When it last answered"`
	Problem   string           `json:"problem,omitempty" doc:"Why the last look at it failed"`
	Version   int64            `json:"version"`
	CreatedAt time.Time        `json:"created_at"`
	UpdatedAt time.Time        `json:"updated_at"`
}

func view(r clusterdb.Cluster) Cluster {
	out := Cluster{Ref: r.Ref, Spec: r.Spec, LookedAt: r.LookedAt, Problem: r.Problem, Version: r.Version, CreatedAt: r.CreatedAt.UTC(), UpdatedAt: r.UpdatedAt.UTC()}
	if r.ProjectID != nil {
		out.ProjectID = *r.ProjectID
	}
	return out
}

// ClusterChange is what may be changed of a cluster.
type ClusterChange struct {
	ProjectID string           `json:"project_id,omitempty" maxLength:"200" doc:"The project whose machines may join; empty for machines of no project"`
	Spec      spec.ClusterSpec `json:"spec" required:"true"`
}

// ClusterRequest is a cluster as an administrator writes it.
type ClusterRequest struct {
	Ref string `json:"cluster_ref" required:"true" maxLength:"128" pattern:"^[A-Za-z0-9._-]+$" doc:"As plans and machines name it"`
	ClusterChange
}

// ClusterPath is the path of a cluster.
type ClusterPath struct {
	Ref string `path:"ref" maxLength:"128" doc:"As plans and machines name it"`
}

func (c ClusterChange) validate() error { return op.PrefixFieldErrors("body.spec", c.Spec.Validate()) }

// checkKubeconfig refuses a kubeconfig that is not stored.
func (c ClusterChange) checkKubeconfig(ctx context.Context, tx *db.Tx) error {
	bad, err := intent.CheckSecret(ctx, tx, "spec.kubeconfig_ref", c.Spec.KubeconfigRef, spec.SecretKubeconfig)
	if err != nil {
		return err
	}
	return intent.InvalidIf(bad)
}

func (s *server) list(ctx context.Context, in *struct{ op.Page }) (*op.Listed[Cluster], error) {
	after, err := in.After()
	if err != nil {
		return nil, err
	}
	rows, err := clusterdb.List(ctx, s.api.Store(), after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return op.Paged(rows, in.Limit, func(r clusterdb.Cluster) string { return r.Ref }, view), nil
}

func (s *server) create(ctx context.Context, in *struct {
	op.Key
	Body ClusterRequest
}) (*op.Created[Cluster], error) {
	if err := in.Body.validate(); err != nil {
		return nil, err
	}
	if !spec.ValidMachineID(in.Body.Ref) {
		return nil, problem.NewInvalid(problem.Field{Location: "body.cluster_ref", Message: "must be 1 to 128 of A-Z, a-z, 0-9, '.', '_' and '-'"})
	}
	return op.Create(ctx, s.api, in.Key, in.Body, nil, func(tx *db.Tx) (*op.Created[Cluster], error) {
		if err := in.Body.checkKubeconfig(ctx, tx); err != nil {
			return nil, err
		}
		row, err := clusterdb.Create(ctx, tx, in.Body.Ref, in.Body.ProjectID, in.Body.Spec)
		if err != nil {
			return nil, err
		}
		return op.NewCreated(op.Prefix+base+"/"+row.Ref, row.Version, view(row)), audit(ctx, tx, row, "create")
	})
}

// audit writes what an administrator stated of a cluster: where its kubeconfig is sent is worth
// knowing.
func audit(ctx context.Context, tx *db.Tx, row clusterdb.Cluster, name string) error {
	return op.Audit(ctx, tx, clusterdb.Resource, row.Ref, nil, name, map[string]any{"api_url": row.Spec.APIURL, "ca_pins": row.Spec.CAPins, "kubeconfig_ref": row.Spec.KubeconfigRef, "project": row.ProjectID})
}

func (s *server) get(ctx context.Context, in *ClusterPath) (*op.Versioned[Cluster], error) {
	row, err := clusterdb.Get(ctx, s.api.Store(), in.Ref)
	if err != nil {
		return nil, err
	}
	return op.WithVersion(row.Version, view(row)), nil
}

func (s *server) update(ctx context.Context, in *struct {
	ClusterPath
	op.Match
	Body ClusterChange
}) (*op.Versioned[Cluster], error) {
	if err := in.Body.validate(); err != nil {
		return nil, err
	}
	var row clusterdb.Cluster
	err := s.api.Store().Tx(ctx, func(tx *db.Tx) error {
		before, err := clusterdb.Get(ctx, tx, in.Ref)
		if err != nil {
			return err
		}
		v, err := in.Version(func() (int64, error) { return before.Version, nil })
		if err != nil {
			return err
		}
		if in.Body.Spec.KubeconfigRef != before.Spec.KubeconfigRef { // one that is gone must not block other changes
			if err := in.Body.checkKubeconfig(ctx, tx); err != nil {
				return err
			}
		}
		if row, err = clusterdb.Update(ctx, tx, in.Ref, v, in.Body.ProjectID, in.Body.Spec); err != nil {
			return err
		}
		return audit(ctx, tx, row, "update")
	})
	if err != nil {
		return nil, err
	}
	return op.WithVersion(row.Version, view(row)), nil
}

// Removal is how a cluster is deleted.
type Removal struct {
	Force  bool   `query:"force" doc:"Deletes it although bootstrap tokens may be left in it, for a cluster whose API server is gone for good. Runs do not wait for their deletion any more; each expires within 10 minutes of when it was made"`
	Reason string `header:"Slipway-Reason" maxLength:"500" doc:"Why; required with force, and written to the audit log"`
}

const minReason = 3

// remove deletes a cluster. A repetition finds none.
func (s *server) remove(ctx context.Context, in *struct {
	ClusterPath
	op.Match
	Removal
}) (*struct{}, error) {
	reason := strings.TrimSpace(in.Reason)
	if in.Force && len(reason) < minReason {
		return nil, problem.NewInvalid(problem.Field{Location: "header.Slipway-Reason", Message: "say in at least 3 characters why the cluster is deleted by force"})
	}
	return nil, s.api.Store().Tx(ctx, func(tx *db.Tx) error {
		v, err := in.Version(func() (int64, error) { r, err := clusterdb.Get(ctx, tx, in.Ref); return r.Version, err })
		if err != nil {
			return err
		}
		if !in.Force {
			if err := clusterdb.Delete(ctx, tx, in.Ref, v); err != nil {
				return err
			}
			return op.Audit(ctx, tx, clusterdb.Resource, in.Ref, nil, "delete", nil)
		}
		tokens, err := clusterdb.ForceDelete(ctx, tx, in.Ref, v)
		if err != nil {
			return err
		}
		a := op.Actor(ctx)
		a.Comment, a.Metadata = reason, map[string]any{"tokens_left": tokens}
		return tx.AppendAudit(ctx, db.Entry{ResourceKind: clusterdb.Resource, ResourceID: in.Ref, Kind: db.EntryAction, Name: "force_delete", Actor: a})
	})
}
