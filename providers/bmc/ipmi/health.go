package ipmi

import (
	"context"
	"fmt"

	"github.com/bougou/go-ipmi/pkg/command/chassis"
	"github.com/bougou/go-ipmi/pkg/command/sensor"

	"github.com/slipway-cloud/slipway/providers"
)

// severity of a finding.
type severity int

const (
	healthOK severity = iota
	healthWarning
	healthCritical
)

func (s severity) String() string { return [...]string{"OK", "Warning", "Critical"}[s] }

// maxFindings bounds what a report lists.
const maxFindings = 256

// report gathers findings.
type report struct {
	worst severity
	// unread: a part could not be read, so that nothing found is not OK.
	unread  bool
	out     providers.BMCHealth
	probes  []providers.BMCProbe
	dropped int
	missing []string // what could not be read, and why
}

// unreadPart notes a part that could not be read. Nothing found beside it is not OK.
func (r *report) unreadPart(what string, kind byte, why string) {
	r.unread = true
	r.unknown(what)
	r.probe(what, kind, "Unknown")
	r.miss(what, why)
}

func (r *report) miss(what, why string) {
	if len(r.missing) < maxFindings {
		r.missing = append(r.missing, what+": "+why)
	}
}

func (r *report) problem(s severity, what string) {
	r.worst = max(r.worst, s)
	if len(r.out.Problems) < maxFindings {
		r.out.Problems = append(r.out.Problems, what+": "+s.String())
	}
}

func (r *report) unknown(what string) {
	if len(r.out.Unknown) < maxFindings {
		r.out.Unknown = append(r.out.Unknown, what)
	}
}

// Health rolls up the faults of the chassis and the sensors. A sensor without
// a reading is listed as Unknown. The whole is Unknown when no sensor could be
// read, or one of them failed to be, unless something is known to be worse:
// without sensors IPMI cannot tell that a machine is well.
func (b *BMC) Health(ctx context.Context) (providers.BMCHealth, error) {
	r, err := b.readHealth(ctx, "ipmi.health")
	if err != nil {
		return providers.BMCHealth{}, err
	}
	return r.out, nil
}

func (b *BMC) readHealth(ctx context.Context, op string) (*report, error) {
	status, err := b.status(ctx, op)
	if err != nil {
		return nil, err
	}
	r := &report{}
	if s, faults := chassisFaults(status); s != healthOK {
		for _, f := range faults {
			r.problem(f.severity, f.what)
			r.probe(f.what, 0, f.severity.String())
		}
	}
	if err := b.sensorHealth(ctx, op, r); err != nil {
		return nil, err
	}
	r.out.Overall = r.worst.String()
	if r.worst == healthOK && r.unread {
		r.out.Overall = "Unknown"
	}
	return r, nil
}

type fault struct {
	severity severity
	what     string
}

// chassisFaults reads the fault bits of the chassis status (table 28-3).
func chassisFaults(s chassis.GetChassisStatusResponse) (severity, []fault) {
	var worst severity
	var out []fault
	for _, f := range []struct {
		is bool
		fault
	}{
		{s.PowerFault, fault{healthCritical, "main power"}},
		{s.PowerOverload, fault{healthCritical, "power overload"}},
		{s.PowerControlFault, fault{healthCritical, "power control"}},
		{s.DriveFault, fault{healthCritical, "drive"}},
		{s.CollingFanFault, fault{healthCritical, "cooling or fan"}},
		{s.InterLock, fault{healthWarning, "chassis interlock"}},
		{s.ChassisIntrusionActive, fault{healthWarning, "chassis intrusion"}},
	} {
		if f.is {
			worst = max(worst, f.severity)
			out = append(out, f.fault)
		}
	}
	return worst, out
}

