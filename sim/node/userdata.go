package simnode

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// firstBoot is what cloud-init documents ask for.
type firstBoot struct {
	hostname string
	hostKey  []byte // ed25519, PEM
	// logins are authorized keys by user; the user "default" is the image's.
	logins      map[string][]string
	defaultUser string
	files       []bootFile
	commands    [][]string
	scripts     []bootScript
}

type bootFile struct {
	path    string
	content []byte
	mode    uint32
	append  bool
}

type bootScript struct {
	name string
	body []byte
}

// cloudConfig is the part of cloud-config that a simulated node acts on.
type cloudConfig struct {
	Hostname   string            `yaml:"hostname"`
	HostKeys   map[string]string `yaml:"ssh_keys"`
	Keys       []string          `yaml:"ssh_authorized_keys"`
	Users      yaml.Node         `yaml:"users"`
	Files      []cloudFile       `yaml:"write_files"`
	Run        []yaml.Node       `yaml:"runcmd"`
	SystemInfo struct {
		DefaultUser struct {
			Name string `yaml:"name"`
		} `yaml:"default_user"`
	} `yaml:"system_info"`
}

type cloudFile struct {
	Path        string `yaml:"path"`
	Content     string `yaml:"content"`
	Encoding    string `yaml:"encoding"`
	Permissions string `yaml:"permissions"`
	Append      bool   `yaml:"append"`
}

// HostKey returns the SSH host key, in PEM, that a system has by its user-data; nil for one that
// makes its own.
func HostKey(userData []byte) ([]byte, error) {
	b, err := parseBoot(userData)
	return b.hostKey, err
}

// parseBoot reads one document: a MIME multipart, a #cloud-config or a script.
func parseBoot(raw []byte) (firstBoot, error) {
	b := firstBoot{logins: map[string][]string{}}
	raw = bytes.TrimLeft(raw, "\r\n")
	if len(raw) == 0 {
		return b, nil
	}
	lower := bytes.ToLower(raw[:min(len(raw), 64)])
	if bytes.HasPrefix(lower, []byte("content-type:")) || bytes.HasPrefix(lower, []byte("mime-version:")) {
		return b, b.addMIME(raw)
	}
	return b, b.add("", "user-data", raw)
}

func (b *firstBoot) addMIME(raw []byte) error {
	msg, err := mail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		return errors.New("the MIME header cannot be read")
	}
	kind, params, err := mime.ParseMediaType(msg.Header.Get("Content-Type"))
	if err != nil || !strings.HasPrefix(kind, "multipart/") {
		return errors.New("the MIME document is not multipart")
	}
	mr := multipart.NewReader(msg.Body, params["boundary"])
	for {
		p, err := mr.NextRawPart()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return errors.New("the MIME document is broken off")
		}
		var r io.Reader = p
		if strings.EqualFold(p.Header.Get("Content-Transfer-Encoding"), "base64") {
			r = base64.NewDecoder(base64.StdEncoding, p)
		}
		body, err := io.ReadAll(r)
		if err != nil {
			return errors.New("a MIME part cannot be decoded")
		}
		kind, _, _ := mime.ParseMediaType(p.Header.Get("Content-Type"))
		if err := b.add(kind, p.FileName(), body); err != nil {
			return err
		}
	}
}

func (b *firstBoot) add(kind, name string, body []byte) error {
	switch {
	case kind == "text/cloud-config" || bytes.HasPrefix(body, []byte("#cloud-config")):
		return b.addConfig(body)
	case kind == "text/x-shellscript" || bytes.HasPrefix(body, []byte("#!")):
		b.scripts = append(b.scripts, bootScript{name, body})
		return nil
	}
	return fmt.Errorf("a part of kind %q is not simulated", kind)
}

func (b *firstBoot) addConfig(body []byte) error {
	var c cloudConfig
	if err := yaml.Unmarshal(body, &c); err != nil {
		return errors.New("the cloud-config cannot be read") // the YAML error may quote secrets
	}
	if b.hostname == "" {
		b.hostname = c.Hostname
	}
	if k := c.HostKeys["ed25519_private"]; k != "" && b.hostKey == nil {
		b.hostKey = []byte(k)
	}
	if n := c.SystemInfo.DefaultUser.Name; n != "" {
		b.defaultUser = n
	}
	b.logins["default"] = append(b.logins["default"], c.Keys...)
	if err := b.addUsers(c.Users); err != nil {
		return err
	}
	for _, f := range c.Files {
		file, err := f.read()
		if err != nil {
			return err
		}
		b.files = append(b.files, file)
	}
	for _, n := range c.Run {
		var argv []string
		if n.Kind == yaml.ScalarNode {
			argv = strings.Fields(n.Value)
		} else if err := n.Decode(&argv); err != nil {
			return errors.New("a runcmd entry is neither text nor a list")
		}
		b.commands = append(b.commands, argv)
	}
	return nil
}

func (b *firstBoot) addUsers(n yaml.Node) error {
	if n.IsZero() {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		return errors.New("users is not a list")
	}
	for _, u := range n.Content {
		if u.Kind == yaml.ScalarNode {
			continue // "default", or a user without keys
		}
		var one struct {
			Name string   `yaml:"name"`
			Keys []string `yaml:"ssh_authorized_keys"`
		}
		if err := u.Decode(&one); err != nil || one.Name == "" {
			return errors.New("an entry of users has no name")
		}
		b.logins[one.Name] = append(b.logins[one.Name], one.Keys...)
	}
	return nil
}

func (f cloudFile) read() (bootFile, error) {
	out := bootFile{path: f.Path, content: []byte(f.Content), mode: 0o644, append: f.Append}
	switch strings.ToLower(f.Encoding) {
	case "", "text/plain":
	case "b64", "base64":
		raw, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(f.Content), ""))
		if err != nil {
			return out, fmt.Errorf("the content of %s is not base64", f.Path)
		}
		out.content = raw
	default:
		return out, fmt.Errorf("the encoding %q of %s is not simulated", f.Encoding, f.Path)
	}
	if f.Permissions != "" {
		mode, err := strconv.ParseUint(f.Permissions, 8, 32)
		if err != nil || mode > 0o7777 {
			return out, fmt.Errorf("the permissions of %s are not octal", f.Path)
		}
		out.mode = uint32(mode)
	}
	return out, nil
}

// keysOf are the authorized keys of a login.
func (b firstBoot) keysOf(user string) []string {
	name := b.defaultUser
	if name == "" {
		name = "ubuntu"
	}
	keys := b.logins[user]
	if user == "default" {
		return nil
	}
	if user == name {
		keys = slices.Concat(keys, b.logins["default"])
	}
	return keys
}
