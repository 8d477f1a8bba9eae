package redfishsim

import (
	"fmt"
	"net/http"

	simhw "github.com/slipway-cloud/slipway/sim/hw"
)

// sensor is one reading; off is what it reads while the host is off.
type sensor struct {
	id, name, kind, units string
	on, off               float64
	critical              float64 // upper; 0 for none
}

func (s *Server) sensors() []sensor {
	list := []sensor{
		{"InletTemp", "Inlet Temp", "Temperature", "Cel", 24, 22, 42},
		{"CPU1Temp", "CPU1 Temp", "Temperature", "Cel", 58, 26, 95},
		{"CPU2Temp", "CPU2 Temp", "Temperature", "Cel", 57, 26, 95},
		{"SystemPower", "System Power", "Power", "W", 2100, 40, 0},
	}
	for i := range 6 {
		list = append(list, sensor{fmt.Sprintf("Fan%d", i+1), fmt.Sprintf("Fan %d", i+1), "Rotational", "RPM", 9800, 0, 0})
	}
	for i := range s.gpuCount() {
		list = append(list, sensor{fmt.Sprintf("GPU%dTemp", i+1), fmt.Sprintf("GPU %d Temp", i+1), "Temperature", "Cel", 41, 25, 87})
	}
	return list
}

func (s *Server) reading(x sensor) float64 {
	if p := s.m.Power(); p == simhw.On || p == simhw.PoweringOff {
		return x.on
	}
	return x.off
}

func (s *Server) chassisNodes(t map[string]*node) {
	ids := []string{s.p.ChassisID}
	path := s.chassisPath()
	n := add(t, path, s.chassis)
	n.patch = func(_ *call, o obj) reply { return s.patchChassis(n, o) }
	s.sensorNodes(t, path)
	add(t, path+"/Thermal", s.thermal)
	add(t, path+"/Power", s.powerReadings)
	if s.p.BaseboardID != "" {
		board := []string{"HGX_Chassis_0"}
		for i := range s.m.Spec().GPUs {
			board = append(board, fmt.Sprintf("HGX_GPU_SXM_%d", i+1))
		}
		for _, id := range board {
			s.boardChassis(t, id)
		}
		ids = append(ids, board...)
	}
	for i := range s.p.Cartridges {
		id := fmt.Sprintf("CBC_%d", i)
		ids = append([]string{id}, ids...) // listed before the chassis that the system links
		s.cartridge(t, id)
	}
	ids = append(ids, s.cards...)
	if s.p.Leaks {
		s.leakNodes(t, path)
	}
	addCollection(t, root+"/Chassis", "ChassisCollection", "Chassis", func() []string { return ids })
}

func (s *Server) chassis() obj {
	spec, path := s.m.Spec(), s.chassisPath()
	o := resource(path, "Chassis.v1_20_0.Chassis", s.p.ChassisID, "Chassis")
	o["ChassisType"], o["Manufacturer"], o["Model"], o["SerialNumber"] = "RackMount", s.p.Manufacturer, spec.Model, spec.Serial
	o["PowerState"], o["Status"] = string(s.m.Power()), s.status(path)
	if s.p.Name == "Lenovo" { // recorded without a roll-up
		delete(o["Status"].(obj), "HealthRollup")
	}
	s.light(o)
	o["Sensors"], o["Thermal"], o["Power"] = link(path+"/Sensors"), link(path+"/Thermal"), link(path+"/Power")
	if s.p.Leaks {
		o["ThermalSubsystem"] = link(path + "/ThermalSubsystem")
	}
	o["Links"] = obj{"ComputerSystems": links(s.systemPath()), "ManagedBy": links(s.managerPath())}
	if s.p.RackDevice {
		o["Links"] = obj{"ManagedBy": links(s.managerPath())}
	}
	return o
}

func (s *Server) patchChassis(n *node, o obj) reply {
	for k, v := range o {
		if _, ok := s.lightWish(k, v); !ok {
			return s.fail(http.StatusBadRequest, "PropertyUnknown", "The property "+k+" cannot be written or its value is not acceptable.", k)
		}
	}
	for k, v := range o {
		on, _ := s.lightWish(k, v)
		s.setLight(v, on)
	}
	return s.patched(n)
}