func (b *BMC) sensorHealth(ctx context.Context, op string, r *report) error {
	records, err := b.sensors(ctx, op)
	if err != nil {
		if !tolerable(err) && !providers.IsKind(err, providers.KindTooBig) {
			return err
		}
		r.unreadPart("sensor records that could not be read", 0, string(providers.KindOf(err)))
	}
	read := 0
	for _, s := range records {
		label := fmt.Sprintf("sensor %s (0x%02x)", s.name, s.number)
		if s.owner != bmcAddress || s.lun != 0 {
			r.unknown(label + " belongs to another controller")
			r.probe(label, s.sensorType, "Unknown")
			r.miss(label, "it belongs to another controller")
			continue
		}
		var res sensor.GetSensorReadingResponse
		if err := b.ask(ctx, op, &sensor.GetSensorReadingRequest{SensorNumber: s.number}, &res, reads); err != nil {
			if !tolerable(err) {
				return err
			}
			if !absent(err) {
				r.unreadPart(label, s.sensorType, string(providers.KindOf(err)))
				continue
			}
			r.unknown(label)
			r.probe(label, s.sensorType, "Unknown")
			continue
		}
		if res.ReadingUnavailable || res.SensorScanningDisabled {
			r.unknown(label)
			r.probe(label, s.sensorType, "Unknown")
			continue
		}
		read++
		sev := sensorSeverity(s, res)
		r.probe(label, s.sensorType, sev.String())
		if sev != healthOK {
			r.problem(sev, label)
		}
	}
	if read == 0 {
		r.unreadPart("sensors: the BMC has none with a reading", 0, "no sensor was read")
	}
	return nil
}

// bmcAddress is the owner of the BMC's own sensors.
const bmcAddress = 0x20

// thresholdReading is the reading type of analog sensors.
const thresholdReading = 0x01

// sensorSeverity rates a reading by its state bits, so that no conversion of
// the value is needed.
func sensorSeverity(s sensorRecord, r sensor.GetSensorReadingResponse) severity {
	if s.readingType == thresholdReading {
		switch {
		case r.Above_UNR, r.Above_UCR, r.Below_LNR, r.Below_LCR:
			return healthCritical
		case r.Above_UNC, r.Below_LNC:
			return healthWarning
		}
		return healthOK
	}
	rule := rulesOf(s)
	states := uint16(r.OptionalData1) | uint16(r.OptionalData2&0x7f)<<8
	switch {
	case states&rule.critical != 0:
		return healthCritical
	case states&rule.warning != 0:
		return healthWarning
	}
	return healthOK
}

// rule says which states of a discrete sensor are bad.
type rule struct{ critical, warning uint16 }

func bits(n ...uint) (out uint16) {
	for _, i := range n {
		out |= 1 << i
	}
	return out
}

// rulesOf knows the states of tables 42-2 and 42-3 that say something about
// health. A sensor of another kind says nothing about it.
func rulesOf(s sensorRecord) rule {
	switch s.readingType {
	case 0x04: // predictive failure
		return rule{0, bits(1)}
	case 0x05: // limit exceeded
		return rule{0, bits(1)}
	case 0x07: // severity
		return rule{bits(2, 3, 5, 6), bits(1, 4)}
	case 0x0b: // redundancy
		return rule{bits(5), bits(1, 2, 3, 4, 6, 7)}
	case 0x6f: // by the type of sensor
	default:
		return rule{}
	}
	switch s.sensorType {
	case 0x05: // physical security
		return rule{0, bits(0, 4)}
	case 0x07: // processor
		return rule{bits(0, 1, 2, 3, 4, 5, 6, 11), bits(8, 10)}
	case 0x08: // power supply
		return rule{bits(1, 3, 4), bits(2, 5, 6)}
	case 0x0c: // memory
		return rule{bits(1, 2, 3, 10), bits(0, 4, 5)}
	case 0x0d: // drive slot
		return rule{bits(1, 5, 6), bits(2)}
	case 0x13: // critical interrupt
		return rule{bits(1, 2, 4, 5, 8, 9, 10), bits(7)}
	case 0x21: // slot
		return rule{bits(0), 0}
	case 0x28: // management subsystem
		return rule{0, bits(0, 1, 2, 3, 4, 5)}
	case 0x29: // battery
		return rule{bits(1), bits(0)}
	}
	return rule{}
}
