package drift_test

import (
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	driftdb "github.com/slipway-cloud/slipway/db/drift"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	simhw "github.com/slipway-cloud/slipway/sim/hw"
	redfishsim "github.com/slipway-cloud/slipway/sim/redfish"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// situation is a fault in a simulator, an agent's report or a record, with the findings that it
// opens and the fix that closes them.
type situation struct {
	fault  func(w *world)
	passes int      // until it is found; 0 is one
	also   []string // the other detectors that find it
	fix    func(w *world)
	adopt  bool // adopting closes it, and the next pass agrees
}

// unknownMachine adds another machine to the fleet, which the region does not know.
func (w *world) unknownMachine() *simhw.Machine {
	w.t.Helper()
	hw, err := w.fleet.Add(simhw.GPUServer("HPE", 2))
	require.NoError(w.t, err)
	w.sim.Watch(hw)
	return hw
}

// neighbour is another node of the site, without a machine.
func (w *world) neighbour(status lifecycle.NodeStatus) db.Node {
	return dbtest.Node(w.t, w.store, dbtest.Status(status), dbtest.At(w.site.ID))
}

// reports makes the agent report something else.
func reports(f func(*spec.HealthReport)) func(*world) {
	return func(w *world) { w.recordHeartbeat(func(b *db.Heartbeat) { f(b.Report) }) }
}

func (w *world) fixReport() { w.recordHeartbeat(nil) }

func (w *world) fixList() { w.front.says(nil) }

func situations() map[string]situation {
	all := machineSituations()
	for _, more := range []map[string]situation{identitySituations(), bmcSituations(), agentSituations()} {
		for name, s := range more {
			all[name] = s
		}
	}
	return all
}

func machineSituations() map[string]situation {
	return map[string]situation{
		lifecycle.DriftMachineAbsent: {
			fault: func(w *world) { require.NoError(w.t, w.sim.External("delete", w.id)) },
			fix: func(w *world) {
				require.NoError(w.t, w.store.SetNodeMachine(w.t.Context(), w.node.ID, db.NodeMachine{}))
			},
		},
		lifecycle.DriftExternallyReleased: {fault: (*world).release, fix: (*world).redeploy, also: []string{lifecycle.DriftHWSyncStale, lifecycle.DriftPoweredOff}},
		lifecycle.DriftExternallyDeployed: {
			fault: func(w *world) {
				w.release()
				require.NoError(w.t, w.sim.External("deploy", w.id))
				w.step(providers.MAASDeployed)
			},
			also: []string{lifecycle.DriftOtherOwner, lifecycle.DriftHWSyncOff},
			fix:  func(w *world) { w.release(); w.deploy() },
		},
		lifecycle.DriftBusyWithoutJob: {
			fault: func(w *world) {
				w.release()
				require.NoError(w.t, w.sim.External("deploy", w.id))
				w.step(providers.MAASDeploying)
			},
			also: []string{lifecycle.DriftOtherOwner},
			fix:  func(w *world) { w.step(providers.MAASDeployed); w.release(); w.deploy() },
		},
		lifecycle.DriftFailedOrBroken: {
			fault: func(w *world) { require.NoError(w.t, w.sim.External("mark_broken", w.id)) },
			also:  []string{lifecycle.DriftPoweredOff},
			fix: func(w *world) {
				require.NoError(w.t, w.sim.External("mark_fixed", w.id))
				m, err := w.maas.Machine(w.t.Context(), w.id)
				require.NoError(w.t, err)
				if m.Status == providers.MAASDeployed {
					w.release()
				}
				w.deploy()
			},
		},
		lifecycle.DriftMachineLocked: {
			fault: func(w *world) { require.NoError(w.t, w.sim.External("lock", w.id)) },
			fix:   func(w *world) { require.NoError(w.t, w.sim.External("unlock", w.id)) },
		},
		lifecycle.DriftOtherOwner: {
			fault: func(w *world) { w.front.says(each(func(m map[string]any) { m["owner"] = "eve" })) }, fix: (*world).fixList,
		},
		lifecycle.DriftPoweredOff: {
			fault: func(w *world) {
				w.hw.PowerOff("a hand", true)
				require.Eventually(w.t, func() bool {
					w.fleet.Clock().Step(time.Minute)
					m, err := w.maas.Machine(w.t.Context(), w.id)
					return err == nil && m.PowerState == "off"
				}, runenv.Patience(20*time.Second), 5*time.Millisecond)
			},
			fix: func(w *world) {
				w.hw.PowerOn("a hand")
				require.Eventually(w.t, func() bool {
					w.fleet.Clock().Step(time.Minute)
					m, err := w.maas.Machine(w.t.Context(), w.id)
					return err == nil && m.PowerState == "on"
				}, runenv.Patience(20*time.Second), 5*time.Millisecond)
			},
		},
		lifecycle.DriftPowerUnknown: {
			fault: func(w *world) {
				w.acts.Policy.Logins = 0
				w.front.says(each(func(m map[string]any) { m["power_state"] = "error" }))
			},
			fix: (*world).fixList,
		},
		lifecycle.DriftHWSyncStale: {
			fault: func(w *world) {
				long := w.now().Add(-time.Hour).Format(time.RFC3339)
				w.front.says(each(func(m map[string]any) { m["last_sync"] = long }))
			},
			fix: (*world).fixList,
		},
		lifecycle.DriftHWSyncOff: {
			fault: func(w *world) { require.NoError(w.t, w.maas.SetHardwareSync(w.t.Context(), w.id, false)) },
			fix:   func(w *world) { require.NoError(w.t, w.maas.SetHardwareSync(w.t.Context(), w.id, true)) },
		},
		lifecycle.DriftHostnameChanged: {
			fault: func(w *world) { w.call("PUT", "machines/"+w.id+"/", url.Values{"hostname": {"happy-dog"}}) }, adopt: true,
		},
		lifecycle.DriftMACsChanged: {
			fault: func(w *world) {
				w.front.says(each(func(m map[string]any) {
					m["interface_set"].([]any)[1].(map[string]any)["mac_address"] = "52:54:00:FF:00:09" //nolint:forcetypeassert // the simulator's form
				}))
			},
			adopt: true,
		},
		lifecycle.DriftHardwareChanged: {
			fault: func(w *world) {
				w.front.says(each(func(m map[string]any) {
					m["hardware_info"].(map[string]any)["system_serial"] = "NEWBOARD1" //nolint:forcetypeassert // the simulator's form
				}))
			},
			adopt: true,
		},
		lifecycle.DriftOccupancy: {
			fault: func(w *world) {
				dbtest.Occupy(w.t, w.store, w.node.ID)
				w.sql("UPDATE nodes SET allocation_id = NULL WHERE id = $1", w.node.ID)
			},
			fix: func(w *world) {
				w.sql("UPDATE nodes SET allocation_id = (SELECT id FROM allocations) WHERE id = $1", w.node.ID)
			},
		},
		lifecycle.DriftMAASOccupant: {
			fault: func(w *world) { w.markFor("alc_of_yesterday") }, fix: func(w *world) { w.markFor("") },
		},
		lifecycle.DriftAgentOccupant: {
			fault: func(w *world) {
				w.recordHeartbeat(func(b *db.Heartbeat) { held := "alc_of_yesterday"; b.Allocation = &held })
			},
			fix: func(w *world) {
				w.recordHeartbeat(func(b *db.Heartbeat) { none := ""; b.Allocation = &none })
			},
		},
		lifecycle.DriftAddressesChanged: {
			fault: func(w *world) { w.front.says(each(func(m map[string]any) { m["ip_addresses"] = []any{"10.10.9.9"} })) }, adopt: true,
		},
		lifecycle.DriftSiteUnreachable: {
			fault: func(w *world) { w.front.goes(true) }, fix: func(w *world) { w.front.goes(false) },
		},
	}
}

// duplicate adds a second record to the list, a changed copy of the machine's own.
func duplicate(change func(m map[string]any)) func([]map[string]any) []map[string]any {
	return func(list []map[string]any) []map[string]any {
		other := map[string]any{}
		for k, v := range list[0] {
			other[k] = v
		}
		other["system_id"], other["hostname"] = "yyyyyy", "duplicate"
		change(other)
		return append(list, other)
	}
}

func otherCards(m map[string]any) {
	m["interface_set"] = []any{map[string]any{"id": 99, "mac_address": "52:54:00:ff:ff:01"}}
}

func identitySituations() map[string]situation {
	ghost := func(w *world) *simhw.Machine {
		hw := w.unknownMachine()
		old := w.neighbour(lifecycle.NodeActive)
		require.NoError(w.t, w.store.SetNodeMachine(w.t.Context(), old.ID, db.NodeMachine{SystemID: "abcabc", MACs: []string{hw.Spec().NICs[0].MAC}}))
		retire(w, old.ID)
		return hw
	}
	return map[string]situation{
		lifecycle.DriftDuplicateMAC: {
			fault: func(w *world) {
				w.front.says(duplicate(func(m map[string]any) {
					m["hardware_info"] = map[string]any{"system_serial": "OTHER"}
					m["interface_set"] = m["interface_set"].([]any)[:1] //nolint:forcetypeassert // the simulator's form
				}))
			},
			also: []string{lifecycle.DriftUnknownMachine}, fix: (*world).fixList,
		},
		lifecycle.DriftDuplicateSerial: {
			fault: func(w *world) { w.front.says(duplicate(otherCards)) }, also: []string{lifecycle.DriftUnknownMachine}, fix: (*world).fixList,
		},
		lifecycle.DriftDuplicateBMC: {
			fault: func(w *world) {
				n := w.neighbour(lifecycle.NodeBootstrapIssued)
				_, err := w.store.CreateBMC(w.t.Context(), db.NewBMC{NodeID: &n.ID, Address: w.rec.Address + "/", Protocol: "redfish", CredentialRef: "bmc/login"})
				require.NoError(w.t, err)
			},
			fix: func(w *world) { w.sql("UPDATE bmcs SET address = 'https://127.0.0.9' WHERE id <> $1", w.rec.ID) },
		},
		lifecycle.DriftDuplicateBoot: {
			fault: func(w *world) { w.recordHeartbeatOf(w.neighbour(lifecycle.NodeActive).ID, "boot-1", nil) },
			fix:   func(w *world) { w.sql("UPDATE heartbeats SET boot_id = 'other' WHERE node_id <> $1", w.node.ID) },
			also:  []string{lifecycle.DriftBootUnannounced}, // of the neighbour, once it has another
		},
		lifecycle.DriftIdentityConflict: {
			fault: func(w *world) {
				left := w.neighbour(lifecycle.NodeActive)
				w.sql("UPDATE nodes SET tenant_left_at = now(), serial = (SELECT lower(serial) FROM nodes WHERE id = $1 AND serial <> '') WHERE id = $2", w.node.ID, left.ID)
				retire(w, left.ID)
			},
			fix: func(w *world) { w.sql("UPDATE nodes SET serial = 'another' WHERE tenant_left_at IS NOT NULL") },
		},
		lifecycle.DriftUnknownMachine: {
			fault: func(w *world) { require.NoError(w.t, w.sim.External("enlist", w.unknownMachine().Spec().ID)) },
			fix:   func(w *world) { require.NoError(w.t, w.sim.External("delete", w.fleet.All()[1].Spec().NICs[0].MAC)) },
		},
		lifecycle.DriftGhost: {
			fault: func(w *world) { require.NoError(w.t, w.sim.External("enlist", ghost(w).Spec().ID)) },
			fix:   func(w *world) { require.NoError(w.t, w.sim.External("delete", w.fleet.All()[1].Spec().NICs[0].MAC)) },
		},
	}
}

// retire takes a node to deleted, by legal transitions.
func retire(w *world, id string) {
	w.t.Helper()
	require.NoError(w.t, w.store.Tx(w.t.Context(), func(tx *db.Tx) error {
		for _, m := range []lifecycle.Transition[lifecycle.NodeStatus]{lifecycle.NodeDrain, lifecycle.NodeRetire, lifecycle.NodeRemove, lifecycle.NodeDelete} {
			if _, err := tx.TransitionNode(w.t.Context(), id, m, m.Needs, db.Actor{Owner: m.Owners[0], ID: "test"}); err != nil {
				return err
			}
		}
		return nil
	}))
}

// oneGPU is a GPU as its BMC lists it.
const oneGPU = "/redfish/v1/Systems/System.Embedded.1/Processors/Video.Slot.1-1"

// readParts has every pass from now on read the machine's parts, and makes one.
func (w *world) readParts() {
	w.t.Helper()
	w.acts.Policy.HealthEvery = time.Nanosecond
	w.pass()
	w.fleet.Clock().Step(time.Minute) // what changes from now on is later than that reading
	w.recordHeartbeat(nil)
}

const unwellPart = "/redfish/v1/Systems/System.Embedded.1/Processors/CPU.1"

func bmcSituations() map[string]situation {
	return map[string]situation{
		lifecycle.DriftBMCAddressChanged: {
			fault: func(w *world) { w.sql("UPDATE bmcs SET address = 'https://127.0.0.77' WHERE id = $1", w.rec.ID) }, adopt: true,
		},
		lifecycle.DriftBMCPinChanged: {
			fault: func(w *world) {
				require.NoError(w.t, w.bmc.AddFault(redfishsim.Fault{Name: redfishsim.FaultCertificateChange}))
			},
			fix: func(w *world) {
				rec, err := w.store.BMC(w.t.Context(), w.rec.ID)
				require.NoError(w.t, err)
				require.Len(w.t, rec.PinPending, 64, "it waits for approval")
				require.NoError(w.t, w.store.SetBMCPin(w.t.Context(), rec.ID, rec.PinPending))
			},
		},
		lifecycle.DriftBMCUnreachable: {
			fault: func(w *world) { w.hw.SetBMCDown(true) }, passes: 3, fix: func(w *world) { w.hw.SetBMCDown(false) },
		},
		lifecycle.DriftBMCUnhealthy: {
			fault: func(w *world) {
				w.acts.Policy.HealthEvery = time.Nanosecond
				require.NoError(w.t, w.bmc.SetHealth(unwellPart, "Critical"))
			},
			fix: func(w *world) { require.NoError(w.t, w.bmc.SetHealth(unwellPart, "OK")) },
		},
		lifecycle.DriftPartsChanged: {
			fault: func(w *world) {
				w.readParts()
				require.NoError(w.t, w.bmc.SetField(oneGPU, "SerialNumber", "ANOTHER-GPU"))
			},
			adopt: true,
		},
		lifecycle.DriftDPUMode: {
			fault: func(w *world) {
				w.readParts()
				require.NoError(w.t, w.bmc.SetDPUMode(1, redfishsim.ModeNIC))
			},
			adopt: true,
		},
		lifecycle.DriftBMCLoginBlocked: {
			fault: func(w *world) { require.NoError(w.t, w.store.BlockBMCLogin(w.t.Context(), w.rec.ID, "401")) },
			fix:   func(w *world) { require.NoError(w.t, w.store.ClearBMCBlock(w.t.Context(), w.rec.ID)) },
		},
	}
}

func agentSituations() map[string]situation {
	yes, many, little := true, 9, int64(1<<19)
	return map[string]situation{
		lifecycle.DriftBootUnannounced: {fault: func(w *world) { w.recordHeartbeatOf(w.node.ID, "boot-2", nil) }, adopt: true},
		lifecycle.DriftAgentOld: {
			fault: func(w *world) { w.acts.Policy.MinAgent = "1.10.0" },
			fix:   func(w *world) { w.recordHeartbeat(func(b *db.Heartbeat) { b.AgentVersion = "v1.10.1" }) },
		},
		lifecycle.DriftAgentCertificate: {
			fault: func(w *world) {
				w.sql("UPDATE agent_certificates SET not_before = $2, not_after = $3 WHERE node_id = $1", w.node.ID, w.now().Add(-22*time.Hour), w.now().Add(2*time.Hour))
			},
			fix: func(w *world) {
				w.sql("UPDATE agent_certificates SET not_after = $2 WHERE node_id = $1", w.node.ID, w.now().Add(20*time.Hour))
			},
		},
		lifecycle.DriftAgentSilent: {
			fault: func(w *world) {
				w.sql("UPDATE heartbeats SET received_at = $2 WHERE node_id = $1", w.node.ID, w.now().Add(-11*time.Minute))
			},
			fix: (*world).fixReport,
		},
		lifecycle.DriftAgentLocked: {
			fault: func(w *world) {
				w.sql("UPDATE agent_identities SET locked_at = now(), locked_reason = 'a copy' WHERE node_id = $1", w.node.ID)
			},
			fix: func(w *world) {
				w.sql("UPDATE agent_identities SET locked_at = NULL, locked_reason = '' WHERE node_id = $1", w.node.ID)
			},
		},
		lifecycle.DriftAgentElsewhere: {
			fault: reports(func(r *spec.HealthReport) {
				for i := range r.NICs {
					r.NICs[i].MAC = "52:54:00:ee:ee:0" + string(rune('1'+i))
				}
			}),
			fix: (*world).fixReport,
		},
		lifecycle.DriftClockSkew: {
			fault: func(w *world) { w.recordHeartbeat(func(b *db.Heartbeat) { b.ClockSkew = -45 * time.Second }) }, fix: (*world).fixReport,
		},
		lifecycle.DriftNetworkOpen: {fault: func(w *world) { w.answerProbe("postgres") }, fix: func(w *world) { w.answerProbe() }},
		lifecycle.DriftGPUCount:    {fault: reports(func(r *spec.HealthReport) { r.GPUs = r.GPUs[:7] }), fix: (*world).fixReport},
		lifecycle.DriftGPUFault: {fault: reports(func(r *spec.HealthReport) {
			r.GPUs[3].RemapFailed, r.GPUs[4].UncorrectedECC, r.GPUs[5].RecoveryAction = &yes, &many, "Reset"
		}), fix: (*world).fixReport},
		lifecycle.DriftMemory: {fault: reports(func(r *spec.HealthReport) { r.MemoryMiB = &little }), fix: (*world).fixReport},
		lifecycle.DriftDisks:  {fault: reports(func(r *spec.HealthReport) { r.Disks = r.Disks[1:] }), fix: (*world).fixReport},
		lifecycle.DriftNICs:   {fault: reports(func(r *spec.HealthReport) { r.NICs[2].Up = false }), fix: (*world).fixReport},
		lifecycle.DriftDriver: {fault: reports(func(r *spec.HealthReport) { r.Driver = "535.1" }), fix: (*world).fixReport},
	}
}

// detectorsOfARun is how many detectors meet their fault in a run of `make test`: each has a
// region, a machine and a dozen passes, under the race detector.
const detectorsOfARun = 12

// TestDetectors_OpenAndClose: a fault shows within one pass (a BMC's silence within
// three), as one finding however many passes see it; it is acted on; and it
// closes by itself when the fault is gone. `make proof AREA=fleet` plays all
// detectors, `make test` those that the seed draws.
func TestDetectors_OpenAndClose(t *testing.T) {
	t.Parallel()
	table := situations()
	var detectors []lifecycle.DriftDetector
	for _, d := range lifecycle.DriftDetectors() {
		if d.Name == lifecycle.DriftBreakerOpen || d.Name == lifecycle.DriftChargeBreaker {
			continue // TestQuarantine_Breaker, TestRestore_BoundsChargesThatEnd
		}
		require.Contains(t, table, d.Name, "no situation for the detector")
		detectors = append(detectors, d)
	}
	for _, d := range runenv.Sample(t, "SLIPWAY_DRIFT_DETECTORS", "detectors", detectors, detectorsOfARun) {
		s := table[d.Name]
		t.Run(d.Name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s.fault(w)
			for range max(1, s.passes) {
				require.NotContains(t, w.open(), d.Name)
				w.pass()
			}
			f := w.finding(d.Name)
			require.Equal(t, string(d.Severity), f.Severity)
			require.Equal(t, string(d.Scope), f.Scope)
			require.NotEmpty(t, f.Message)
			for _, field := range d.Evidence {
				require.Contains(t, string(f.Evidence), `"`+field+`"`, "evidence")
			}
			for _, other := range w.open() {
				require.True(t, other == d.Name || slices.Contains(s.also, other), "%s is found as fixReport", other)
			}
			w.pass()
			again := w.finding(d.Name)
			require.Equal(t, f.ID, again.ID, "it is kept and not repeated")
			require.Equal(t, f.SeenCount+1, again.SeenCount)
			w.decide(d, f, s.adopt)
			if !s.adopt {
				s.fix(w)
			}
			w.pass()
			require.NotContains(t, w.open(), d.Name, "the fault is gone")
			done, err := driftdb.FindingByID(t.Context(), w.store, f.ID)
			require.NoError(t, err)
			require.Equal(t, lifecycle.FindingClosed, done.Finding.Status)
			require.NotEmpty(t, done.Finding.Outcome)
			broken, err := w.store.VerifyAudit(t.Context(), "drift", f.ID)
			require.NoError(t, err)
			require.Zero(t, broken)
		})
	}
}

