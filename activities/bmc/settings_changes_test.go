package bmc

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/providers"
)

// TestChanges_UnreadablePart: a part that cannot be read counts as changed; one that the BMC never
// had does not, and one that it had does.
func TestChanges_UnreadablePart(t *testing.T) {
	t.Parallel()
	values := []providers.BMCSetting{{Name: "boot/order", Value: "Pxe"}}
	before := storedSettings{Values: values, NotOffered: []string{"/a"}}
	require.Empty(t, changes(before, storedSettings{Values: values, NotOffered: []string{"/a"}}))
	require.Equal(t, []string{"cannot be read: /b: 500"}, changes(before, storedSettings{Values: values, NotOffered: []string{"/a"}, Unreadable: []string{"/b: 500"}}))
	require.Equal(t, []string{"was there at the claim, and is not: /b"}, changes(before, storedSettings{Values: values, NotOffered: []string{"/a", "/b"}}))
	require.Equal(t, []string{`boot/order was "Pxe" and is not shown`}, changes(before, storedSettings{NotOffered: []string{"/a"}}))
}

// TestChanges_AddedAndRemoved: an added value that is there only at the claim, or only now, has
// changed.
func TestChanges_AddedAndRemoved(t *testing.T) {
	t.Parallel()
	without := storedSettings{Values: []providers.BMCSetting{{Name: "boot/order", Value: "Pxe"}}}
	with := storedSettings{Values: without.Values, Added: []providers.BMCSetting{{Name: "directory/LDAP", Value: "enabled true"}}, NotRead: []string{"keys"}}
	require.Equal(t, []string{"directory/LDAP is new: enabled true"}, changes(without, with))
	require.Equal(t, []string{"keys"}, with.notVerified(without))
	require.Equal(t, []string{`directory/LDAP was "enabled true" and is not shown`}, changes(with, without))
}

// TestChanges_OfAddedValues: a value that could not be read at the claim is named and is no change,
// and neither is a value that is empty now. A value that could be read then and cannot be read now
// has changed.
func TestChanges_OfAddedValues(t *testing.T) {
	t.Parallel()
	const media, key, keys = "manager/1/virtual_media/", "account/2/key/1", "account/2/key/"
	report := func(values ...string) storedSettings {
		added := []providers.BMCSetting{}
		for i := 0; i < len(values); i += 2 {
			added = append(added, providers.BMCSetting{Name: values[i], Value: values[i+1]})
		}
		return storedSettings{Added: added}
	}
	before, now := report(media, providers.SettingUnread, key, "a"), report(media+"CD", "x", key, "a")
	require.Empty(t, changes(before, now))
	require.Equal(t, []string{media + " of the BMC: it could not be read at the claim"}, now.notVerified(before))
	require.Empty(t, changes(report(media+"CD", "x"), report(media+"CD", providers.SettingNone)))
	require.Len(t, changes(report(media+"CD", providers.SettingNone), report(media+"CD", "x")), 1)
	require.Equal(t, []string{keys + " is new: not read", key + ` was "a" and is not shown`}, changes(report(key, "a"), report(keys, providers.SettingUnread)))
	require.Empty(t, changes(report(keys, providers.SettingUnread), report(keys, providers.SettingUnread)))
}
