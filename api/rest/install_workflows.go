package rest

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/pxetemplate"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// InstallWorkflow is how PXE nodes are installed.
type InstallWorkflow struct {
	ID        string                   `json:"id"`
	Name      string                   `json:"name"`
	Spec      spec.InstallWorkflowSpec `json:"spec"`
	Version   int64                    `json:"version"`
	CreatedAt time.Time                `json:"created_at"`
	UpdatedAt time.Time                `json:"updated_at"`
}

func installWorkflowView(r db.InstallWorkflow) InstallWorkflow {
	return InstallWorkflow{r.ID, r.Name, r.Spec, r.Version, r.CreatedAt.UTC(), r.UpdatedAt.UTC()}
}

// InstallWorkflowRequest is an install workflow as an operator writes it.
type InstallWorkflowRequest struct {
	Name string                   `json:"name" required:"true" maxLength:"100"`
	Spec spec.InstallWorkflowSpec `json:"spec" required:"true"`
}

// check validates the spec, with a dry render of its templates.
func (r InstallWorkflowRequest) check() error {
	if err := op.CheckName(r.Name); err != nil {
		return err
	}
	return op.PrefixFieldErrors("body.spec", pxetemplate.Check(r.Spec))
}

// InstallWorkflowPath is the path of one.
type InstallWorkflowPath struct {
	ID string `path:"id" maxLength:"200" doc:"wf_..."`
}

func (s *server) registerInstallWorkflows() {
	tags := []string{"pxe"}
	op.Add(s.api, huma.Operation{OperationID: "list-install-workflows", Method: http.MethodGet, Path: "/admin/install-workflows", Tags: tags, Summary: "List install workflows"}, s.listInstallWorkflows)
	op.Add(s.api, huma.Operation{
		OperationID: "create-install-workflow", Method: http.MethodPost, Path: "/admin/install-workflows", Tags: tags, Summary: "Create an install workflow", DefaultStatus: http.StatusCreated,
	}, s.createInstallWorkflow)
	op.Add(s.api, huma.Operation{OperationID: "get-install-workflow", Method: http.MethodGet, Path: "/admin/install-workflows/{id}", Tags: tags, Summary: "Read an install workflow"}, s.getInstallWorkflow)
	op.Add(s.api, huma.Operation{OperationID: "update-install-workflow", Method: http.MethodPut, Path: "/admin/install-workflows/{id}", Tags: tags, Summary: "Replace an install workflow's name and spec"}, s.updateInstallWorkflow)
	op.Add(s.api, huma.Operation{
		OperationID: "delete-install-workflow", Method: http.MethodDelete, Path: "/admin/install-workflows/{id}", Tags: tags, Summary: "Delete an install workflow that no node is assigned to",
		DefaultStatus: http.StatusNoContent,
	}, s.deleteInstallWorkflow)
}

func (s *server) listInstallWorkflows(ctx context.Context, in *struct {
	op.Page
	Name string `query:"name" maxLength:"200" doc:"Only the one of this name"`
}) (*op.Listed[InstallWorkflow], error) {
	if in.Name != "" {
		return op.OneNamed(installWorkflowView)(s.store.InstallWorkflowByName(ctx, in.Name))
	}
	after, err := in.After()
	if err != nil {
		return nil, err
	}
	rows, err := s.store.ListInstallWorkflows(ctx, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return op.Paged(rows, in.Limit, func(r db.InstallWorkflow) string { return r.ID }, installWorkflowView), nil
}

func (s *server) createInstallWorkflow(ctx context.Context, in *struct {
	op.Key
	Body InstallWorkflowRequest
}) (*op.Created[InstallWorkflow], error) {
	if err := in.Body.check(); err != nil {
		return nil, err
	}
	return op.Create(ctx, s.api, in.Key, in.Body, nil, func(tx *db.Tx) (*op.Created[InstallWorkflow], error) {
		row, err := tx.CreateInstallWorkflow(ctx, in.Body.Name, in.Body.Spec)
		if err != nil {
			return nil, err
		}
		return op.NewCreated(op.Prefix+"/admin/install-workflows/"+row.ID, row.Version, installWorkflowView(row)), auditSpec(ctx, tx, "install_workflow", row.ID, "create", nil, &stated{row.Name, row.Spec})
	})
}

func (s *server) getInstallWorkflow(ctx context.Context, in *InstallWorkflowPath) (*op.Versioned[InstallWorkflow], error) {
	row, err := s.store.InstallWorkflow(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return op.WithVersion(row.Version, installWorkflowView(row)), nil
}

func (s *server) updateInstallWorkflow(ctx context.Context, in *struct {
	InstallWorkflowPath
	op.Match
	Body InstallWorkflowRequest
}) (*op.Versioned[InstallWorkflow], error) {
	if err := in.Body.check(); err != nil {
		return nil, err
	}
	var row db.InstallWorkflow
	err := s.store.Tx(ctx, func(tx *db.Tx) error {
		now, err := tx.InstallWorkflow(ctx, in.ID)
		if err != nil {
			return err
		}
		v, err := in.Version(func() (int64, error) { return now.Version, nil })
		if err != nil {
			return err
		}
		if row, err = tx.UpdateInstallWorkflow(ctx, in.ID, v, in.Body.Name, in.Body.Spec); err != nil {
			return err
		}
		return auditSpec(ctx, tx, "install_workflow", in.ID, "update", &stated{now.Name, now.Spec}, &stated{row.Name, row.Spec})
	})
	if err != nil {
		return nil, err
	}
	return op.WithVersion(row.Version, installWorkflowView(row)), nil
}

func (s *server) deleteInstallWorkflow(ctx context.Context, in *struct {
	InstallWorkflowPath
	op.Match
}) (*struct{}, error) {
	return nil, s.store.Tx(ctx, func(tx *db.Tx) error {
		now, err := tx.InstallWorkflow(ctx, in.ID)
		if err != nil {
			return err
		}
		v, err := in.Version(func() (int64, error) { return now.Version, nil })
		if err != nil {
			return err
		}
		if err := tx.DeleteInstallWorkflow(ctx, in.ID, v); err != nil {
			return err
		}
		return auditSpec(ctx, tx, "install_workflow", in.ID, "delete", &stated{now.Name, now.Spec}, nil)
	})
}
