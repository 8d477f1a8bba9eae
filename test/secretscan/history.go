package secretscan

import (
	"context"
	"fmt"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// listings are the queries that together name all executions of a namespace. Temporal keeps its
// own, such as schedules, in divisions that a plain query leaves out.
var listings = [...]string{"", "TemporalNamespaceDivision IS NOT NULL"}

// Run is one execution of a workflow.
type Run struct{ Workflow, ID string }

// Runs is a set of executions. Add and Missing keep it so that a Run without an ID stands for any
// execution of its workflow.
type Runs map[Run]struct{}

// Add adds an execution.
func (r Runs) Add(run Run) {
	r[run] = struct{}{}
	r[Run{Workflow: run.Workflow}] = struct{}{}
}

// Missing returns those of want that are not in the set.
func (r Runs) Missing(want []Run) (missing []Run) {
	for _, run := range want {
		if _, there := r[run]; !there {
			missing = append(missing, run)
		}
	}
	return missing
}

// List returns the executions of a namespace that Temporal lists now. It lists a new one late.
func List(ctx context.Context, c client.Client, namespace string) (Runs, error) {
	runs := Runs{}
	err := eachExecution(ctx, c, namespace, func(info *workflowpb.WorkflowExecutionInfo) error {
		runs.Add(Run{info.GetExecution().GetWorkflowId(), info.GetExecution().GetRunId()})
		return nil
	})
	return runs, err
}

// Histories searches all executions that Temporal lists of a namespace, open and closed: what the
// list shows of each, and each event of its history. It notes them in Searched.
func (s *Searcher) Histories(ctx context.Context, c client.Client, namespace string) error {
	return eachExecution(ctx, c, namespace, func(info *workflowpb.WorkflowExecutionInfo) error {
		e := info.GetExecution()
		s.Message("workflow "+s.nameOf(e.GetWorkflowId())+" in the list of workflows", info)
		return s.Execution(ctx, c, e)
	})
}

func eachExecution(ctx context.Context, c client.Client, namespace string, do func(*workflowpb.WorkflowExecutionInfo) error) error {
	for _, query := range listings {
		var page []byte
		for {
			list, err := c.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{Namespace: namespace, Query: query, NextPageToken: page})
			if err != nil {
				return fmt.Errorf("list the workflows of namespace %s: %w", namespace, err)
			}
			for _, info := range list.GetExecutions() {
				if err := do(info); err != nil {
					return err
				}
			}
			if page = list.GetNextPageToken(); len(page) == 0 {
				break
			}
		}
	}
	return nil
}

// Execution searches each event of the history of a workflow; without a run id, of its latest run.
// It notes it in Searched.
func (s *Searcher) Execution(ctx context.Context, c client.Client, e *commonpb.WorkflowExecution) error {
	s.Counts.Histories++
	events := c.GetWorkflowHistory(ctx, e.GetWorkflowId(), e.GetRunId(), false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		event, err := events.Next()
		if err != nil {
			return fmt.Errorf("read the history of workflow %s: %w", s.nameOf(e.GetWorkflowId()), err)
		}
		s.event("workflow "+s.nameOf(e.GetWorkflowId()), event)
	}
	if s.unread != nil {
		return fmt.Errorf("the history of workflow %s was not searched to its end: %w", s.nameOf(e.GetWorkflowId()), s.unread)
	}
	s.Searched.Add(Run{e.GetWorkflowId(), e.GetRunId()})
	return nil
}

// History searches each event of a history. Place names the history.
func (s *Searcher) History(place string, h *historypb.History) {
	s.Counts.Histories++
	for _, event := range h.GetEvents() {
		s.event(place, event)
	}
}

func (s *Searcher) event(place string, event *historypb.HistoryEvent) {
	s.Counts.Events++
	s.Message(fmt.Sprintf("%s, event %d (%s)", place, event.GetEventId(), event.GetEventType()), event)
}

// Message searches every text and every bytes field of m at any depth: payloads with their
// metadata, memos, search attributes, headers, and failures with their details and encoded
// attributes.
func (s *Searcher) Message(place string, m proto.Message) { s.fields(place, m.ProtoReflect()) }

func (s *Searcher) fields(place string, m protoreflect.Message) {
	if p, is := m.Interface().(*commonpb.Payload); is {
		s.Counts.Payloads++
		s.decrypted(place, p)
	}
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case field.IsList():
			for i := range v.List().Len() {
				s.value(place, field, v.List().Get(i))
			}
		case field.IsMap():
			v.Map().Range(func(key protoreflect.MapKey, v protoreflect.Value) bool {
				s.value(place, field.MapKey(), key.Value())
				s.value(place, field.MapValue(), v)
				return true
			})
		default:
			s.value(place, field, v)
		}
		return true
	})
	s.Search(place, m.GetUnknown())
}

// decrypted searches what an encrypted payload holds.
func (s *Searcher) decrypted(place string, p *commonpb.Payload) {
	if s.Payloads == nil {
		return
	}
	plain, err := s.Payloads.Decode([]*commonpb.Payload{p})
	if err != nil {
		s.unread = err
		return
	}
	if plain[0] == p {
		return
	}
	s.Search(place, plain[0].GetData())
	for name, value := range plain[0].GetMetadata() {
		s.Search(place, []byte(name))
		s.Search(place, value)
	}
}

func (s *Searcher) value(place string, field protoreflect.FieldDescriptor, v protoreflect.Value) {
	switch field.Kind() {
	case protoreflect.StringKind:
		s.Search(place, []byte(v.String()))
	case protoreflect.BytesKind:
		s.Search(place, v.Bytes())
	case protoreflect.MessageKind, protoreflect.GroupKind:
		s.fields(place, v.Message())
	default: // numbers and names of enumerations
	}
}
