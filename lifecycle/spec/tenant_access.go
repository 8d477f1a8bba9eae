package spec

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The limits of the tenant's keys on a node. RSA keys have a size in bits.
const (
	MaxTenantKeys   = 20
	MinTenantRSA    = 3072
	MaxTenantRSA    = 16384
	maxTenantKey    = 8 << 10
	maxAllocationID = 128
)

// CreateUserArgs are the arguments of allocation.create_user.
type CreateUserArgs struct {
	AllocationID string `json:"allocation_id"`
	User         string `json:"user"`
	// Root lets the account become root by sudo, without a password.
	Root bool `json:"root"`
}

// SetKeysArgs are the arguments of allocation.set_keys. Keys are all keys that may log in to the
// account afterwards, one "type base64" each; with none nobody may.
type SetKeysArgs struct {
	AllocationID string   `json:"allocation_id"`
	User         string   `json:"user"`
	Keys         []string `json:"keys"`
}

// SetMetadataArgs are the arguments of allocation.set_metadata. Without a document nothing is
// served any more.
type SetMetadataArgs struct {
	AllocationID string            `json:"allocation_id"`
	Document     *InstanceMetadata `json:"document,omitempty"`
}

// InstanceMetadata is what the programs of a tenant may read on the node about the allocation. It
// holds no secret.
type InstanceMetadata struct {
	InstanceID   string `json:"instance_id"`
	InstanceType string `json:"instance_type,omitempty"` // name of the SKU
	ImageID      string `json:"image_id,omitempty"`
	ProjectID    string `json:"project_id,omitempty"`
	Hostname     string `json:"hostname,omitempty"`
	LocalIPv4    string `json:"local_ipv4,omitempty"`
	PublicIPv4   string `json:"public_ipv4,omitempty"`
	IPv6         string `json:"ipv6,omitempty"`
	MAC          string `json:"mac,omitempty"`
	// Region is the site; Zone is the rack within it, and Group a set of nodes on one fabric.
	Region     string            `json:"region,omitempty"`
	Zone       string            `json:"zone,omitempty"`
	Group      string            `json:"group,omitempty"`
	PublicKeys []string          `json:"public_keys,omitempty"` // as in SetKeysArgs
	Tags       map[string]string `json:"tags,omitempty"`
}

var allocationID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*$`)

// IsAllocationID reports whether a text has the form of the id of an allocation.
func IsAllocationID(id string) bool {
	return len(id) <= maxAllocationID && allocationID.MatchString(id)
}

func checkTenant(allocation, user string) error {
	if !IsAllocationID(allocation) {
		return fmt.Errorf("allocation_id %q is not the id of an allocation", allocation)
	}
	if !accountName.MatchString(user) || user == "root" {
		return fmt.Errorf("user %q is not the name of a tenant's account", user)
	}
	return nil
}

func (a *CreateUserArgs) check() error { return checkTenant(a.AllocationID, a.User) }

func (a *SetKeysArgs) check() error {
	return errors.Join(checkTenant(a.AllocationID, a.User), checkTenantKeys("keys", a.Keys))
}

func (a *SetMetadataArgs) check() error {
	if !IsAllocationID(a.AllocationID) {
		return fmt.Errorf("allocation_id %q is not the id of an allocation", a.AllocationID)
	}
	if a.Document == nil {
		return nil
	}
	if a.Document.InstanceID != a.AllocationID {
		return fmt.Errorf("document.instance_id %q is not the allocation's id", a.Document.InstanceID)
	}
	return a.Document.check()
}

// The limits of the metadata, in bytes and entries.
const (
	maxMetadataText = 512
	maxMetadataTags = 50
)

// check refuses what could not be served as one line of text, or under its own path.
func (d *InstanceMetadata) check() error {
	errs := []error{checkTenantKeys("document.public_keys", d.PublicKeys)}
	for name, text := range map[string]string{"instance_type": d.InstanceType, "image_id": d.ImageID, "project_id": d.ProjectID, "hostname": d.Hostname,
		"local_ipv4": d.LocalIPv4, "public_ipv4": d.PublicIPv4, "ipv6": d.IPv6, "mac": d.MAC, "region": d.Region, "zone": d.Zone, "group": d.Group} {
		if !isLine(text) {
			errs = append(errs, fmt.Errorf("document.%s is not one line of at most %d bytes", name, maxMetadataText))
		}
	}
	if len(d.Tags) > maxMetadataTags {
		errs = append(errs, fmt.Errorf("document.tags has more than %d entries", maxMetadataTags))
	}
	for key, value := range d.Tags {
		if key == "" || !isLine(key) || !isLine(value) || strings.HasSuffix(key, "/") {
			errs = append(errs, fmt.Errorf("document.tags has an entry that is not one line of at most %d bytes, or a key that ends in /", maxMetadataText))
		}
	}
	return errors.Join(errs...)
}

func isLine(s string) bool {
	return len(s) <= maxMetadataText && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

func checkTenantKeys(field string, keys []string) error {
	if len(keys) > MaxTenantKeys {
		return fmt.Errorf("%s has %d entries; at most %d keys may log in", field, len(keys), MaxTenantKeys)
	}
	for i, k := range keys {
		if err := CheckTenantKey(k); err != nil {
			return fmt.Errorf("%s[%d] %w", field, i, err)
		}
		if slices.Contains(keys[:i], k) {
			return fmt.Errorf("%s[%d] is there twice", field, i)
		}
	}
	return nil
}

// tenantKeyTypes are the types of public keys that may log in. RSA has a least size too.
var tenantKeyTypes = []string{
	"ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521",
	"sk-ssh-ed25519@openssh.com", "sk-ecdsa-sha2-nistp256@openssh.com", keyTypeRSA,
}

const keyTypeRSA = "ssh-rsa"

// CheckTenantKey returns an error unless the line is exactly "type base64" of a key that may log
// in: without options, which run commands, and without a comment. It is the last check before a key
// goes into an authorized_keys file; whoever takes a key from a customer parses it and writes it
// again.
func CheckTenantKey(line string) error {
	kind, text, ok := strings.Cut(line, " ")
	if !ok || len(line) > maxTenantKey || !slices.Contains(tenantKeyTypes, kind) {
		return errors.New(`is not a line "type base64" of an accepted type, without options and comment`)
	}
	blob, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || base64.StdEncoding.EncodeToString(blob) != text { // the decoder passes line breaks over
		return errors.New("is not a public key in base64")
	}
	var fields [][]byte
	for len(blob) > 0 {
		if len(blob) < 4 || uint64(binary.BigEndian.Uint32(blob)) > uint64(len(blob)-4) {
			return errors.New("is a public key that breaks off")
		}
		n := binary.BigEndian.Uint32(blob)
		fields, blob = append(fields, blob[4:4+n]), blob[4+n:]
	}
	if len(fields) < 2 || string(fields[0]) != kind {
		return errors.New("is a public key of another type than it says")
	}
	if kind != keyTypeRSA {
		return nil
	}
	if len(fields) != 3 || len(fields[2]) == 0 {
		return errors.New("is not an RSA key")
	}
	modulus := fields[2]
	for len(modulus) > 1 && modulus[0] == 0 {
		modulus = modulus[1:]
	}
	if size := len(modulus)*8 - bits.LeadingZeros8(modulus[0]); size < MinTenantRSA || size > MaxTenantRSA {
		return fmt.Errorf("is an RSA key of %d bits; %d to %d are accepted", size, MinTenantRSA, MaxTenantRSA)
	}
	return nil
}
