package spec

import (
	"regexp"
	"slices"
	"time"
)

// InstanceType is a type of servers that instances may have.
type InstanceType struct {
	Name     string `json:"name"`
	Provider string `json:"provider"`
	GPU      string `json:"gpu"`
	// StartupTimeout is how long a worker may take from the start of its server to ready.
	StartupTimeout time.Duration `json:"-"`
}

// InstanceTypes lists the types in the order of their GPUs.
func InstanceTypes() []InstanceType {
	const half = 30 * time.Minute
	return []InstanceType{
		{"L4-1-24G", "scaleway", "NVIDIA L4, 24 GB", half},
		{"L40S-1-48G", "scaleway", "NVIDIA L40S, 48 GB", half},
		{"H100-1-80G", "scaleway", "NVIDIA H100, 80 GB", half},
		{"MOCK-GPU", "mock", "none; the server is simulated", 10 * time.Minute},
	}
}

// InstanceStartup returns how long a worker on a type may take to become ready.
func InstanceStartup(name string) time.Duration {
	for _, t := range InstanceTypes() {
		if t.Name == name {
			return t.StartupTimeout
		}
	}
	return 30 * time.Minute
}

// MaxDrain is the longest time that an instance drains.
const MaxDrain = 24 * time.Hour

var (
	instanceName  = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	instanceWord  = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,63}$`)
	instanceModel = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,95}(/[A-Za-z0-9][A-Za-z0-9_.-]{0,95})?$`)
)

// InstanceSpec is what is asked for with an instance.
type InstanceSpec struct {
	Name, Provider, Zone, Type, Image, Model string
	DrainSeconds                             int
}

// Validate returns an *InvalidError that names every wrong field.
func (s InstanceSpec) Validate() error {
	var p problems
	if !instanceName.MatchString(s.Name) {
		p.add("name", "must be 1 to 63 of a-z, 0-9 and '-', with neither end a '-'")
	}
	i := slices.IndexFunc(InstanceTypes(), func(t InstanceType) bool { return t.Name == s.Type && t.Provider == s.Provider })
	if i < 0 {
		p.add("type", "the provider has no such type; see the list of types")
	}
	if !instanceWord.MatchString(s.Zone) {
		p.add("zone", "must be the name of a zone of the provider")
	}
	if s.Image != "" && !instanceWord.MatchString(s.Image) {
		p.add("image", "must be the label of an image")
	}
	if !instanceModel.MatchString(s.Model) {
		p.add("model", "must be the name of a model, such as meta-llama/Llama-3.1-8B-Instruct")
	}
	if s.DrainSeconds < 0 || s.DrainSeconds > int(MaxDrain.Seconds()) {
		p.add("drain_seconds", "must be 0 to %d", int(MaxDrain.Seconds()))
	}
	return p.err()
}
