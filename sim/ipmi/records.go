package ipmisim

// SensorRecord is a compact sensor record (IPMI 2.0, section 43.2) of a sensor
// of the BMC. readingType 0x01 is an analog sensor, 0x6f one whose states are
// those of its type. A name is at most 16 bytes.
func SensorRecord(id uint16, number, sensorType, readingType byte, name string) []byte {
	name = name[:min(len(name), 16)]
	r := make([]byte, 32+len(name))
	r[0], r[1] = byte(id), byte(id>>8)
	r[2], r[3], r[4] = 0x51, 0x02, byte(len(r)-5)
	r[5], r[7] = 0x20, number // owner and sensor
	r[8], r[9] = 0x07, 0x01   // entity: system board
	r[12], r[13] = sensorType, readingType
	r[31] = 0xc0 | byte(len(name))
	copy(r[32:], name)
	return r
}

// Inventory is an inventory record (FRU) with a product area.
func Inventory(manufacturer, model, serial string) []byte {
	area := []byte{1, 0, 0x19}
	for _, field := range []string{manufacturer, model, "", "", serial, "", ""} {
		field = field[:min(len(field), 60)]
		if field == "" {
			area = append(area, 0)
			continue
		}
		area = append(append(area, 0xc0|byte(len(field))), field...)
	}
	area = append(area, 0xc1)
	for (len(area)+1)%8 != 0 {
		area = append(area, 0)
	}
	area[1] = byte((len(area) + 1) / 8)
	header := []byte{1, 0, 0, 0, 1, 0, 0}
	return append(sealed(header), sealed(area)...)
}

// sealed appends the byte that makes the sum zero.
func sealed(b []byte) []byte {
	var sum byte
	for _, v := range b {
		sum += v
	}
	return append(b, -sum)
}
