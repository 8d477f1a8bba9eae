package bmc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	allocationdb "github.com/slipway-cloud/slipway/db/allocation"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
)

// SettingsIn is the input of the activities about what a tenant could change in a BMC.
type SettingsIn struct {
	contract.AllocationRef
	BMCID string `json:"bmc_id"`
	CAPEM string `json:"ca_pem,omitempty"`
}

// settings logs in and calls f, which gets nil where the BMC's protocol has no such calls.
func (a *Activities) settings(ctx context.Context, in SettingsIn, f func(providers.BMCSettings) error) error {
	return a.session(ctx, in, func(b providers.BMC) error {
		with, _ := b.(providers.BMCSettings)
		return f(with)
	})
}

// session logs in and calls f.
func (a *Activities) session(ctx context.Context, in SettingsIn, f func(providers.BMC) error) error {
	v, err := a.enter(ctx, loginRequest{job: in.JobRef, bmcID: in.BMCID, caPEM: in.CAPEM})
	if err != nil {
		return err
	}
	defer v.leave()
	if err := f(v.bmc); err != nil {
		a.blockOnRejection(ctx, v.rec.ID, err)
		return fault.BMC(ctx, err)
	}
	return nil
}

// DisableHostInterfaces switches off the ways from the machine's own system to its BMC, where the
// BMC allows it. An interface that stays on is named, and is no failure. It can be repeated.
func (a *Activities) DisableHostInterfaces(ctx context.Context, in SettingsIn) (contract.SettingsFacts, error) {
	out := contract.SettingsFacts{Done: true}
	err := a.settings(ctx, in, func(b providers.BMCSettings) error {
		if b == nil {
			out.Note = "the BMC's protocol cannot switch off a host interface"
			return nil
		}
		got, err := b.DisableHostInterfaces(ctx)
		out.Unreadable = got.LeftOn
		out.Note = fmt.Sprintf("%d host interfaces are off", got.Off)
		if len(got.LeftOn) > 0 {
			out.Note += "; the BMC leaves on: " + strings.Join(got.LeftOn, ", ")
		}
		return err
	})
	return out, err
}

// KeepSettings reads what the BMC says of itself and stores it with the node's history, before a
// tenant has access. A snapshot that is stored already stays. It changes nothing on the BMC. It
// fails with firmware_changed when a part of the BMC cannot be read, and with node_unhealthy when a
// part of the machine is critical: no tenant gets such a machine.
func (a *Activities) KeepSettings(ctx context.Context, in SettingsIn) (contract.SettingsFacts, error) {
	if _, err := allocationdb.FirmwareSnapshot(ctx, a.Store, in.AllocationID); err == nil {
		return contract.SettingsFacts{Done: true, Note: "kept before"}, nil
	} else if !errors.Is(err, db.ErrNotFound) {
		return contract.SettingsFacts{}, fault.Internal(ctx, err)
	}
	var report storedSettings
	var health providers.BMCHealth
	err := a.session(ctx, in, func(b providers.BMC) (err error) {
		if health, err = readHealth(ctx, b, healthLimit); err != nil || health.Overall == healthCritical {
			return err
		}
		report, err = readReport(ctx, b)
		return err
	})
	if err == nil {
		err = refuseCritical(health)
	}
	if err != nil {
		return contract.SettingsFacts{}, err
	}
	if len(report.Unreadable) > 0 {
		return contract.SettingsFacts{}, fault.New(lifecycle.FailFirmwareChanged,
			"the BMC has parts that cannot be read, so that nothing could be compared after a tenant: %s", strings.Join(report.Unreadable, "; "))
	}
	raw, err := json.Marshal(report)
	if err != nil {
		return contract.SettingsFacts{}, fault.Internal(ctx, err)
	}
	if err := allocationdb.SetFirmwareSnapshot(ctx, a.Store, in.AllocationID, raw); err != nil {
		return contract.SettingsFacts{}, fault.Internal(ctx, err)
	}
	return contract.SettingsFacts{
		Count: len(report.Values), NotOffered: report.notVerified(report), Done: true,
		Note: fmt.Sprintf("kept %d settings of the BMC; its health is %s", len(report.Values), health.Overall),
	}, nil
}

// storedSettings is the form of a report in the database.
type storedSettings struct {
	Values     []providers.BMCSetting `json:"values"`
	Unreadable []string               `json:"unreadable,omitempty"`
	NotOffered []string               `json:"not_offered,omitempty"`
	Added      []providers.BMCSetting `json:"added,omitempty"`
	// NotRead and OtherAccounts are of the moment and are not stored.
	NotRead       []string `json:"-"`
	OtherAccounts []string `json:"-"`
}

// notVerified names what was not compared with a report of before.
func (s storedSettings) notVerified(before storedSettings) []string {
	out := append(slices.Clone(s.NotOffered), s.NotRead...)
	for _, v := range before.Added {
		if v.Value == providers.SettingUnread {
			out = append(out, v.Name+" of the BMC: it could not be read at the claim")
		}
	}
	return out
}

func (a *Activities) readSettings(ctx context.Context, in SettingsIn) (storedSettings, error) {
	var out storedSettings
	err := a.session(ctx, in, func(b providers.BMC) (err error) {
		out, err = readReport(ctx, b)
		return err
	})
	return out, err
}

