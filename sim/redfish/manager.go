package redfishsim

import (
	"net/http"
	"time"
)

func (s *Server) managerNodes(t map[string]*node) {
	ids := []string{s.p.ManagerID}
	path := s.managerPath()
	add(t, path, s.manager)
	s.addAction(t, path+"/Actions/Manager.Reset", s.managerReset)
	if s.p.BaseboardID != "" {
		ids = append(ids, "HGX_BMC_0")
		board := root + "/Managers/HGX_BMC_0"
		add(t, board, func() obj {
			o := resource(board, "Manager.v1_14_0.Manager", "HGX_BMC_0", "HGX BMC")
			o["ManagerType"], o["FirmwareVersion"], o["Status"] = "BMC", s.p.Firmware, s.status(board)
			o["Links"] = obj{"ManagerForServers": links(s.baseboardPath())}
			return o
		})
	}
	addCollection(t, root+"/Managers", "ManagerCollection", "Managers", func() []string { return ids })
	nics := path + "/EthernetInterfaces"
	add(t, nics+"/eth0", func() obj {
		o := resource(nics+"/eth0", "EthernetInterface.v1_8_0.EthernetInterface", "eth0", "Manager Ethernet Interface")
		o["MACAddress"], o["SpeedMbps"], o["LinkStatus"], o["Status"] = s.bmcMAC(), 1000, "LinkUp", obj{"State": "Enabled", "Health": "OK"}
		return o
	})
	addCollection(t, nics, "EthernetInterfaceCollection", "Ethernet Interfaces", func() []string { return []string{"eth0"} })
	add(t, path+"/NetworkProtocol", func() obj {
		o := resource(path+"/NetworkProtocol", "ManagerNetworkProtocol.v1_9_0.ManagerNetworkProtocol", "NetworkProtocol", "Network Protocol")
		o["HTTPS"], o["IPMI"] = obj{"ProtocolEnabled": true, "Port": 443}, obj{"ProtocolEnabled": true, "Port": 623}
		return o
	})
}

// bmcMAC is the address one before the machine's first NIC in the last octet's
// place, as boards number them.
func (s *Server) bmcMAC() string {
	if nics := s.m.Spec().NICs; len(nics) > 0 && len(nics[0].MAC) == 17 {
		return nics[0].MAC[:15] + "FE"
	}
	return "52:54:00:00:00:FE"
}

func (s *Server) manager() obj {
	path := s.managerPath()
	o := resource(path, "Manager.v1_14_0.Manager", s.p.ManagerID, "Manager")
	o["ManagerType"], o["Model"], o["FirmwareVersion"], o["UUID"] = "BMC", s.p.Product, s.p.Firmware, s.m.Spec().UUID
	o["PowerState"], o["Status"] = "On", s.status(path)
	parts := []string{"EthernetInterfaces", "NetworkProtocol"}
	if !s.p.RackDevice {
		parts = append(parts, "HostInterfaces", "VirtualMedia")
	}
	for _, k := range parts {
		o[k] = link(path + "/" + k)
	}
	if len(s.p.ManagerLogs) > 0 {
		o["LogServices"] = link(path + "/LogServices")
	}
	o["Actions"] = obj{"#Manager.Reset": obj{
		"target":                            path + "/Actions/Manager.Reset",
		"ResetType@Redfish.AllowableValues": []string{"GracefulRestart", "ForceRestart"},
	}}
	o["Links"] = obj{"ManagerForServers": links(s.systemPath()), "ManagerForChassis": links(s.chassisPath())}
	if s.p.RackDevice {
		o["Links"] = obj{"ManagerForChassis": links(s.chassisPath())}
	}
	return o
}

// managerReset restarts the BMC: it answers, then is away for a virtual minute
// and has lost its sessions.
func (s *Server) managerReset(c *call) reply {
	o, ok := c.object()
	if !ok {
		return s.malformed()
	}
	if kind, _ := o["ResetType"].(string); kind != "GracefulRestart" && kind != "ForceRestart" {
		return s.fail(http.StatusBadRequest, "ActionParameterNotSupported", "This ResetType is not supported by the manager.", kind, "ResetType")
	}
	c.after = append(c.after, func() { s.resetBMC(time.Minute) })
	return s.done()
}
