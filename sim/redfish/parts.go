package redfishsim

import (
	"fmt"
	"slices"
)

// The modes that NVIDIA's firmware tells of a BlueField.
const (
	ModeNIC = "NicMode"
	ModeDPU = "DpuMode"
)

// dpuID names one of the DPUs in the host.
func dpuID(i int) string { return fmt.Sprintf("BlueField_%d", i) }

// dpuNodes are the DPUs in the host: a card in a chassis of its own, and the system on the card,
// which cannot be reset from here and tells its mode.
func (s *Server) dpuNodes(t map[string]*node) (systems, chassis []string) {
	for i := range s.p.HostDPUs {
		id, card := dpuID(i), fmt.Sprintf("BlueField_Card_%d", i)
		systems, chassis = append(systems, id), append(chassis, card)
		path, at := root+"/Systems/"+id, root+"/Chassis/"+card
		serial := fmt.Sprintf("MT%sD%02d", s.m.Spec().Serial, i)
		add(t, path, func() obj {
			o := resource(path, "ComputerSystem.v1_17_0.ComputerSystem", id, id)
			o["Manufacturer"], o["Model"], o["SerialNumber"], o["PartNumber"] = "NVIDIA", "BlueField-3 DPU", serial, "900-9D3B6-00CV-AA0"
			o["SystemType"], o["PowerState"], o["BiosVersion"], o["Status"] = "DPU", string(s.m.Power()), "BlueField:4.7.0", s.status(path)
			o["Actions"], o["Boot"] = obj{}, obj{}
			o["Oem"] = obj{"Nvidia": link(path + "/Oem/Nvidia")}
			o["Links"] = obj{"Chassis": links(at), "ManagedBy": links(s.managerPath())}
			return o
		})
		add(t, path+"/Oem/Nvidia", func() obj {
			o := resource(path+"/Oem/Nvidia", "NvidiaComputerSystem.v1_0_0.NvidiaComputerSystem", "Nvidia", "Nvidia")
			s.mu.Lock()
			defer s.mu.Unlock()
			if o["Mode"] = s.modes[id]; s.modes[id] == "" {
				o["Mode"] = ModeDPU
			}
			return o
		})
		add(t, at, func() obj {
			o := resource(at, "Chassis.v1_21_0.Chassis", card, "BlueField card")
			o["ChassisType"], o["Manufacturer"], o["Model"], o["SerialNumber"], o["Status"] = "Card", "NVIDIA", "BlueField-3 DPU", serial, s.status(at)
			o["NetworkAdapters"] = link(at + "/NetworkAdapters")
			o["Links"] = obj{"ComputerSystems": links(path), "ManagedBy": links(s.managerPath())}
			return o
		})
		addCollection(t, at+"/NetworkAdapters", "NetworkAdapterCollection", "Network Adapters", func() []string { return []string{"Adapter"} })
		add(t, at+"/NetworkAdapters/Adapter", func() obj {
			o := resource(at+"/NetworkAdapters/Adapter", "NetworkAdapter.v1_9_0.NetworkAdapter", "Adapter", "Adapter")
			o["Manufacturer"], o["Model"], o["SerialNumber"], o["PartNumber"] = "NVIDIA", "BlueField-3 DPU", serial, "900-9D3B6-00CV-AA0"
			o["Controllers"] = []any{obj{"FirmwarePackageVersion": "32.41.1000"}}
			o["Status"] = s.status(at + "/NetworkAdapters/Adapter")
			return o
		})
	}
	return systems, chassis
}

// SetDPUMode changes the mode of a DPU in the host, as its owner does who configures the card.
func (s *Server) SetDPUMode(i int, mode string) error {
	if i < 0 || i >= s.p.HostDPUs || !slices.Contains([]string{ModeNIC, ModeDPU}, mode) {
		return fmt.Errorf("no DPU %d, or no mode %q", i, mode)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.modes[dpuID(i)] = mode
	return nil
}

// SetField gives a resource another value of a property that it has, as another part in its place
// would.
func (s *Server) SetField(path, property string, value any) error {
	n := s.lookup(path)
	if n == nil || n.get == nil {
		return &pathError{path}
	}
	if _, ok := n.get()[property]; !ok {
		return fmt.Errorf("%s has no property %s", path, property)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fields[path] == nil {
		s.fields[path] = map[string]any{}
	}
	s.fields[path][property] = value
	return nil
}

// replaced puts the values of SetField into an answer.
func (s *Server) replaced(path string, o obj) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for property, value := range s.fields[path] {
		o[property] = value
	}
}

// leakNodes are the leak detectors of a machine that is cooled by liquid.
func (s *Server) leakNodes(t map[string]*node, chassis string) {
	base := chassis + "/ThermalSubsystem"
	add(t, base, func() obj {
		o := resource(base, "ThermalSubsystem.v1_3_0.ThermalSubsystem", "ThermalSubsystem", "Thermal Subsystem")
		o["LeakDetection"], o["Status"] = link(base+"/LeakDetection"), s.status(base)
		return o
	})
	at := base + "/LeakDetection"
	add(t, at, func() obj {
		o := resource(at, "LeakDetection.v1_0_0.LeakDetection", "LeakDetection", "Leak Detection")
		o["LeakDetectors"], o["Status"] = link(at+"/LeakDetectors"), s.status(at)
		return o
	})
	ids := []string{"Chassis_0_LeakDetector_0_ColdPlate", "Chassis_0_LeakDetector_1_Manifold"}
	for _, id := range ids {
		add(t, at+"/LeakDetectors/"+id, func() obj {
			path := at + "/LeakDetectors/" + id
			o := resource(path, "LeakDetector.v1_1_0.LeakDetector", id, id)
			o["LeakDetectorType"], o["DetectorState"], o["Status"] = "Moisture", "OK", s.status(path)
			return o
		})
	}
	addCollection(t, at+"/LeakDetectors", "LeakDetectorCollection", "Leak Detectors", func() []string { return ids })
}
