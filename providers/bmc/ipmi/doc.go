// Package ipmi drives a management controller over IPMI 2.0 (RMCP+), for
// machines whose Redfish is missing or broken. It is used only for a BMC whose
// row says so; nothing falls back to it.
//
// A BMC is treated as an untrusted peer, and UDP has no connection that a
// pinned certificate could protect. So the session layer is our own, on the
// codecs and the cryptography of go-ipmi: its client (v0.9.1) decodes answers
// in goroutines where a malformed one ends the process, takes an answer
// without checking its integrity, accepts weaker algorithms than it asked for
// and knows no way to repeat a request that the BMC would not drop as a
// duplicate. Here an answer counts only in the session it belongs to, signed
// with the session's key and newer than the one before; the cipher suite is
// the one asked for or there is no session; and all decoding happens in the
// caller, under its context.
//
// UDP may deliver a request twice, and its answer may be lost. Requests that
// can be repeated without harm (reads, on, off, boot flags) are sent again, in
// a new session sequence number; an NMI and a graceful shutdown are sent once.
// A power cycle is off and on, never the IPMI command of that name.
//
// Values that IPMI cannot tell stay empty or Unknown: network addresses, media, drives, lockout and
// a certificate pin. See docs/ipmi.md.
package ipmi
