// Package ipmisim provides BMCs that speak IPMI, for tests and for trying
// things out on 127.0.0.0/8:
//
//   - OpenIPMI runs the ipmi_sim program of the OpenIPMI project: a server that
//     shares nothing with us. It knows cipher suite 3 and not 17, and keeps of
//     the boot flags only the device.
//   - Reference is the BMC of go-ipmi, in process, over a machine of
//     sim/hw: suite 17 works and so do all the boot flags. It shares
//     codecs with the client that it tests, so its tests use ipmitool.
//   - Relay stands between a client and a BMC, counts the logins and makes the
//     network lose, repeat and damage datagrams.
package ipmisim
