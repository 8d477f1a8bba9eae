package record

// PXEFacts is what a PXE node said of itself (seed 000, NodeReport). Nothing of
// it is proven. An empty field is one that it did not name.
type PXEFacts struct {
	IPAddress    string `json:"ip_address,omitempty"`
	Hostname     string `json:"hostname,omitempty"`
	Vendor       string `json:"vendor,omitempty"`
	Model        string `json:"model,omitempty"`
	SerialNumber string `json:"serial_number,omitempty"`
	SystemUUID   string `json:"system_uuid,omitempty"`
}
