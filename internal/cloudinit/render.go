package cloudinit

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// MaxSize is the most that Render writes, in bytes.
const MaxSize = 64 << 10

// The names of the parts.
const (
	configPart  = "slipway-config.yaml"
	installPart = "slipway-install.sh"
	bundlePart  = "site-bundle"
)

// mergeBundle lets a site's bundle add to what Slipway says and never replace
// it.
const mergeBundle = "list(append)+dict(no_replace,recurse_list)+str()"

// reserved are the keys that a bundle may not use: the first two would drop
// what MAAS installs (see the package comment), the next two would undo
// mergeBundle, the last would replace MAAS's choice of default user.
var reserved = []string{"write_files", "runcmd", "merge_how", "merge_type", "system_info"}

// Render writes the user-data of a node's first boot: a MIME document of a
// cloud-config part, the install script and the site's bundle. The same input
// gives the same bytes.
//
// The bytes are SECRET: they hold the node's private host key and an enrolment
// token. They go to MAAS and nowhere else, and into no log, history or error.
func Render(in Input) ([]byte, error) {
	keys, hostPublic, err := in.check()
	if err != nil {
		return nil, fmt.Errorf("cloud-init cannot be written: %w", err)
	}
	config, err := in.cloudConfig(keys, hostPublic)
	if err != nil {
		return nil, err
	}
	agent := in.Agent
	agent.PlatformUsers = slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(agent.PlatformUsers), in.user()))))
	script, err := agent.installScript()
	if err != nil {
		return nil, err
	}
	parts := []part{
		{name: configPart, kind: "text/cloud-config", body: config},
		{name: installPart, kind: "text/x-shellscript", body: script},
	}
	if len(in.Bundle) > 0 {
		p, err := bundle(in.Bundle)
		if err != nil {
			return nil, err
		}
		parts = append(parts, p)
	}
	out := multipart(parts)
	if len(out) > MaxSize {
		return nil, fmt.Errorf("cloud-init is %d bytes and may be %d: make the site's bundle smaller, for example by fetching what it installs", len(out), MaxSize)
	}
	return out, nil
}

// user is one entry of cloud-config's users.
type user struct {
	Name       string   `yaml:"name"`
	Gecos      string   `yaml:"gecos"`
	Shell      string   `yaml:"shell"`
	Sudo       string   `yaml:"sudo"`
	LockPasswd bool     `yaml:"lock_passwd"`
	Keys       []string `yaml:"ssh_authorized_keys"`
}

// user is the site's login.
func (in Input) user() string {
	if in.User == "" {
		return DefaultUser
	}
	return in.User
}

// cloudConfig says who may log in and under which host key the node answers.
func (in Input) cloudConfig(keys []string, hostPublic string) ([]byte, error) {
	doc := struct {
		Hostname   string            `yaml:"hostname"`
		DeleteKeys bool              `yaml:"ssh_deletekeys"`
		HostKeys   map[string]string `yaml:"ssh_keys"`
		Keys       []string          `yaml:"ssh_authorized_keys,omitempty"`
		Users      []any             `yaml:"users,omitempty"`
	}{Hostname: in.Hostname, DeleteKeys: true,
		HostKeys: map[string]string{"ed25519_private": in.HostKey.Reveal(), "ed25519_public": hostPublic}}
	if in.user() == DefaultUser {
		doc.Keys = keys
	} else {
		doc.Users = []any{"default", user{Name: in.User, Gecos: "Slipway", Shell: "/bin/bash",
			Sudo: "ALL=(ALL) NOPASSWD:ALL", LockPasswd: true, Keys: keys}}
	}
	body, err := yaml.Marshal(doc)
	if err != nil {
		return nil, errors.New("cloud-init cannot be written: its values cannot be encoded as YAML")
	}
	return append([]byte("#cloud-config\n"), body...), nil
}

// bundle checks the site's own part.
func bundle(raw []byte) (part, error) {
	switch {
	case bytes.HasPrefix(raw, []byte("#!")):
		return part{name: bundlePart + ".sh", kind: "text/x-shellscript", body: raw}, nil
	case !bytes.HasPrefix(raw, []byte("#cloud-config\n")) && !bytes.HasPrefix(raw, []byte("#cloud-config\r\n")):
		return part{}, errors.New("the site's bootstrap bundle must start with #cloud-config, or with #! for a script")
	}
	var top map[string]yaml.Node
	if err := yaml.Unmarshal(raw, &top); err != nil {
		return part{}, errors.New("the site's bootstrap bundle is not a YAML mapping")
	}
	for _, key := range reserved {
		if _, used := top[key]; used {
			return part{}, fmt.Errorf("the site's bootstrap bundle may not use %s (that would undo what MAAS or Slipway sets up); do the same in a bundle that starts with #! and is a script", key)
		}
	}
	return part{name: bundlePart + ".yaml", kind: "text/cloud-config", body: raw, merge: mergeBundle}, nil
}

// part is one part of the MIME document.
type part struct {
	name, kind, merge string
	body              []byte
}

// multipart joins the parts. Bodies are base64, so that none can hold the
// boundary, which comes from the content for the sake of equal bytes.
func multipart(parts []part) []byte {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d %s\n", len(p.body), p.name)
		h.Write(p.body)
	}
	boundary := "slipway-" + hex.EncodeToString(h.Sum(nil)[:12])
	var b bytes.Buffer
	fmt.Fprintf(&b, "Content-Type: multipart/mixed; boundary=\"%s\"\nMIME-Version: 1.0\n\n", boundary)
	for _, p := range parts {
		fmt.Fprintf(&b, "--%s\nContent-Type: %s; charset=\"utf-8\"\nMIME-Version: 1.0\nContent-Transfer-Encoding: base64\n", boundary, p.kind)
		fmt.Fprintf(&b, "Content-Disposition: attachment; filename=\"%s\"\n", p.name)
		if p.merge != "" {
			fmt.Fprintf(&b, "Merge-Type: %s\n", p.merge)
		}
		fmt.Fprintf(&b, "\n%s\n", wrap(base64.StdEncoding.EncodeToString(p.body)))
	}
	fmt.Fprintf(&b, "--%s--\n", boundary)
	return b.Bytes()
}

func wrap(s string) string {
	var lines []string
	for chunk := range slices.Chunk([]byte(s), 76) {
		lines = append(lines, string(chunk))
	}
	return strings.Join(lines, "\n")
}
