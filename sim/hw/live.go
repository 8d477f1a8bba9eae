package simhw

import (
	"errors"
	"fmt"
	"slices"
)

// An action of firmware or an installer belongs to one boot. Each of these methods names the boot
// that it is for, and reports false, having done nothing, when the machine has been switched off or
// restarted since.

// StartLive starts a system that was loaded over the network and runs from
// memory: it is on no disk, and each start is its first boot.
func (m *Machine) StartLive(boot string, o OS) bool {
	o.Live = true
	m.mu.Lock()
	if !m.runs(boot) || m.osUp {
		m.mu.Unlock()
		return false
	}
	m.osUp = true
	ev := Event{Kind: EventOSUp, Power: On, BootID: boot, FirstBoot: true, OS: &o}
	m.mu.Unlock()
	m.emit(ev)
	return true
}

// StartDisk starts the installed system; false also when there is none.
func (m *Machine) StartDisk(boot string) bool {
	m.mu.Lock()
	if !m.runs(boot) || m.os == nil || m.osUp {
		m.mu.Unlock()
		return false
	}
	ev := m.startDisk()
	m.mu.Unlock()
	m.emit(ev)
	return true
}

// InstallDuring is Install by an installer that runs in this boot.
func (m *Machine) InstallDuring(boot string, o OS) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.runs(boot) {
		return false
	}
	m.install(o)
	return true
}

// ResetDuring is Reset by something that runs in this boot.
func (m *Machine) ResetDuring(boot, by string) bool {
	m.mu.Lock()
	runs := m.runs(boot)
	m.mu.Unlock()
	if runs {
		m.Reset(by)
	}
	return runs
}

// RunsBoot reports whether the machine is on and this is its present boot.
func (m *Machine) RunsBoot(boot string) bool { m.mu.Lock(); defer m.mu.Unlock(); return m.runs(boot) }

func (m *Machine) runs(boot string) bool { return m.power == On && m.bootID == boot }

// MoveDisks takes the drives out of one machine and puts them into another that
// has none, with what is installed on them. Both must be off.
func MoveDisks(from, to *Machine) error {
	if from == to {
		return errors.New("the drives are in this machine already")
	}
	from.mu.Lock()
	disks, os, booted, power := slices.Clone(from.spec.Disks), from.os, from.osBooted, from.power
	from.mu.Unlock()
	if power != Off {
		return fmt.Errorf("switch %s off before its drives are taken out", from.spec.ID)
	}
	to.mu.Lock()
	if to.power != Off || len(to.spec.Disks) > 0 {
		to.mu.Unlock()
		return fmt.Errorf("%s must be off and without drives to take others", to.spec.ID)
	}
	to.spec.Disks, to.os, to.osBooted = disks, os, booted
	to.mu.Unlock()
	from.mu.Lock()
	from.spec.Disks, from.os, from.osBooted = nil, nil, false
	from.mu.Unlock()
	return nil
}
