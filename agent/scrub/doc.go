// Package scrub erases what tenants may have left on a node, and proves from a
// fresh boot that it is gone (docs/scrub.md).
//
// It fails closed. A value is unknown when it reads N/A, when a program does
// not tell it, or when no program can tell it, and unknown is never verified. A
// step or a device that fails does not keep the others from being done, but the
// whole is then not OK.
//
// Nothing here proves that a hostile tenant left nothing on the disk that the
// agent runs from; only installing that disk again does. Disks are erased only
// when Host.AllowWipe is set, and never one that is mounted, in use, protected
// or below the root.
//
// The same steps and parsers run on a simulated node: below a root other than
// "/" programs come from one directory of recorded tools, no process of this
// machine gets a signal, and results say that they are simulated.
package scrub