func (s *Server) boardChassis(t map[string]*node, id string) {
	path := root + "/Chassis/" + id
	add(t, path, func() obj {
		o := resource(path, "Chassis.v1_20_0.Chassis", id, id)
		o["ChassisType"], o["Manufacturer"], o["Model"], o["Status"] = "Module", "NVIDIA", s.m.Spec().GPUModel, s.status(path)
		o["SerialNumber"] = "HGX" + s.m.Spec().Serial
		o["Links"] = obj{"ComputerSystems": links(s.baseboardPath())}
		return o
	})
}

// cartridge is a cable cartridge, which says that it belongs to the system; the system does not
// link it.
func (s *Server) cartridge(t map[string]*node, id string) {
	path := root + "/Chassis/" + id
	add(t, path, func() obj {
		o := resource(path, "Chassis.v1_22_0.Chassis", id, id)
		o["ChassisType"], o["Manufacturer"], o["Model"], o["Status"] = "Module", "NVIDIA", "OberonCBCL", s.status(path)
		o["SerialNumber"] = id + s.m.Spec().Serial
		o["Links"] = obj{"ComputerSystems": links(s.systemPath())}
		return o
	})
}

func (s *Server) sensorNodes(t map[string]*node, chassis string) {
	base := chassis + "/Sensors"
	var ids []string
	for _, x := range s.sensors() {
		ids = append(ids, x.id)
		path := base + "/" + x.id
		add(t, path, func() obj {
			o := resource(path, "Sensor.v1_5_0.Sensor", x.id, x.name)
			o["ReadingType"], o["Reading"], o["ReadingUnits"], o["Status"] = x.kind, s.reading(x), x.units, s.status(path)
			if x.critical > 0 {
				o["Thresholds"] = obj{"UpperCritical": obj{"Reading": x.critical}}
			}
			return o
		})
	}
	addCollection(t, base, "SensorCollection", "Sensors", func() []string { return ids })
}

// thermal is the older form of the same readings.
func (s *Server) thermal() obj {
	path := s.chassisPath() + "/Thermal"
	var fans, temps []any
	for _, x := range s.sensors() {
		status := s.status(s.chassisPath() + "/Sensors/" + x.id)
		switch x.kind {
		case "Rotational":
			fans = append(fans, obj{
				"@odata.id": fmt.Sprintf("%s#/Fans/%d", path, len(fans)), "MemberId": x.id,
				"Name": x.name, "Reading": s.reading(x), "ReadingUnits": "RPM", "Status": status,
			})
		case "Temperature":
			temps = append(temps, obj{
				"@odata.id": fmt.Sprintf("%s#/Temperatures/%d", path, len(temps)), "MemberId": x.id,
				"Name": x.name, "ReadingCelsius": s.reading(x), "UpperThresholdCritical": x.critical, "Status": status,
			})
		}
	}
	o := resource(path, "Thermal.v1_7_0.Thermal", "Thermal", "Thermal")
	o["Fans"], o["Temperatures"] = fans, temps
	return o
}

func (s *Server) powerReadings() obj {
	path := s.chassisPath() + "/Power"
	o := resource(path, "Power.v1_7_0.Power", "Power", "Power")
	var supplies []any
	for i := range 4 {
		supplies = append(supplies, obj{
			"@odata.id": fmt.Sprintf("%s#/PowerSupplies/%d", path, i), "MemberId": itoa(i),
			"Name": fmt.Sprintf("PSU %d", i+1), "PowerCapacityWatts": 3000, "Status": obj{"State": "Enabled", "Health": "OK"},
		})
	}
	o["PowerSupplies"] = supplies
	o["PowerControl"] = []any{obj{"@odata.id": path + "#/PowerControl/0", "MemberId": "0", "Name": "System Power Control", "PowerConsumedWatts": s.reading(sensor{on: 2100, off: 40})}}
	return o
}
