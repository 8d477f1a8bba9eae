package redfishsim

import (
	"fmt"
	"net/http"
	"strings"
)

func (s *Server) systemPath() string    { return root + "/Systems/" + s.p.SystemID }
func (s *Server) baseboardPath() string { return root + "/Systems/" + s.p.BaseboardID }
func (s *Server) managerPath() string   { return root + "/Managers/" + s.p.ManagerID }
func (s *Server) chassisPath() string   { return root + "/Chassis/" + s.p.ChassisID }

// gpuHome is the system that lists the GPUs as processors.
func (s *Server) gpuHome() string {
	if s.p.BaseboardID != "" {
		return s.baseboardPath()
	}
	return s.systemPath()
}

func (s *Server) systemNodes(t map[string]*node) {
	ids := []string{s.p.SystemID}
	if s.p.BaseboardID != "" {
		ids = []string{s.p.BaseboardID, s.p.SystemID}
		add(t, s.baseboardPath(), s.baseboard)
	}
	dpus, cards := s.dpuNodes(t)
	ids = append(ids, dpus...)
	s.cards = cards
	addCollection(t, root+"/Systems", "ComputerSystemCollection", "Systems", func() []string { return ids })
	n := add(t, s.systemPath(), s.system)
	n.patch = func(c *call, o obj) reply { return s.patchSystem(c, n, o) }
	s.addAction(t, s.systemPath()+"/Actions/ComputerSystem.Reset", s.reset)
	add(t, s.systemPath()+"/ResetActionInfo", s.resetInfo)
	if s.p.Settings != SettingsNone {
		n := add(t, s.settingsPath(), s.settings)
		n.patch = func(c *call, o obj) reply { return s.patchSettings(c, n, o) }
	}
	s.processorNodes(t)
	s.memoryNodes(t)
	s.nicNodes(t)
}

func (s *Server) system() obj {
	spec, path := s.m.Spec(), s.systemPath()
	o := resource(path, "ComputerSystem.v1_16_0.ComputerSystem", s.p.SystemID, "System")
	o["Manufacturer"], o["Model"], o["SerialNumber"], o["UUID"] = s.p.Manufacturer, spec.Model, spec.Serial, spec.UUID
	if s.p.HideIdentity {
		o["Model"], o["SerialNumber"] = "", ""
	}
	s.mu.Lock()
	o["AssetTag"] = s.assetTag
	s.mu.Unlock()
	o["SystemType"], o["PowerState"], o["BiosVersion"] = "Physical", string(s.m.Power()), "2.1.5"
	o["Status"] = s.status(path)
	if s.p.DPU {
		o["SystemType"] = "DPU"
	}
	o["ProcessorSummary"] = obj{"Count": 2, "LogicalProcessorCount": spec.CPUs, "Model": cpuModel, "Status": s.status(path + "/Processors/CPU.1")}
	o["MemorySummary"] = obj{"TotalSystemMemoryGiB": spec.MemoryMiB / 1024, "Status": obj{"State": "Enabled", "Health": "OK"}}
	if s.p.HideCounts {
		delete(o, "ProcessorSummary")
		delete(o, "MemorySummary")
	}
	boot := s.bootFields()
	boot["BootOrder"] = s.bootOrder()
	o["Boot"] = boot
	if s.p.Settings != SettingsNone {
		o["@Redfish.Settings"] = obj{
			"@odata.type": "#Settings.v1_3_0.Settings", "SettingsObject": link(s.settingsPath()),
			"SupportedApplyTimes": []string{"OnReset"}, "Messages": []any{},
		}
	}
	s.light(o)
	action := obj{"target": path + "/Actions/ComputerSystem.Reset"}
	if s.p.ResetByInfo || s.p.Name == "Lenovo" {
		action["@Redfish.ActionInfo"] = path + "/ResetActionInfo"
	}
	if !s.p.ResetByInfo {
		action["ResetType@Redfish.AllowableValues"] = s.p.ResetTypes
	}
	o["Actions"] = obj{"#ComputerSystem.Reset": action}
	for _, k := range []string{"Processors", "Memory", "EthernetInterfaces", "SecureBoot", "Storage"} {
		o[k] = link(path + "/" + k)
	}
	if len(s.p.SystemLogs) > 0 {
		o["LogServices"] = link(path + "/LogServices")
	}
	o["Links"] = obj{"Chassis": links(s.chassisPath()), "ManagedBy": links(s.managerPath())}
	return o
}

