// Package bench holds the benchmarks of `make bench`. Each measures a part of
// Slipway and, in the same run on the same servers, the bare engine below it,
// and prints the ratio: absolute figures tell more of the machine than of
// Slipway.
package bench
