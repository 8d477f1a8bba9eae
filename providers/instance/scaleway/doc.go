// Package scaleway makes servers at Scaleway (providers.Cloud). It uses Scaleway's own Go SDK for
// three of its APIs: instances, block storage and the marketplace.
//
// A caller can rely on these points:
//
//   - The SDK's waiters are not used: they ignore the end of a context, and a server that fell back to
//     stopped is a success to them. Every call is one look or one order.
//   - An order whose answer is lost is KindUncertain. The API takes no key that makes an order repeatable,
//     so that a repeated Create makes a second server: look with Find first.
//   - Everything that is made has two tags: slipway-installation=ID and slipway-instance=ID. The root
//     volume is made by Scaleway and has none, until ClaimVolumes gives it some.
//   - The security group is made before the server, drops what comes in, and is named in the order for
//     the server, so that the server is never open to everybody.
//   - Each client sends at most five requests a second. Redirects are refused, and answers are bounded.
package scaleway