// light shows the locator in the vendor's properties.
func (s *Server) light(o obj) {
	on := s.m.Identify()
	if s.p.Locator {
		o["LocationIndicatorActive"] = on
	}
	if s.p.LED {
		o["IndicatorLED"] = "Off"
		if on {
			s.mu.Lock()
			o["IndicatorLED"] = s.ledWord
			s.mu.Unlock()
		}
	}
}

// lightWish reads a locator property: on or off, and whether k and v are one
// that this BMC takes.
func (s *Server) lightWish(k string, v any) (on, ok bool) {
	switch k {
	case "LocationIndicatorActive":
		on, ok = v.(bool)
		return on, ok && s.p.Locator
	case "IndicatorLED":
		return v != "Off", s.p.LED && (v == "Lit" || v == "Blinking" || v == "Off")
	}
	return false, false
}

// setLight switches the locator as a checked PATCH asked.
func (s *Server) setLight(v any, on bool) {
	if word, ok := v.(string); ok && on {
		s.mu.Lock()
		s.ledWord = word
		s.mu.Unlock()
	}
	s.m.SetIdentify(on)
}

// patchSystem takes AssetTag, the light and Boot; a refused one changes nothing.
func (s *Server) patchSystem(c *call, n *node, o obj) reply {
	for k, v := range o {
		tag, isText := v.(string)
		_, isLight := s.lightWish(k, v)
		if k != "Boot" && !(k == "AssetTag" && isText && len(tag) <= 64) && !isLight {
			return s.fail(http.StatusBadRequest, "PropertyUnknown", "The property "+k+" cannot be written or its value is not acceptable.", k)
		}
	}
	if boot, ok := o["Boot"]; ok {
		if rep := s.patchBoot(c, boot, false); rep != nil {
			return *rep
		}
	}
	for k, v := range o {
		if on, ok := s.lightWish(k, v); ok {
			s.setLight(v, on)
		}
	}
	if tag, ok := o["AssetTag"].(string); ok {
		s.mu.Lock()
		s.assetTag = tag
		s.mu.Unlock()
	}
	return s.patched(n)
}

func (s *Server) resetInfo() obj {
	o := resource(s.systemPath()+"/ResetActionInfo", "ActionInfo.v1_1_2.ActionInfo", "ResetActionInfo", "Reset")
	o["Parameters"] = []any{obj{"Name": "ResetType", "Required": true, "DataType": "String", "AllowableValues": s.p.ResetTypes}}
	return o
}

// baseboard is the GPU board as a system of its own, without a Reset action.
func (s *Server) baseboard() obj {
	path := s.baseboardPath()
	o := resource(path, "ComputerSystem.v1_17_0.ComputerSystem", s.p.BaseboardID, s.p.BaseboardID)
	o["Manufacturer"], o["Model"], o["SerialNumber"] = s.p.Manufacturer, "HGX H100 8-GPU", "HGX"+s.m.Spec().Serial
	o["SystemType"], o["PowerState"] = "Physical", string(s.m.Power())
	o["Status"] = s.status(path)
	o["Boot"] = obj{}
	o["Actions"] = obj{}
	o["Processors"] = link(path + "/Processors")
	o["Links"] = obj{"Chassis": links(root + "/Chassis/HGX_Chassis_0"), "ManagedBy": links(root + "/Managers/HGX_BMC_0")}
	return o
}

const cpuModel = "INTEL(R) XEON(R) PLATINUM 8480+"

