package maassim

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatOverridesVendorData(t *testing.T) {
	t.Parallel()
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	_, err := w.Write([]byte("#cloud-config\nwrite_files: []\n"))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	parts := func(headers, body string) string {
		return "Content-Type: multipart/mixed; boundary=XX\nMIME-Version: 1.0\n\n--XX\n" + headers + "\n\n" + body + "\n--XX--\n"
	}
	plain := "#cloud-config\nruncmd:\n- [true]\n"
	for name, c := range map[string]struct {
		doc  string
		want bool
	}{
		"nothing":                    {"", false},
		"a script":                   {"#!/bin/sh\nruncmd: no\n", false},
		"other keys":                 {"#cloud-config\npackages: [jq]\nusers:\n- name: runcmd\n", false},
		"runcmd":                     {plain, true},
		"write_files":                {"#cloud-config\nwrite_files:\n- path: /a\n", true},
		"nested only":                {"#cloud-config\nx:\n  runcmd: []\n", false},
		"merge_how as text":          {plain + "merge_how: 'list(append)+dict(no_replace,recurse_list)+str()'\n", false},
		"merge_how as a list":        {"#cloud-config\nmerge_how:\n - name: list\n   settings: [append]\n - name: dict\n   settings: [no_replace, recurse_list]\nruncmd: []\n", false},
		"merge_type":                 {plain + "merge_type: list(prepend)+dict()\n", false},
		"merge of dictionaries only": {plain + "merge_how: dict(recurse_array)\n", true},
		"merge_how in a comment":     {plain + "# merge_how: list(append)\n", true},
		"list elsewhere":             {"#cloud-config\nmerge_how: str(append)\nlist: append\nruncmd: []\n", true},
		"gzip":                       {z.String(), true},
		"a part":                     {parts("Content-Type: text/cloud-config", plain), true},
		"a part with a header":       {parts("Content-Type: text/cloud-config\nMerge-Type: list(append)+dict(recurse_list)+str()", plain), false},
		"a script part":              {parts("Content-Type: text/x-shellscript", "#!/bin/sh\nruncmd: x\n"), false},
		"a base64 part": {parts("Content-Type: text/cloud-config\nContent-Transfer-Encoding: base64",
			base64.StdEncoding.EncodeToString([]byte(plain))), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, overridesVendorData([]byte(c.doc)))
		})
	}
}

func TestUserDataIsDecodedOnlyWhenItRoundTrips(t *testing.T) {
	t.Parallel()
	require.Nil(t, decodeUserData(""))
	require.Equal(t, "#cloud-config\n", string(decodeUserData(base64.StdEncoding.EncodeToString([]byte("#cloud-config\n")))))
	require.Equal(t, "#cloud-config\n", string(decodeUserData("#cloud-config\n")), "stored as it came")
	require.Equal(t, "hello", string(decodeUserData("aGVs\nbG8=")))
}
