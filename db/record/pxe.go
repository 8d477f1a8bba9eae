package record

// PXEFacts is what a PXE node said of itself (the body of POST /report). Nothing of
// it is proven. An empty field is one that it did not name.
type PXEFacts struct {
	IPAddress    string `json:"ip_address,omitempty"`
	Hostname     string `json:"hostname,omitempty"`
	Vendor       string `json:"vendor,omitempty"`
	Model        string `json:"model,omitempty"`
	SerialNumber string `json:"serial_number,omitempty"`
	SystemUUID   string `json:"system_uuid,omitempty"`
}

// PlannedHardware is the hardware that is to take a migrating node's place, as
// an operator said.
type PlannedHardware struct {
	// MACs are normalised; the first is the one that it boots with.
	MACs         []string `json:"mac_addresses"`
	SerialNumber string   `json:"serial_number,omitempty"`
	SystemUUID   string   `json:"system_uuid,omitempty"`
	// Disks is DisksNew, DisksMoved or DisksSame.
	Disks string `json:"disks"`
	// BMC is that of the new hardware; nil keeps the node's.
	BMC *PlannedBMC `json:"bmc,omitempty"`
	// ReplacedBy is the job that has put the node on this hardware; "" while it
	// is only planned.
	ReplacedBy string `json:"replaced_by,omitempty"`
}

// The disks of the hardware that takes a node's place.
const (
	DisksNew   = "new"   // it brings its own, which are installed again
	DisksMoved = "moved" // the node's disks move into it
	DisksSame  = "same"  // it is the node's own, which is erased, proven clean and installed again
)

// PlannedBMC is a BMC by reference: no secret.
type PlannedBMC struct {
	Address         string `json:"address"`
	Protocol        string `json:"protocol"`
	CredentialRef   string `json:"credential_ref"`
	SystemID        string `json:"system_id,omitempty"`
	IPMICipherSuite int    `json:"ipmi_cipher_suite,omitempty"`
}