// decide takes the actions that a detector allows, and is refused the others.
func (w *world) decide(d lifecycle.DriftDetector, f driftdb.Finding, adopt bool) {
	t := w.t
	t.Helper()
	require.Equal(t, adopt, d.Allows(lifecycle.DriftAdopt), "the table adopts what can be adopted")
	for _, action := range lifecycle.DriftActions() {
		if !d.Allows(action) {
			_, err := w.act(f.ID, action)
			var conflict *db.ConflictError
			require.ErrorAs(t, err, &conflict, "%s", action)
		}
	}
	ignored, err := w.act(f.ID, lifecycle.DriftIgnore)
	require.NoError(t, err)
	require.Equal(t, lifecycle.FindingIgnored, ignored.Status)
	w.pass()
	require.NotContains(t, w.open(), d.Name, "what is ignored stays quiet")
	if d.Allows(lifecycle.DriftQuarantine) {
		_, err := w.act(f.ID, lifecycle.DriftQuarantine)
		require.NoError(t, err)
		n, err := w.store.Node(t.Context(), w.node.ID)
		require.NoError(t, err)
		require.Equal(t, lifecycle.NodeQuarantined, n.Status)
		w.pass()
		require.NotEqual(t, lifecycle.FindingClosed, w.finding(d.Name).Status, "a quarantine does not fix the fault")
	}
	if adopt {
		done, err := w.act(f.ID, lifecycle.DriftAdopt)
		require.NoError(t, err)
		require.Equal(t, lifecycle.FindingClosed, done.Status)
	}
}
