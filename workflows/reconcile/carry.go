package reconcile

import (
	"encoding/json"
	"errors"
	"fmt"

	"go.temporal.io/sdk/temporal"
)

func encode(s state) json.RawMessage {
	doc, err := json.Marshal(s)
	if err != nil { // a state always encodes
		return nil
	}
	return doc
}

func decode(doc json.RawMessage, into *state) error {
	if err := json.Unmarshal(doc, into); err != nil {
		return fmt.Errorf("the state that the run before carried over: %w", err)
	}
	return nil
}

// reason is an activity's own words, without Temporal's around them.
func reason(err error) string {
	var app *temporal.ApplicationError
	if errors.As(err, &app) {
		return app.Message()
	}
	return err.Error()
}
