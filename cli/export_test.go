package cli

import "github.com/spf13/cobra"

// Commands returns the tree of commands.
func Commands() *cobra.Command { return (&app{}).root() }

// Irreversible marks commands whose effect cannot be undone.
const Irreversible = irreversible

// MayBeEmpty marks flags for which an empty value has a meaning.
const MayBeEmpty = mayBeEmpty

// The owner of a connection on this machine, and the name that an identity provider is told.
var (
	PortOwner  = portOwner
	OwnerIn    = ownerIn
	DeviceName = deviceName
)
