// Package cloudsim simulates the calls of Scaleway's API that Slipway makes: servers, security
// groups, addresses, block volumes and snapshots, server types and the marketplace. Any other call
// answers 501. It keeps state, knows what is billed (Billed), and misbehaves on demand (Fault). It
// shares no code with the client that it tests. Where no recording of the real API is known, a
// comment says "not recorded".
package cloudsim
