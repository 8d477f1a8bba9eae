package redfishsim

import (
	"strings"
	"time"
)

// buildNodes makes every resource that stays for the server's life.
func (s *Server) buildNodes() map[string]*node {
	t := map[string]*node{}
	add(t, "/redfish", func() obj { return obj{"v1": root + "/"} })
	add(t, root, s.serviceRoot)
	add(t, root+"/odata", s.odata)
	t[root+"/$metadata"] = &node{raw: s.metadata, ctype: "application/xml"}
	if !s.p.RackDevice {
		s.systemNodes(t)
		s.settingsNodes(t)
		s.storageNodes(t)
		s.mediaNodes(t)
	}
	s.managerNodes(t)
	s.chassisNodes(t)
	s.logNodes(t)
	s.serviceNodes(t)
	return t
}

// serviceRoot can be read without a login.
func (s *Server) serviceRoot() obj {
	o := resource(root, "ServiceRoot.v1_15_0.ServiceRoot", "RootService", "Root Service")
	o["RedfishVersion"], o["UUID"], o["Vendor"], o["Product"] = s.p.Version, s.m.Spec().UUID, s.p.Name, s.p.Product
	for _, k := range []string{"Systems", "Managers", "Chassis", "SessionService", "AccountService", "UpdateService"} {
		o[k] = link(root + "/" + k)
	}
	if s.p.RackDevice {
		delete(o, "Systems")
	}
	o["Tasks"] = link(root + "/TaskService")
	o["Links"] = obj{"Sessions": link(sessionsPath)}
	o["ProtocolFeaturesSupported"] = obj{
		"ExpandQuery": obj{"ExpandAll": false, "Levels": false, "Links": false, "NoLinks": true, "MaxLevels": 1},
		"SelectQuery": false, "FilterQuery": false, "OnlyMemberQuery": false, "ExcerptQuery": false,
	}
	return o
}

func (s *Server) odata() obj {
	value := []any{obj{"name": "Service", "kind": "Singleton", "url": root}}
	for _, k := range []string{"Systems", "Managers", "Chassis", "SessionService", "AccountService", "UpdateService"} {
		value = append(value, obj{"name": k, "kind": "Singleton", "url": root + "/" + k})
	}
	return obj{"@odata.context": root + "/$metadata", "value": value}
}

func (s *Server) metadata() []byte {
	var b strings.Builder
	b.WriteString(`<?xml version="1.0" encoding="UTF-8"?><edmx:Edmx xmlns:edmx="http://docs.oasis-open.org/odata/ns/edmx" Version="4.0">`)
	for _, ns := range []string{"ServiceRoot", "ComputerSystem", "Manager", "Chassis", "SessionService", "AccountService"} {
		b.WriteString(`<edmx:Reference Uri="http://redfish.dmtf.org/schemas/v1/` + ns + `_v1.xml"><edmx:Include Namespace="` + ns + `"/></edmx:Reference>`)
	}
	b.WriteString(`<edmx:DataServices><Schema xmlns="http://docs.oasis-open.org/odata/ns/edm" Namespace="Service"><EntityContainer Name="Service" Extends="ServiceRoot.ServiceContainer"/></Schema></edmx:DataServices></edmx:Edmx>`)
	return []byte(b.String())
}

// serviceNodes are sessions, accounts, firmware and tasks.
func (s *Server) serviceNodes(t map[string]*node) {
	add(t, root+"/SessionService", func() obj {
		o := resource(root+"/SessionService", "SessionService.v1_1_8.SessionService", "SessionService", "Session Service")
		o["ServiceEnabled"], o["SessionTimeout"], o["Sessions"] = true, int(s.p.SessionTimeout/time.Second), link(sessionsPath)
		return o
	})
	addCollection(t, sessionsPath, "SessionCollection", "Sessions", s.sessionIDs)
	policy := add(t, root+"/AccountService", s.accountService)
	policy.patch = func(_ *call, o obj) reply { return s.patchAccountService(policy, o) }
	accounts := addCollection(t, accountsPath, "ManagerAccountCollection", "Accounts", s.accountIDs)
	if s.p.AccountSlots == 0 {
		accounts.post = s.createAccount
	}
	s.firmwareNodes(t)
	s.taskNodes(t)
}

func (s *Server) firmwareNodes(t map[string]*node) {
	base := root + "/UpdateService/FirmwareInventory"
	add(t, root+"/UpdateService", func() obj {
		o := resource(root+"/UpdateService", "UpdateService.v1_11_0.UpdateService", "UpdateService", "Update Service")
		o["ServiceEnabled"], o["FirmwareInventory"], o["Status"] = true, link(base), obj{"State": "Enabled", "Health": "OK"}
		o["Actions"] = obj{} // firmware is shown, not changed
		return o
	})
	versions := [][2]string{{"BMC", s.p.Firmware}}
	if !s.p.RackDevice {
		versions = append(versions, [2]string{"BIOS", "2.1.5"})
	}
	for i := range s.gpuCount() {
		versions = append(versions, [2]string{"GPU_" + itoa(i+1), "96.00.89.00.01"})
	}
	var ids []string
	for _, v := range versions {
		ids = append(ids, v[0])
		path := base + "/" + v[0]
		add(t, path, func() obj {
			o := resource(path, "SoftwareInventory.v1_8_0.SoftwareInventory", v[0], v[0])
			o["Version"], o["Updateable"], o["Status"] = s.firmwareVersion(v[0], v[1]), true, s.status(path)
			return o
		})
	}
	addCollection(t, base, "SoftwareInventoryCollection", "Firmware Inventory", func() []string { return ids })
}
