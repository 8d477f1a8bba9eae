package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/taskhandlers"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/intent/decommission"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/maas"
	maassim "github.com/slipway-cloud/slipway/sim/maas"
	simnode "github.com/slipway-cloud/slipway/sim/node"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// How faults are injected and removed.

// mac is by what a fault names the machine: MAAS has no id for it yet.
func (c *classCase) mac() string { return c.m.Spec().NICs[0].MAC }

func (c *classCase) maasFault(f maassim.Fault) {
	c.t.Helper()
	f.Machine = c.mac()
	id, err := c.Sims.MAAS.AddFault(f)
	require.NoError(c.t, err)
	c.faults = append(c.faults, id)
}

func (c *classCase) clearFaults() {
	for _, id := range c.faults {
		c.Sims.MAAS.ClearFaults(id)
	}
	c.Sims.BMCs[c.m.Spec().ID].ClearFaults()
}

func (c *classCase) node(f simnode.Faults) {
	c.t.Helper()
	require.NoError(c.t, c.Sims.Nodes[c.m.Spec().ID].SetFaults(f))
}

func (c *classCase) eventually(what string, is func() bool) {
	c.t.Helper()
	if !assert.Eventually(c.t, is, runenv.Patience(patience), 100*time.Millisecond, what) {
		c.t.FailNow()
	}
}

// reachesStage waits until the job is at a stage.
func (c *classCase) reachesStage(stage string) {
	c.t.Helper()
	c.eventually("the job is at "+stage, func() bool {
		j, err := c.App.Store.Job(c.t.Context(), c.job.ID)
		return err == nil && j.Stage == stage && j.Status == lifecycle.JobRunning
	})
}

// status waits until MAAS shows the machine so.
func (c *classCase) status(want maassim.Status) {
	c.t.Helper()
	c.eventually("the machine is "+want.String(), func() bool {
		v, ok := c.Sims.MAAS.Machine(c.mac())
		return ok && v.Status == want
	})
}

// region is MAAS as any other administrator uses it.
func (c *classCase) region() providers.MAAS {
	c.t.Helper()
	m, err := maas.Opener{}.OpenMAAS(providers.MAASSite{Rule: providers.SimulatedAddresses(), URL: c.Sims.URL, APIKey: providers.NewSecret(c.Sims.APIKey)})
	require.NoError(c.t, err)
	return m
}

// raw is a call that Slipway's own client has no use for.
func (c *classCase) raw(method, path string, form url.Values) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), runenv.Patience(20*time.Second))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, c.Sims.URL+"/api/2.0/"+path, strings.NewReader(form.Encode()))
	require.NoError(c.t, err)
	key := strings.Split(c.Sims.APIKey, ":")
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Authorization", fmt.Sprintf(`OAuth oauth_version="1.0", oauth_signature_method="PLAINTEXT", oauth_consumer_key="%s", `+
		`oauth_token="%s", oauth_signature="%%26%s", oauth_timestamp="%d", oauth_nonce="%d"`, key[0], key[1], key[2], time.Now().Unix(), time.Now().UnixNano()))
	res, err := http.DefaultClient.Do(req)
	require.NoError(c.t, err)
	defer res.Body.Close() //nolint:errcheck // read to the end
	body, err := io.ReadAll(res.Body)
	require.NoError(c.t, err)
	require.Equal(c.t, http.StatusOK, res.StatusCode, string(body))
}

func (c *classCase) id() string {
	c.t.Helper()
	v, ok := c.Sims.MAAS.Machine(c.mac())
	require.True(c.t, ok)
	return v.SystemID
}

// deleteSecondRecord deletes the record that does not hold the boot card.
func (c *classCase) deleteSecondRecord() {
	c.t.Helper()
	var macs []string
	for _, n := range c.m.Spec().NICs {
		macs = append(macs, n.MAC)
	}
	found, err := c.region().FindMachines(c.t.Context(), providers.MAASQuery{MACs: macs})
	require.NoError(c.t, err)
	require.Len(c.t, found, 2)
	for _, m := range found {
		if !slices.ContainsFunc(m.MACs, func(s string) bool { return strings.EqualFold(s, c.mac()) }) {
			require.NoError(c.t, c.region().DeleteMachine(c.t.Context(), m.SystemID))
		}
	}
}