func readReport(ctx context.Context, b providers.BMC) (storedSettings, error) {
	with, _ := b.(providers.BMCSettings)
	if with == nil {
		return storedSettings{NotOffered: []string{"the BMC's protocol does not show its settings"}}, nil
	}
	report, err := with.ReadSettings(ctx)
	return storedSettings{report.Values, report.Unreadable, report.NotOffered, report.Added, report.NotRead, report.OtherAccounts}, err
}

// maxChanges bounds the changes that are named.
const maxChanges = 20

// CompareSettings reads what the BMC says of itself and names what differs from the snapshot of the
// claim. A value that was read then and is not there now has changed, and a part that cannot be
// read counts as changed, unless it is one of the added values and could not be read then either.
// Settings that this kind of BMC never shows are named. Nothing read is nothing verified: then Done
// is not set. It changes nothing on the BMC. It fails with firmware_changed when there is no
// snapshot, unless the tenant never had access: then there is nothing that he can have changed.
func (a *Activities) CompareSettings(ctx context.Context, in SettingsIn) (contract.SettingsFacts, error) {
	raw, err := allocationdb.FirmwareSnapshot(ctx, a.Store, in.AllocationID)
	if errors.Is(err, db.ErrNotFound) {
		return a.withoutSnapshot(ctx, in)
	}
	if err != nil {
		return contract.SettingsFacts{}, fault.Internal(ctx, err)
	}
	return a.compareWith(ctx, in, raw)
}

// compareWith reads what the BMC says of itself and names what differs from a snapshot.
func (a *Activities) compareWith(ctx context.Context, in SettingsIn, raw json.RawMessage) (contract.SettingsFacts, error) {
	var before storedSettings
	if err := json.Unmarshal(raw, &before); err != nil {
		return contract.SettingsFacts{}, fault.Internal(ctx, fmt.Errorf("firmware snapshot of %s: %w", in.AllocationID, err))
	}
	now, err := a.readSettings(ctx, in)
	if err != nil {
		return contract.SettingsFacts{}, err
	}
	out := contract.SettingsFacts{
		Count: len(now.Values), Unreadable: now.Unreadable, NotOffered: now.notVerified(before), OtherAccounts: now.OtherAccounts, Changed: changes(before, now),
	}
	out.Done = len(out.Changed) == 0 && out.Count > 0
	switch {
	case len(out.Changed) > 0:
		out.Note = fmt.Sprintf("%d settings of the BMC have changed", len(out.Changed))
	case out.Count == 0:
		out.Note = "not verified: the BMC shows none of its settings"
	default:
		out.Note = fmt.Sprintf("%d settings of the BMC are those of the claim", out.Count)
	}
	if len(out.Changed) > maxChanges {
		out.Changed = append(out.Changed[:maxChanges], fmt.Sprintf("and %d more", len(out.Changed)-maxChanges))
	}
	return out, nil
}

// withoutSnapshot is the comparison of an allocation that has no snapshot.
func (a *Activities) withoutSnapshot(ctx context.Context, in SettingsIn) (contract.SettingsFacts, error) {
	row, err := allocationdb.Get(ctx, a.Store, in.AllocationID)
	switch {
	case err != nil:
		return contract.SettingsFacts{}, fault.Internal(ctx, err)
	case row.AccessGivenAt != nil:
		return contract.SettingsFacts{}, fault.New(lifecycle.FailFirmwareChanged, "nothing is stored of the BMC's settings of before the tenant")
	}
	return contract.SettingsFacts{Done: true, Note: "the tenant never had access, so that there is nothing to compare"}, nil
}

func changes(before, now storedSettings) []string {
	out := append(differences(before.Values, now.Values), differences(known(before.Added, now.Added))...)
	for _, part := range now.Unreadable {
		out = append(out, "cannot be read: "+part)
	}
	for _, part := range now.NotOffered {
		if !slices.Contains(before.NotOffered, part) {
			out = append(out, "was there at the claim, and is not: "+part)
		}
	}
	slices.Sort(out)
	return out
}

// known returns what can be compared of added values: nothing of what could not be read before, and
// nothing that is empty now, such as a medium that was ejected.
func known(before, now []providers.BMCSetting) (was, is []providers.BMCSetting) {
	empty := map[string]bool{}
	for _, v := range now {
		empty[v.Name] = v.Value == providers.SettingNone
	}
	drop := func(v providers.BMCSetting) bool {
		return empty[v.Name] || slices.ContainsFunc(before, func(b providers.BMCSetting) bool {
			return b.Value == providers.SettingUnread && strings.HasPrefix(v.Name, b.Name)
		})
	}
	return slices.DeleteFunc(slices.Clone(before), drop), slices.DeleteFunc(slices.Clone(now), drop)
}

// differences says what differs between two lists of values.
func differences(before, now []providers.BMCSetting) []string {
	was, is := map[string]string{}, map[string]string{}
	for _, v := range before {
		was[v.Name] = v.Value
	}
	var out []string
	for _, v := range now {
		is[v.Name] = v.Value
		old, known := was[v.Name]
		switch {
		case !known:
			out = append(out, fmt.Sprintf("%s is new: %s", v.Name, v.Value))
		case old != v.Value:
			out = append(out, fmt.Sprintf("%s was %q and is %q", v.Name, old, v.Value))
		}
	}
	for _, v := range before {
		if _, there := is[v.Name]; !there {
			out = append(out, fmt.Sprintf("%s was %q and is not shown", v.Name, v.Value))
		}
	}
	return out
}
