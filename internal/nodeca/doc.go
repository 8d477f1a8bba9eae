// Package nodeca is the nodes' own certificate authority. It issues two kinds
// of certificate and no other: a client certificate for a node's agent, which
// names the node as spiffe://slipway/node/<node id> and carries the generation
// of that identity, and the server certificate of the agent API.
//
// Who a certificate names is decided by the caller from its own records; of a
// certificate request only the public key is used (research bmc_agent 6.2).
package nodeca
