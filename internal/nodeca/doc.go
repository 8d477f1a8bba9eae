// Package nodeca is the nodes' own certificate authority. It issues two kinds
// of certificate and no other: a client certificate for a node's agent, which
// names the node as spiffe://slipway/node/<node id> and carries the generation
// of that identity, and the server certificate of the agent API.
//
// The caller decides from its own records whom a certificate names; of a certificate request only
// the public key is used.
package nodeca
