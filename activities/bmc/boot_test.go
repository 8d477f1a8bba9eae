package bmc_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	bmcact "github.com/slipway-cloud/slipway/activities/bmc"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
)

func (l *lab) boot(record bmcact.MachineRecord, target providers.BootTarget) bmcact.BootIn {
	in := l.power(dbtest.Node(l.t, l.truth).ID)
	return bmcact.BootIn{JobRef: in.JobRef, BMCID: in.BMCID, Target: target, Record: record}
}

// TestSetBootByBMC_OnTwoVendors sets the device of the next boot, reads it back and clears it.
func TestSetBootByBMC_OnTwoVendors(t *testing.T) {
	t.Parallel()
	for _, vendor := range []string{"Dell", "HPE"} {
		t.Run(vendor, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, vendor, 1, nil)
			is := bmcact.MachineRecord{Serials: []string{l.hw.Spec().Serial}}
			for _, target := range []providers.BootTarget{providers.BootPXE, providers.BootPXE, providers.BootNone, providers.BootNone} {
				set, err := l.acts.SetBootByBMC(t.Context(), l.boot(is, target))
				require.NoError(t, err)
				require.Equal(t, target, set.Target)
				require.True(t, set.Sent)
				read, err := l.acts.ReadBootByBMC(t.Context(), l.boot(is, ""))
				require.NoError(t, err)
				require.Equal(t, target, read.Target)
			}
		})
	}
}

// TestIdentifyByBMC_RefusesAnotherMachine: every part of the record that can be compared counts,
// and one at least has to be.
func TestIdentifyByBMC_RefusesAnotherMachine(t *testing.T) {
	t.Parallel()
	l := newLab(t, "Dell", 1, nil)
	is, err := l.acts.IdentifyByBMC(t.Context(), l.boot(bmcact.MachineRecord{Serials: []string{l.hw.Spec().Serial}}, ""))
	require.NoError(t, err)
	require.NotEmpty(t, is.MACs)
	for name, tc := range map[string]struct {
		record bmcact.MachineRecord
		ok     bool
	}{
		"both":                       {bmcact.MachineRecord{Serials: []string{is.Serial}, MACs: is.MACs[:1]}, true},
		"addresses alone":            {bmcact.MachineRecord{MACs: is.MACs}, true},
		"nothing is recorded":        {bmcact.MachineRecord{}, false},
		"another serial":             {bmcact.MachineRecord{Serials: []string{"SWAPPED"}, MACs: is.MACs}, false},
		"the machine's and another":  {bmcact.MachineRecord{Serials: []string{is.Serial, "SWAPPED"}}, false},
		"an address that is not its": {bmcact.MachineRecord{Serials: []string{is.Serial}, MACs: []string{"02:00:00:00:00:99"}}, false},
	} {
		for what, call := range map[string]func(bmcact.MachineRecord) error{
			"identify": func(r bmcact.MachineRecord) error {
				_, err := l.acts.IdentifyByBMC(t.Context(), l.boot(r, ""))
				return err
			},
			"set": func(r bmcact.MachineRecord) error {
				set, err := l.acts.SetBootByBMC(t.Context(), l.boot(r, providers.BootPXE))
				require.Equal(t, err == nil, set.Sent)
				return err
			},
		} {
			err := call(tc.record)
			if tc.ok {
				require.NoError(t, err, "%s %s", what, name)
				continue
			}
			requireClass(t, err, lifecycle.FailOtherMachine)
		}
		if !tc.ok {
			continue
		}
		_, err := l.acts.SetBootByBMC(t.Context(), l.boot(bmcact.MachineRecord{}, providers.BootNone))
		require.NoError(t, err)
	}
	read, err := l.acts.ReadBootByBMC(t.Context(), l.boot(bmcact.MachineRecord{}, ""))
	require.NoError(t, err)
	require.Equal(t, providers.BootNone, read.Target, "nothing was set on another machine")
}
