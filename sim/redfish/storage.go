package redfishsim

import simhw "github.com/slipway-cloud/slipway/sim/hw"

// storageNodes lists the NVMe disks under one controller and the others under a
// second, the boot device's.
func (s *Server) storageNodes(t map[string]*node) {
	base := s.systemPath() + "/Storage"
	var nvme, other []simhw.Disk
	for _, d := range s.m.Spec().Disks {
		if d.NVMe {
			nvme = append(nvme, d)
		} else {
			other = append(other, d)
		}
	}
	names := [2]string{"NVMe", "Boot"}
	if s.p.Name == "Dell" {
		names = [2]string{"CPU.1", "AHCI.SL.6-1"}
	}
	var ids []string
	for i, disks := range [][]simhw.Disk{nvme, other} {
		if len(disks) > 0 {
			ids = append(ids, names[i])
			s.controllerNodes(t, base+"/"+names[i], names[i], disks)
		}
	}
	addCollection(t, base, "StorageCollection", "Storage", func() []string { return ids })
}

func (s *Server) controllerNodes(t map[string]*node, path, id string, disks []simhw.Disk) {
	var drives []string
	for i, d := range disks {
		drive := path + "/Drives/" + s.driveID(i, d)
		drives = append(drives, drive)
		add(t, drive, func() obj { return s.drive(drive, s.driveID(i, d), i, d) })
	}
	add(t, path+"/Volumes", func() obj { return collection(path+"/Volumes", "VolumeCollection", "Volumes") })
	add(t, path, func() obj {
		o := resource(path, "Storage.v1_13_0.Storage", id, id)
		o["Drives"], o["Drives@odata.count"] = links(drives...), len(drives)
		o["Volumes"], o["Status"] = link(path+"/Volumes"), s.status(path)
		o["StorageControllers"] = []any{obj{"@odata.id": path + "#/StorageControllers/0", "MemberId": "0", "Name": id, "Status": obj{"State": "Enabled", "Health": "OK"}}}
		return o
	})
}

func (s *Server) driveID(i int, d simhw.Disk) string {
	if s.p.Name == "Dell" && d.NVMe {
		return "Disk.Bay." + itoa(i+1) + ":Enclosure.Internal.0-1"
	}
	return d.Name
}

func (s *Server) drive(path, id string, i int, d simhw.Disk) obj {
	o := resource(path, "Drive.v1_12_1.Drive", id, d.Name)
	o["Model"], o["SerialNumber"], o["CapacityBytes"], o["MediaType"] = d.Model, d.Serial, d.Bytes, "SSD"
	o["Protocol"], o["Status"] = "SATA", s.status(path)
	if d.NVMe {
		o["Protocol"] = "NVMe"
		if s.p.Name == "Dell" {
			o["Protocol"] = "PCIe"
		}
	}
	o["PhysicalLocation"] = obj{"PartLocation": obj{"LocationOrdinalValue": i + 1, "LocationType": "Slot"}}
	if s.p.DriveLocationArray { // breaks clients that decode it as an object
		o["Location"] = []any{}
		o["Identifiers"] = []any{obj{"DurableName": nil, "DurableNameFormat": nil}}
	}
	return o
}
