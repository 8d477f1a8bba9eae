package bmc

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
)

// TestChanges_UnreadablePart: a part that could be read at the claim and cannot be now has changed,
// whatever the reason; one that could not be read then has not.
func TestChanges_UnreadablePart(t *testing.T) {
	t.Parallel()
	values := []providers.BMCSetting{{Name: "boot/order", Value: "Pxe"}}
	before := storedSettings{Values: values, Unreadable: []string{"/a: timeout"}}
	require.Empty(t, changes(before, storedSettings{Values: values, Unreadable: []string{"/a: 404"}}))
	require.Equal(t, []string{"could be read at the claim, and cannot be read: /b: 500"}, changes(before, storedSettings{Values: values, Unreadable: []string{"/b: 500"}}))
	require.Equal(t, []string{`boot/order was "Pxe" and is not shown`}, changes(before, storedSettings{Unreadable: []string{"/a: timeout"}}))
}
