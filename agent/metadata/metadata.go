// Package metadata serves what a tenant's programs may read about their allocation on the node, in
// the form of the EC2 instance metadata service and of cloud-init's NoCloud. It listens on the
// link-local address 169.254.169.254, which only the node's loopback device has and only while a
// document is set. The document holds no secret: every program on the node can read it.
package metadata

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// Path is where the document lies on the node. Root alone writes it; the half of the agent that has
// no rights reads it.
const Path = "/etc/slipway/metadata.json"

const maxDocument = 512 << 10

// HolderPath is where the id of the allocation lies that the node is held for: from before its
// account is made until after that is gone. A control plane whose database is of yesterday learns
// from it that the node is not free. Root alone writes it.
const HolderPath = "/etc/slipway/allocation"

const maxHolder = 128

// ReadHolder reads the allocation that the node is held for. It returns "" when there is none, and
// an error when that cannot be told.
func ReadHolder(path string) (string, error) {
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if !st.Mode().IsRegular() || st.Size() > maxHolder+1 {
		return "", fmt.Errorf("%s is no file of at most %d bytes", path, maxHolder)
	}
	raw, err := os.ReadFile(path)
	id := strings.TrimSpace(string(raw))
	if err == nil && !spec.IsAllocationID(id) {
		err = fmt.Errorf("%s does not hold the id of an allocation", path)
	}
	return id, err
}

// Read reads the document. It returns nil when there is none.
func Read(path string) (*spec.InstanceMetadata, error) {
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() || st.Size() > maxDocument {
		return nil, fmt.Errorf("%s is no file of at most %d bytes", path, maxDocument)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var d spec.InstanceMetadata
	if err := spec.DecodeStrict(raw, &d); err != nil {
		return nil, fmt.Errorf("the metadata in %s cannot be read: %w", path, err)
	}
	return &d, nil
}

// versions are those that cloud-init asks for; all show the same.
var versions = []string{"2009-04-04", "2016-09-02", "2018-09-24", "2021-03-23", "latest"}

// tree is what is served: texts by path, and the lines of each directory.
type tree struct {
	texts map[string]string
	lines map[string][]string
}

func (t *tree) add(dir, name, text string) {
	if text == "" {
		return
	}
	t.texts[dir+"/"+name] = text
	t.list(dir, name)
}

// list adds a line to a directory, and the directory to those above it.
func (t *tree) list(dir, line string) {
	if slices.Contains(t.lines[dir], line) {
		return
	}
	t.lines[dir] = append(t.lines[dir], line)
	if i := strings.LastIndexByte(dir, '/'); i >= 0 {
		t.list(dir[:i], dir[i+1:]+"/")
	} else if dir != "" {
		t.list("", dir+"/")
	}
}

// identity is the instance identity document. It is not signed, so that it proves nothing
// elsewhere.
type identity struct {
	AccountID        string `json:"accountId,omitempty"`
	InstanceID       string `json:"instanceId"`
	InstanceType     string `json:"instanceType,omitempty"`
	ImageID          string `json:"imageId,omitempty"`
	PrivateIP        string `json:"privateIp,omitempty"`
	Region           string `json:"region,omitempty"`
	AvailabilityZone string `json:"availabilityZone,omitempty"`
	Version          string `json:"version"`
}

// zone returns the availability zone: the site and, where it is known, the rack.
func zone(d spec.InstanceMetadata) string {
	if d.Region != "" && d.Zone != "" {
		return d.Region + "-" + d.Zone
	}
	return d.Region + d.Zone
}

func newTree(d spec.InstanceMetadata) *tree {
	t := &tree{texts: map[string]string{}, lines: map[string][]string{}}
	const meta = "meta-data"
	for _, v := range [][2]string{
		{"instance-id", d.InstanceID}, {"instance-type", d.InstanceType}, {"ami-id", d.ImageID}, {"hostname", d.Hostname}, {"local-hostname", d.Hostname},
		{"local-ipv4", d.LocalIPv4}, {"public-ipv4", d.PublicIPv4}, {"ipv6", d.IPv6}, {"mac", d.MAC},
	} {
		t.add(meta, v[0], v[1])
	}
	t.add(meta+"/placement", "availability-zone", zone(d))
	t.add(meta+"/placement", "region", d.Region)
	t.add(meta+"/placement", "group-name", d.Group)
	for i, key := range d.PublicKeys {
		name := fmt.Sprint(i)
		t.texts[meta+"/public-keys/"+name+"/openssh-key"] = key
		t.lines[meta+"/public-keys/"+name] = []string{"openssh-key"}
		t.list(meta+"/public-keys", name+"=key-"+name)
	}
	for _, key := range slices.Sorted(maps.Keys(d.Tags)) {
		t.texts[meta+"/tags/instance/"+key] = d.Tags[key]
		t.list(meta+"/tags/instance", key) // a key may hold slashes, and is one line all the same
	}
	document, err := json.MarshalIndent(identity{d.ProjectID, d.InstanceID, d.InstanceType, d.ImageID, d.LocalIPv4, d.Region, zone(d), "2017-09-30"}, "", "  ")
	if err == nil {
		t.add("dynamic/instance-identity", "document", string(document))
	}
	return t
}

// noCloud is meta-data of cloud-init's NoCloud; JSON is YAML too.
func noCloud(d spec.InstanceMetadata) (string, error) {
	raw, err := json.Marshal(struct {
		InstanceID       string   `json:"instance-id"`
		LocalHostname    string   `json:"local-hostname,omitempty"`
		PublicKeys       []string `json:"public-keys,omitempty"`
		Region           string   `json:"region,omitempty"`
		AvailabilityZone string   `json:"availability-zone,omitempty"`
	}{d.InstanceID, d.Hostname, d.PublicKeys, d.Region, zone(d)})
	return string(raw) + "\n", err
}

// Handler serves the document that read returns, which it asks for with each request. Without one
// it answers 404 to everything.
func Handler(read func() (*spec.InstanceMetadata, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "the metadata is read only", http.StatusMethodNotAllowed)
			return
		}
		d, err := read()
		if err != nil {
			http.Error(w, "the metadata cannot be read", http.StatusInternalServerError)
			return
		}
		text, ok := "", false
		if d != nil {
			text, ok = lookUp(*d, strings.TrimPrefix(r.URL.Path, "/"))
		}
		if !ok {
			http.Error(w, "there is nothing of this name", http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write([]byte(text))
	})
}

func lookUp(d spec.InstanceMetadata, path string) (string, bool) {
	switch path {
	case "":
		return strings.Join(versions, "\n"), true
	case "nocloud/meta-data":
		text, err := noCloud(d)
		return text, err == nil
	case "nocloud/user-data":
		return "#cloud-config\n{}\n", true
	case "nocloud/vendor-data":
		return "", true
	}
	version, rest, _ := strings.Cut(path, "/")
	if !slices.Contains(versions, version) {
		return "", false
	}
	t := newTree(d)
	if text, ok := t.texts[rest]; ok {
		return text, true
	}
	lines, ok := t.lines[strings.TrimSuffix(rest, "/")]
	return strings.Join(lines, "\n"), ok
}
