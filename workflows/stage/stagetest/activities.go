package stagetest

import (
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/mock"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/testsuite"
)

// Activities answers every activity of some activity structs: with what the test sets, or with a
// success, whose Done is true where the result has such a field.
type Activities struct {
	mu      sync.Mutex
	calls   []string
	answers map[string]func() (any, error)
	fakes   map[string]any
}

// Answer has an activity, by its name, answer with what f returns; a nil value is the empty result.
func (a *Activities) Answer(name string, f func() (any, error)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.answers == nil {
		a.answers = map[string]func() (any, error){}
	}
	a.answers[name] = f
}

// Calls returns the names of the activities that were called, in order.
func (a *Activities) Calls() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.calls)
}

// Register registers every activity of the given structs under its name and with its types.
func (a *Activities) Register(env *testsuite.TestWorkflowEnvironment, structs ...any) {
	for _, s := range structs {
		for m := range reflect.TypeOf(s).Methods() {
			if m.Type.NumIn() == 3 && m.Type.NumOut() == 2 {
				a.register(env, m)
			}
		}
	}
}

func (a *Activities) register(env *testsuite.TestWorkflowEnvironment, m reflect.Method) {
	in, out, failed := []reflect.Type{m.Type.In(1), m.Type.In(2)}, m.Type.Out(0), m.Type.Out(1)
	fake := reflect.MakeFunc(reflect.FuncOf(in, []reflect.Type{out, failed}, false), func([]reflect.Value) []reflect.Value {
		result, err := a.answer(m.Name, out)
		problem := reflect.New(failed).Elem()
		if err != nil {
			problem.Set(reflect.ValueOf(err))
		}
		return []reflect.Value{result, problem}
	})
	if a.fakes == nil {
		a.fakes = map[string]any{}
	}
	a.fakes[m.Name] = fake.Interface()
	env.RegisterActivityWithOptions(fake.Interface(), activity.RegisterOptions{Name: m.Name})
}

// Hold has a registered activity take some time by the workflow's clock before it answers.
func (a *Activities) Hold(env *testsuite.TestWorkflowEnvironment, name string, long func() time.Duration) {
	env.OnActivity(name, mock.Anything, mock.Anything).Return(a.fakes[name]).AfterFn(long)
}

func (a *Activities) answer(name string, typ reflect.Type) (reflect.Value, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls = append(a.calls, name)
	out := reflect.New(typ).Elem()
	if f := a.answers[name]; f != nil {
		v, err := f()
		if v != nil {
			out.Set(reflect.ValueOf(v))
		}
		return out, err
	}
	if done := reflect.Indirect(out); done.Kind() == reflect.Struct && done.FieldByName("Done").IsValid() {
		done.FieldByName("Done").SetBool(true)
	}
	return out, nil
}
