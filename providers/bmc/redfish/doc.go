// Package redfish drives a management controller over Redfish.
//
// A BMC is treated as an untrusted peer. The gofish client never sees a
// password or token: it talks through a guarded http.RoundTripper (guard.go)
// that holds the credential, keeps every request on the one scheme, host and
// port it was opened for, refuses redirects, caps bodies, counts requests and
// stops sending the credential after the first rejection, because most BMCs
// lock an account after a handful of wrong logins.
//
// Resources are read as loose JSON (loose.go): recorded trees of real machines
// break typed decoding in places that matter (a Dell drive whose Location is
// an array), and a resource that cannot be read must show up as partial or
// unknown, never as absent.
//
// Every mutation reads, acts and reads again, so a repeated call whose goal is
// already reached sends nothing.
package redfish