// cable puts the boot interface on the VLAN of the provisioning network.
func (c *classCase) connectBootNIC() {
	c.t.Helper()
	ifaces, err := c.region().Interfaces(c.t.Context(), c.id())
	require.NoError(c.t, err)
	subnets, err := c.region().Subnets(c.t.Context())
	require.NoError(c.t, err)
	vlan := slices.IndexFunc(subnets, func(s providers.MAASSubnet) bool { return s.Name == "provisioning" })
	require.GreaterOrEqual(c.t, vlan, 0, "%v", subnets)
	for _, f := range ifaces {
		if strings.EqualFold(f.MAC, c.mac()) {
			c.raw(http.MethodPut, "nodes/"+c.id()+"/interfaces/"+strconv.Itoa(f.ID)+"/", url.Values{"vlan": {strconv.Itoa(subnets[vlan].VLANID)}})
			return
		}
	}
	require.Fail(c.t, "MAAS does not list the boot interface")
}

func (c *classCase) correctProfile(repair func(*spec.ProfileSpec)) {
	c.t.Helper()
	spec := c.profile.Spec
	repair(&spec)
	_, err := c.App.Store.UpdateProfile(c.t.Context(), c.profile.ID, c.profile.Version, c.profile.Name, spec)
	require.NoError(c.t, err)
}

func (c *classCase) dropRoCE() {
	c.t.Helper()
	c.sql("DELETE FROM roce_assignments WHERE hostname = '" + c.host + "'")
}

// breakDatabase makes one write of this node fail with an SQLSTATE.
func breakDatabase(state string) func(*classCase) {
	return func(c *classCase) {
		c.t.Helper()
		name := c.brokenTrigger(state)
		c.sql(`CREATE FUNCTION ` + name + `() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION USING ERRCODE = '` + state + `', MESSAGE = 'injected'; END $$`)
		c.sql(`CREATE TRIGGER ` + name + ` BEFORE UPDATE OF maas_create_intent ON nodes FOR EACH ROW WHEN (NEW.hostname = '` + c.host + `') EXECUTE FUNCTION ` + name + `()`)
	}
}

func repairDatabase(state string) func(*classCase) {
	return func(c *classCase) { c.t.Helper(); c.sql("DROP FUNCTION " + c.brokenTrigger(state) + " CASCADE") }
}

// brokenTrigger names the trigger of one machine.
func (c *classCase) brokenTrigger(state string) string {
	return "broken_" + state + "_" + c.m.Spec().ID
}

func (c *classCase) sql(statement string) {
	c.t.Helper()
	conn, err := pgx.Connect(c.t.Context(), c.Postgres.DSN(c.Database))
	require.NoError(c.t, err)
	defer conn.Close(c.t.Context()) //nolint:errcheck // one statement
	_, err = conn.Exec(c.t.Context(), statement)
	require.NoError(c.t, err)
}

// lockoutEnds waits for the lockout of that BMC, an hour of its own clock.
func (c *classCase) lockoutEnds() {
	c.t.Helper()
	clock := c.Sims.Fleet.Clock()
	until := clock.Now().Add(61 * time.Minute)
	c.eventually("the lockout is over", func() bool { return clock.Now().After(until) })
}

// failToErase has the region erase disks while this machine is released, and
// somebody aborts that.
func (c *classCase) failToErase() {
	c.t.Helper()
	c.reachesStage(lifecycle.StageWaitDeployed)
	c.maasFault(maassim.Fault{Name: "stuck_erasing", Count: -1})
	erase := func(on bool) {
		require.NoError(c.t, c.Sims.MAAS.SetConfig("enable_disk_erasing_on_release", on))
	}
	erase(true)
	c.status(maassim.DiskErasing)
	region := c.region()
	c.eventually("the job is parked or has ended", func() bool {
		// An attempt that does not know of its release, as its answer was late, releases the
		// machine once more.
		if v, ok := c.Sims.MAAS.Machine(c.mac()); ok && v.Status == maassim.DiskErasing {
			assert.NoError(c.t, region.Abort(c.t.Context(), c.id(), "the wrong machine"))
		}
		_, stands := c.stands()
		return stands
	})
	erase(false)
}

