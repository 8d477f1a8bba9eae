package temporalx

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
)

// Completions ends activities that wait for something outside.
type Completions struct {
	Client    client.Client
	Namespace string
}

const completeTimeout = 10 * time.Second

// CompleteActivity ends an activity with its result, or with a failure when that
// is not nil. gone: its workflow has ended or left it, or it is between two
// tries; in the last case it runs again by itself.
func (c Completions) CompleteActivity(ctx context.Context, workflowID, runID, activityID string, result any, failure error) (gone bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, completeTimeout)
	defer cancel()
	if failure != nil {
		result = nil
	}
	err = c.Client.CompleteActivityByID(ctx, c.Namespace, workflowID, runID, activityID, result, failure)
	var missing *serviceerror.NotFound
	if errors.As(err, &missing) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("complete activity %s of %s: %w", activityID, workflowID, err)
	}
	return false, nil
}
