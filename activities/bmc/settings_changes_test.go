package bmc

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
)

// TestChanges_UnreadablePart: a part that cannot be read counts as changed; one that the BMC never had
// does not, and one that it had does.
func TestChanges_UnreadablePart(t *testing.T) {
	t.Parallel()
	values := []providers.BMCSetting{{Name: "boot/order", Value: "Pxe"}}
	before := storedSettings{Values: values, NotOffered: []string{"/a"}}
	require.Empty(t, changes(before, storedSettings{Values: values, NotOffered: []string{"/a"}}))
	require.Equal(t, []string{"cannot be read: /b: 500"}, changes(before, storedSettings{Values: values, NotOffered: []string{"/a"}, Unreadable: []string{"/b: 500"}}))
	require.Equal(t, []string{"was there at the claim, and is not: /b"}, changes(before, storedSettings{Values: values, NotOffered: []string{"/a", "/b"}}))
	require.Equal(t, []string{`boot/order was "Pxe" and is not shown`}, changes(before, storedSettings{NotOffered: []string{"/a"}}))
}