func (s *Server) processorNodes(t map[string]*node) {
	spec := s.m.Spec()
	var cpus, gpus []string
	for i := range 2 {
		path := fmt.Sprintf("%s/Processors/CPU.%d", s.systemPath(), i+1)
		cpus = append(cpus, path)
		add(t, path, func() obj { return s.processor(path, "CPU", cpuModel, "Intel(R) Corporation", spec.CPUs/4) })
	}
	for i := range s.gpuCount() {
		path := s.gpuHome() + "/Processors/" + gpuID(s.p, i)
		gpus = append(gpus, path)
		add(t, path, func() obj {
			o := s.processor(path, "GPU", spec.GPUModel, "NVIDIA", 0)
			o["SerialNumber"] = fmt.Sprintf("%sG%02d", spec.Serial, i)
			o["UUID"] = fmt.Sprintf("%s%04x", spec.UUID[:min(len(spec.UUID), 32)], i)
			return o
		})
	}
	home := func(system string, members []string) {
		path := system + "/Processors"
		add(t, path, func() obj { return collection(path, "ProcessorCollection", "Processors", members...) })
	}
	if s.p.BaseboardID != "" {
		home(s.systemPath(), cpus)
		home(s.baseboardPath(), gpus)
		return
	}
	home(s.systemPath(), append(cpus, gpus...))
}

// gpuCount is how many GPUs this BMC shows: a DPU and a rack device have none.
func (s *Server) gpuCount() int {
	if s.p.DPU || s.p.RackDevice {
		return 0
	}
	return s.m.Spec().GPUs
}

func gpuID(p Personality, i int) string {
	switch p.Name {
	case "NVIDIA", "NVIDIA-GB200":
		return fmt.Sprintf("GPU_SXM_%d", i+1)
	case "Dell":
		return fmt.Sprintf("Video.Slot.%d-1", i+1)
	}
	return fmt.Sprintf("GPU%d", i+1)
}

func (s *Server) processor(path, kind, model, maker string, cores int) obj {
	id := path[strings.LastIndexByte(path, '/')+1:]
	o := resource(path, "Processor.v1_16_0.Processor", id, id)
	o["ProcessorType"], o["Model"], o["Manufacturer"], o["Status"] = kind, model, maker, s.status(path)
	if cores > 0 {
		o["TotalCores"], o["TotalThreads"] = cores, cores*2
		o["ProcessorArchitecture"], o["InstructionSet"], o["Socket"] = "x86", "x86-64", id
	}
	return o
}

func (s *Server) memoryNodes(t map[string]*node) {
	const dimms = 16
	base := s.systemPath() + "/Memory"
	size := s.m.Spec().MemoryMiB / dimms
	var ids []string
	for i := range dimms {
		id := fmt.Sprintf("DIMM.%d", i+1)
		ids = append(ids, id)
		path := base + "/" + id
		add(t, path, func() obj {
			o := resource(path, "Memory.v1_16_0.Memory", id, id)
			o["CapacityMiB"], o["MemoryDeviceType"], o["Status"] = size, "DDR5", s.status(path)
			return o
		})
	}
	addCollection(t, base, "MemoryCollection", "Memory", func() []string { return ids })
}

func (s *Server) nicNodes(t map[string]*node) {
	base := s.systemPath() + "/EthernetInterfaces"
	var ids []string
	for i, nic := range s.m.Spec().NICs {
		id := itoa(i + 1)
		if s.p.Name == "Dell" {
			id = fmt.Sprintf("NIC.Integrated.1-%d-1", i+1)
		}
		ids = append(ids, id)
		path := base + "/" + id
		add(t, path, func() obj {
			o := resource(path, "EthernetInterface.v1_8_0.EthernetInterface", id, nic.Name)
			o["MACAddress"], o["PermanentMACAddress"], o["SpeedMbps"] = strings.ToUpper(nic.MAC), strings.ToUpper(nic.MAC), nic.SpeedMbps
			o["LinkStatus"], o["Status"] = "LinkDown", s.status(path)
			if nic.VLAN > 0 {
				o["LinkStatus"] = "LinkUp"
			}
			return o
		})
	}
	addCollection(t, base, "EthernetInterfaceCollection", "Ethernet Interfaces", func() []string { return ids })
}
