package config

import (
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"time"
)

// Instance is where instances are made. Without a provider none can be.
type Instance struct {
	// MockDuration is how long a simulated instance takes to become ready; 0 turns the simulated
	// provider off.
	MockDuration time.Duration `yaml:"mock_duration"`
	// ScalewayProjectID turns Scaleway on.
	ScalewayProjectID string `yaml:"scaleway_project_id"`
	ScalewayAccessKey string `yaml:"scaleway_access_key"`
	ScalewayKeyRef    string `yaml:"scaleway_key_ref"`
	// ScalewayURL is empty for Scaleway itself.
	ScalewayURL string `yaml:"scaleway_url"`
	// ScalewayZones and the sources are lists, separated by commas.
	ScalewayZones string `yaml:"scaleway_zones"`
	ScalewayImage string `yaml:"scaleway_image"`
	SSHSources    string `yaml:"ssh_sources"`
	WorkerSources string `yaml:"worker_sources"`
	// Installation tells the servers of this installation from those of another one in the same
	// project.
	Installation string        `yaml:"installation"`
	ArchiveAfter time.Duration `yaml:"archive_after"`
	// CustomerLimit is how many live instances each project may have by requests of its members; 0
	// leaves them to operators.
	CustomerLimit int `yaml:"customer_limit"`
}

// ScalewayEnabled reports whether instances can be made at Scaleway.
func (i Instance) ScalewayEnabled() bool { return i.ScalewayProjectID != "" }

// Enabled reports whether there is a provider.
func (i Instance) Enabled() bool { return i.ScalewayEnabled() || i.MockDuration > 0 }

// Zones returns the members of ScalewayZones.
func (i Instance) Zones() []string { return splitList(i.ScalewayZones) }

// Sources returns the networks from which SSH, and those from which the worker's ports, may be
// reached.
func (i Instance) Sources() (ssh, worker []string) {
	return splitList(i.SSHSources), splitList(i.WorkerSources)
}

func defaultInstance() Instance {
	return Instance{ScalewayZones: "fr-par-2", ScalewayImage: "ubuntu_noble_gpu_os_12", ArchiveAfter: 30 * day}
}

var (
	uuidForm         = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	accessKeyForm    = regexp.MustCompile(`^SCW[A-Z0-9]{17}$`)
	installationForm = regexp.MustCompile(`^[a-z0-9-]{1,40}$`)
)

// maxCustomerLimit is what one look at a project's instances reads.
const maxCustomerLimit = 500

func (i Instance) validate(v *validator) {
	if i.MockDuration < 0 || i.MockDuration > time.Hour {
		v.add("instance.mock_duration", "must be 0 to 1h")
	}
	if i.ArchiveAfter < time.Hour {
		v.add("instance.archive_after", "must be at least 1h")
	}
	if i.CustomerLimit < 0 || i.CustomerLimit > maxCustomerLimit {
		v.add("instance.customer_limit", "must be 0 to "+strconv.Itoa(maxCustomerLimit))
	}
	if !i.ScalewayEnabled() {
		return
	}
	if !uuidForm.MatchString(i.ScalewayProjectID) {
		v.add("instance.scaleway_project_id", "must be the id of a project of Scaleway, a UUID")
	}
	if !accessKeyForm.MatchString(i.ScalewayAccessKey) {
		v.add("instance.scaleway_access_key", "must be an access key of Scaleway, such as SCW and 17 more characters")
	}
	if i.ScalewayKeyRef == "" {
		v.add("instance.scaleway_key_ref", "must name the secret that holds the secret key of Scaleway")
	}
	if !installationForm.MatchString(i.Installation) {
		v.add("instance.installation", "must be 1 to 40 of a-z, 0-9 and '-', and another one for each installation that uses the project")
	}
	if len(i.Zones()) == 0 {
		v.add("instance.scaleway_zones", "must name the zones in which instances may be made")
	}
	ssh, worker := i.Sources()
	for field, list := range map[string][]string{"instance.ssh_sources": ssh, "instance.worker_sources": worker} {
		if len(list) == 0 {
			v.add(field, "must name the networks of the workers of Slipway, such as 198.51.100.0/24: nothing else reaches an instance")
		}
		for _, text := range list {
			if n, err := netip.ParsePrefix(text); err != nil || n != n.Masked() || n.Bits() == 0 {
				v.add(field, "must be networks such as 198.51.100.0/24 without host bits, and not the whole internet")
				break
			}
		}
	}
	if i.ScalewayURL != "" {
		v.url("instance.scaleway_url", i.ScalewayURL, "https", "http")
		if u, err := url.Parse(i.ScalewayURL); err == nil && u.Scheme == "http" && !isLoopback(u.Hostname()) {
			v.add("instance.scaleway_url", "must be an https URL: the key would cross the network readable")
		}
	}
}