// blockCredentials puts a file where the machine's credentials need a folder.
func (c *classCase) blockCredentials() {
	c.t.Helper()
	c.reachesStage(lifecycle.StageWaitHWSync)
	require.NoError(c.t, os.RemoveAll(c.credentials()))
	require.NoError(c.t, os.WriteFile(c.credentials(), []byte("not a folder\n"), 0o600))
}

func (c *classCase) unblockCredentials() { require.NoError(c.t, os.Remove(c.credentials())) }

func (c *classCase) credentials() string {
	return filepath.Join(c.Sims.Nodes[c.m.Spec().ID].Root(), "etc", "maas")
}

// restartHardwareSync starts what reports to MAAS again.
func (c *classCase) restartHardwareSync() {
	c.t.Helper()
	for _, on := range []bool{false, true} {
		require.NoError(c.t, c.region().SetHardwareSync(c.t.Context(), c.id(), on))
	}
	require.True(c.t, c.Sims.MAAS.SetHWSyncAgent(c.id(), true))
}

// drainWithBlockedMarker waits for the onboarding's end and drains the node, where
// something stands in the way of the mark that says that it takes no new work.
func (c *classCase) drainWithBlockedMarker() {
	c.t.Helper()
	c.waitParked()
	require.NoError(c.t, os.MkdirAll(filepath.Join(c.drainMarker(), "in-the-way"), 0o750))
	c.startJob(lifecycle.ModeDrain, nil)
}

// cleanStorageWithRecord waits for the onboarding's end, changes the record of the node's drives,
// and cleans its storage.
func cleanStorageWithRecord(change func([]spec.ExpectedDrive) []spec.ExpectedDrive) func(*classCase) {
	return func(c *classCase) { c.startJob(lifecycle.ModeStorageCleanup, change) }
}

// acceptDrives accepts the drives that the agent reports.
func (c *classCase) acceptDrives() {
	c.t.Helper()
	require.NoError(c.t, c.App.Store.Tx(c.t.Context(), func(tx *db.Tx) error {
		reported, err := tx.ReportedDrives(c.t.Context(), *c.job.NodeID)
		if err != nil {
			return err
		}
		return tx.RecordDrives(c.t.Context(), *c.job.NodeID, reported.Drives, db.DrivesAccepted, admin)
	}))
}

// startJob waits for the onboarding's end and starts a job of the node, whose record of drives it
// changes before.
func (c *classCase) startJob(mode lifecycle.DecommissionMode, record func([]spec.ExpectedDrive) []spec.ExpectedDrive) {
	c.t.Helper()
	j := c.waitParked()
	require.Equal(c.t, lifecycle.JobCompleted, j.Status, "%s: %s", j.FailedStage, j.Message)
	node, err := c.App.Store.Node(c.t.Context(), *j.NodeID)
	require.NoError(c.t, err)
	require.NoError(c.t, c.App.Store.Tx(c.t.Context(), func(tx *db.Tx) error {
		expected, err := tx.ExpectedDrives(c.t.Context(), node.ID)
		if err != nil {
			return err
		}
		require.Equal(c.t, db.DrivesCommissioned, expected.Source)
		if record != nil {
			if err := tx.RecordDrives(c.t.Context(), node.ID, record(expected.Drives), db.DrivesCommissioned, admin); err != nil {
				return err
			}
		}
		c.job, _, err = decommission.Start(c.t.Context(), tx, "", node, contract.DecommissionInput{
			Mode: mode, BMCID: c.bmcID, NodeID: node.ID, Hostname: node.Hostname, From: node.Status, Reason: "e2e", GraceSeconds: 1, SystemID: *node.MAASSystemID,
		}, admin)
		return err
	}))
}

func (c *classCase) unblockMarker() { require.NoError(c.t, os.RemoveAll(c.drainMarker())) }

func (c *classCase) drainMarker() string {
	return filepath.Join(c.Sims.Nodes[c.m.Spec().ID].Root(), "var/lib/slipway-agent", taskhandlers.DrainMarker)
}
