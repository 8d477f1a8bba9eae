package temporal

import (
	"context"
	"errors"
	"fmt"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/slipway-cloud/slipway/internal/poll"
)

const (
	namespacePoll = 100 * time.Millisecond
	retention     = 24 * time.Hour
)

// EnsureNamespace registers the namespace and Options' search attributes in it unless they are
// there, and returns when both are usable, which can take a few seconds (the server caches
// namespaces). A test package that lists workflows takes one of its own; others share Namespace and
// differ by task queue. It may be repeated and raced.
func (s *Server) EnsureNamespace(ctx context.Context, name string) error {
	c, err := s.Dial(ctx, name)
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.WorkflowService().RegisterNamespace(ctx, &workflowservice.RegisterNamespaceRequest{
		Namespace: name, WorkflowExecutionRetentionPeriod: durationpb.New(retention),
	})
	var exists *serviceerror.NamespaceAlreadyExists
	if err != nil && !errors.As(err, &exists) {
		return fmt.Errorf("register namespace %s: %w", name, err)
	}
	for {
		err := s.ensureAttributes(ctx, c, name)
		if err == nil {
			return nil
		}
		if poll.Sleep(ctx, namespacePoll) != nil {
			return fmt.Errorf("register the search attributes of namespace %s: %w", name, err)
		}
	}
}

var errNotYet = errors.New("just added, not yet visible")

func (s *Server) ensureAttributes(ctx context.Context, c client.Client, namespace string) error {
	have, err := c.OperatorService().ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: namespace})
	if err != nil {
		return err
	}
	missing := map[string]enumspb.IndexedValueType{}
	for name, kind := range s.opts.SearchAttributes {
		typ, err := enumspb.IndexedValueTypeFromString(kind)
		if err != nil {
			return fmt.Errorf("search attribute %s: %w", name, err)
		}
		if _, ok := have.GetCustomAttributes()[name]; !ok {
			missing[name] = typ
		}
	}
	if len(missing) == 0 {
		return nil
	}
	_, err = c.OperatorService().AddSearchAttributes(ctx, &operatorservice.AddSearchAttributesRequest{Namespace: namespace, SearchAttributes: missing})
	return errors.Join(errNotYet, err)
}
