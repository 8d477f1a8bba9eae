// Package redfish drives a management controller over Redfish.
//
// A BMC is treated as an untrusted peer. The gofish client never sees a password or token: it sends
// its requests through a guarded http.RoundTripper (guard.go). The guard holds the credential,
// allows only the scheme, host and port for which it was opened, refuses redirects, and limits
// bodies and the number of requests. It stops sending the credential after the first rejection,
// because most BMCs lock an account after a handful of wrong logins.
//
// Resources are read as untyped JSON (loose.go). Recorded trees of real machines break typed
// decoding in places that matter, such as a Dell drive whose Location is an array. A resource that
// cannot be read must be reported as partial or unknown, never as absent.
//
// Every mutation reads, acts and reads again. So a repeated call sends nothing when its goal is
// already reached.
package redfish
