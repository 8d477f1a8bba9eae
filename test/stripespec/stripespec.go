// Package stripespec checks what the payment simulator says and what our client asks, by Stripe's
// own OpenAPI description, which the module of stripe-mock carries. It proves the form of requests
// and objects, not how Stripe behaves.
package stripespec

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stripe/stripe-mock/embedded"
	"github.com/stripe/stripe-mock/server"
)

// schemas are the components of Stripe's description. Its paths are left out: loading them takes
// seconds, and stripe-mock checks requests.
var schemas = sync.OnceValues(func() (openapi3.Schemas, error) {
	var whole map[string]json.RawMessage
	if err := json.Unmarshal(embedded.OpenAPISpec, &whole); err != nil {
		return nil, err
	}
	whole["paths"] = json.RawMessage("{}")
	text, err := json.Marshal(whole)
	if err != nil {
		return nil, err
	}
	loaded, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		return nil, err
	}
	return loaded.Components.Schemas, nil
})

// CheckObject returns an error unless the JSON object is one that Stripe's description calls by
// this name, such as checkout.session.
func CheckObject(name string, object []byte) error {
	all, err := schemas()
	if err != nil {
		return fmt.Errorf("load Stripe's OpenAPI description: %w", err)
	}
	ref, found := all[name]
	if !found {
		return fmt.Errorf("the OpenAPI description of Stripe has no object %q", name)
	}
	var v any
	if err := json.Unmarshal(object, &v); err != nil {
		return err
	}
	return ref.Value.VisitJSON(v)
}

// FixtureFields returns the fields of stripe-mock's example of an object, sorted.
func FixtureFields(name string) ([]string, error) {
	var all struct {
		Resources map[string]map[string]any `json:"resources"`
	}
	if err := json.Unmarshal(embedded.OpenAPIFixtures, &all); err != nil {
		return nil, err
	}
	example, found := all.Resources[name]
	if !found {
		return nil, fmt.Errorf("stripe-mock has no example of %q", name)
	}
	fields := make([]string, 0, len(example))
	for field := range example {
		fields = append(fields, field)
	}
	slices.Sort(fields)
	return fields, nil
}

// Mock is stripe-mock: it accepts each request whose path and parameters Stripe's description has,
// and refuses any other. It keeps no state.
var Mock = sync.OnceValues(func() (http.Handler, error) {
	spec, err := server.LoadSpec(embedded.OpenAPISpec, "")
	if err != nil {
		return nil, err
	}
	fixtures, err := server.LoadFixtures(embedded.OpenAPIFixtures, "")
	if err != nil {
		return nil, err
	}
	stub, err := server.NewStubServer(fixtures, spec, false, false)
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(stub.HandleRequest), nil
})
