// Package maas talks to a MAAS 2.0 region controller and implements providers.MAAS.
//
// github.com/canonical/gomaasclient signs and shapes the requests. It knows no context, no timeout
// and no limit, follows redirects, and sleeps through Retry-After where nobody can wake it. So each
// call here builds one cheap gomaasclient over a guard (guard.go), the http.RoundTripper that
// carries the context into flight, refuses redirects, bounds requests and bodies, hides Retry-After
// and remembers what happened on the wire. The meaning of a failure is decided from that record
// alone (verdict.go), never from the client's texts.
//
// A mutation is sent at most once per call. Where its outcome is unknown the
// error is KindUncertain and the caller reads the machine again.
package maas
