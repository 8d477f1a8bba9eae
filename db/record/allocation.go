package record

import "time"

// AllocationImage is what is installed on the node of an allocation, from the record of its
// deployment and never from what was asked for.
type AllocationImage struct {
	ID          string    `json:"id"`
	Name        string    `json:"name"`
	Version     string    `json:"version,omitempty"`
	SHA256      string    `json:"sha256,omitempty"`
	InstalledAt time.Time `json:"installed_at"`
}

// AllocationNetwork is the network of an allocation.
type AllocationNetwork struct {
	ID   string `json:"id"`
	Kind string `json:"kind"`
	CIDR string `json:"cidr,omitempty"`
}

// AllocationConnection is where and how the tenant logs in. HostKey is public.
type AllocationConnection struct {
	Host          string    `json:"host"`
	Port          int       `json:"port"`
	User          string    `json:"user"`
	HostKey       string    `json:"host_key"`
	HostKeySHA256 string    `json:"host_key_sha256"`
	Since         time.Time `json:"since"`
}
