// Package spec holds the values that operators and agents state and others check: the
// specifications of sites, profiles, SKUs and install workflows, a node's health report, and the
// arguments of node tasks. Every value is plain data with strict decoding and validation.
package spec
