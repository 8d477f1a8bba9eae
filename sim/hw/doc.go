// Package simhw holds simulated physical machines: power, boot order, disks,
// network cards, a BMC login and the operating system that was installed. It is
// the one set of machines behind both the MAAS simulator and the Redfish
// simulator, so that power or boot order moved through one is seen through the
// other. It speaks no protocol, imports the standard library only, and shares
// no code with any client.
package simhw
