// Package workercomponent would add the workflows of worker controllers to each namespace.
package workercomponent

import "go.uber.org/fx"

// Module adds nothing.
var Module = fx.Options()
