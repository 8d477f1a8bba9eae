// Package providers names the outside world as capabilities: what Slipway asks
// of MAAS, of a BMC, of a node over SSH and of a secret store. Each vendor
// client lives in a folder below and implements these interfaces; activities
// see nothing else. Every call takes a context whose deadline it honours, every
// failure is an *Error with a Kind, and no message ever holds a secret.
package providers
