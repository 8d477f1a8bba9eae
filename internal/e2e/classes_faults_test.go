package e2e_test

import (
	"context"
	"encoding/json"
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

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/agent/nodework"
	"github.com/slipway-cloud/slipway/internal/simnode"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/maas"
	"github.com/slipway-cloud/slipway/providers/maas/maassim"
	"github.com/slipway-cloud/slipway/workflows/contract"
)

// How faults are injected and removed.

// mac is by what a fault names the machine: MAAS has no id for it yet.
func (p *patient) mac() string { return p.m.Spec().NICs[0].MAC }

func (p *patient) maasFault(f maassim.Fault) {
	p.t.Helper()
	f.Machine = p.mac()
	id, err := p.Sims.MAAS.AddFault(f)
	require.NoError(p.t, err)
	p.faults = append(p.faults, id)
}

func (p *patient) clearFaults() {
	for _, id := range p.faults {
		p.Sims.MAAS.ClearFaults(id)
	}
	p.Sims.BMCs[p.m.Spec().ID].ClearFaults()
}

func (p *patient) node(f simnode.Faults) {
	p.t.Helper()
	require.NoError(p.t, p.Sims.Nodes[p.m.Spec().ID].SetFaults(f))
}

func (p *patient) eventually(what string, is func() bool) {
	p.t.Helper()
	if !assert.Eventually(p.t, is, patience, 100*time.Millisecond, what) {
		p.t.late = true
		p.t.FailNow()
	}
}

// reaches waits until the job is at a stage.
func (p *patient) reaches(stage string) {
	p.t.Helper()
	p.eventually("the job is at "+stage, func() bool {
		j, err := p.App.Store.Job(p.t.Context(), p.job.ID)
		return err == nil && j.Stage == stage && j.Status == lifecycle.JobRunning
	})
}

// status waits until MAAS shows the machine so.
func (p *patient) status(want maassim.Status) {
	p.t.Helper()
	p.eventually("the machine is "+want.String(), func() bool {
		v, ok := p.Sims.MAAS.Machine(p.mac())
		return ok && v.Status == want
	})
}

// region is MAAS as any other administrator uses it.
func (p *patient) region() providers.MAAS {
	p.t.Helper()
	c, err := maas.Opener{}.OpenMAAS(providers.MAASSite{URL: p.Sims.URL, APIKey: providers.NewSecret(p.Sims.APIKey)})
	require.NoError(p.t, err)
	return c
}

// raw is a call that Slipway's own client has no use for.
func (p *patient) raw(method, path string, form url.Values) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, p.Sims.URL+"/api/2.0/"+path, strings.NewReader(form.Encode()))
	require.NoError(p.t, err)
	key := strings.Split(p.Sims.APIKey, ":")
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Authorization", fmt.Sprintf(`OAuth oauth_version="1.0", oauth_signature_method="PLAINTEXT", oauth_consumer_key="%s", `+
		`oauth_token="%s", oauth_signature="%%26%s", oauth_timestamp="%d", oauth_nonce="%d"`, key[0], key[1], key[2], time.Now().Unix(), time.Now().UnixNano()))
	res, err := http.DefaultClient.Do(req)
	require.NoError(p.t, err)
	defer res.Body.Close() //nolint:errcheck // read to the end
	body, err := io.ReadAll(res.Body)
	require.NoError(p.t, err)
	require.Equal(p.t, http.StatusOK, res.StatusCode, string(body))
}

func (p *patient) id() string {
	p.t.Helper()
	v, ok := p.Sims.MAAS.Machine(p.mac())
	require.True(p.t, ok)
	return v.SystemID
}

// deleteTwin deletes the record that does not hold the boot card.
func (p *patient) deleteTwin() {
	p.t.Helper()
	var macs []string
	for _, n := range p.m.Spec().NICs {
		macs = append(macs, n.MAC)
	}
	found, err := p.region().FindMachines(p.t.Context(), providers.MAASQuery{MACs: macs})
	require.NoError(p.t, err)
	require.Len(p.t, found, 2)
	for _, m := range found {
		if !slices.ContainsFunc(m.MACs, func(s string) bool { return strings.EqualFold(s, p.mac()) }) {
			require.NoError(p.t, p.region().DeleteMachine(p.t.Context(), m.SystemID))
		}
	}
}

// cable puts the boot interface on the VLAN of the provisioning network.
func (p *patient) cable() {
	p.t.Helper()
	ifaces, err := p.region().Interfaces(p.t.Context(), p.id())
	require.NoError(p.t, err)
	subnets, err := p.region().Subnets(p.t.Context())
	require.NoError(p.t, err)
	vlan := slices.IndexFunc(subnets, func(s providers.MAASSubnet) bool { return s.Name == "provisioning" })
	require.GreaterOrEqual(p.t, vlan, 0, "%v", subnets)
	for _, f := range ifaces {
		if strings.EqualFold(f.MAC, p.mac()) {
			p.raw(http.MethodPut, "nodes/"+p.id()+"/interfaces/"+strconv.Itoa(f.ID)+"/", url.Values{"vlan": {strconv.Itoa(subnets[vlan].VLANID)}})
			return
		}
	}
	require.Fail(p.t, "MAAS does not list the boot interface")
}

func (p *patient) correctProfile(mend func(*lifecycle.ProfileSpec)) {
	p.t.Helper()
	spec := p.profile.Spec
	mend(&spec)
	_, err := p.App.Store.UpdateProfile(p.t.Context(), p.profile.ID, p.profile.Version, p.profile.Name, spec)
	require.NoError(p.t, err)
}

func (p *patient) dropRoCE() {
	p.t.Helper()
	p.sql("DELETE FROM roce_assignments WHERE hostname = '" + p.host + "'")
}

// breakDatabase makes one write of this node fail with an SQLSTATE.
func breakDatabase(state string) func(*patient) {
	return func(p *patient) {
		p.t.Helper()
		p.sql(`CREATE FUNCTION broken_` + state + `() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION USING ERRCODE = '` + state + `', MESSAGE = 'planted'; END $$`)
		p.sql(`CREATE TRIGGER broken_` + state + ` BEFORE UPDATE OF maas_create_intent ON nodes FOR EACH ROW WHEN (NEW.hostname = '` + p.host + `') EXECUTE FUNCTION broken_` + state + `()`)
	}
}

func mendDatabase(state string) func(*patient) {
	return func(p *patient) { p.t.Helper(); p.sql("DROP FUNCTION broken_" + state + " CASCADE") }
}

func (p *patient) sql(statement string) {
	p.t.Helper()
	conn, err := pgx.Connect(p.t.Context(), p.Postgres.DSN(p.Database))
	require.NoError(p.t, err)
	defer conn.Close(p.t.Context()) //nolint:errcheck // one statement
	_, err = conn.Exec(p.t.Context(), statement)
	require.NoError(p.t, err)
}

// lockoutEnds waits for the lockout of that BMC, an hour of its own clock.
func (p *patient) lockoutEnds() {
	p.t.Helper()
	clock := p.Sims.Fleet.Clock()
	until := clock.Now().Add(61 * time.Minute)
	p.eventually("the lockout is over", func() bool { return clock.Now().After(until) })
}

// failToErase has the region erase disks while this machine is released, and
// somebody aborts that.
func (p *patient) failToErase() {
	p.t.Helper()
	p.reaches(contract.StageWaitDeployed)
	p.maasFault(maassim.Fault{Name: "stuck_erasing"})
	erase := func(on bool) {
		p.raw(http.MethodPost, "maas/?op=set_config", url.Values{"name": {"enable_disk_erasing_on_release"}, "value": {strconv.FormatBool(on)}})
	}
	erase(true)
	p.status(maassim.DiskErasing)
	erase(false)
	require.NoError(p.t, p.region().Abort(p.t.Context(), p.id(), "the wrong machine"))
}

// blockCredentials puts a file where the machine's credentials need a folder.
func (p *patient) blockCredentials() {
	p.t.Helper()
	p.reaches(contract.StageWaitHWSync)
	require.NoError(p.t, os.RemoveAll(p.credentials()))
	require.NoError(p.t, os.WriteFile(p.credentials(), []byte("not a folder\n"), 0o600))
}

func (p *patient) unblockCredentials() { require.NoError(p.t, os.Remove(p.credentials())) }

func (p *patient) credentials() string {
	return filepath.Join(p.Sims.Nodes[p.m.Spec().ID].Root(), "etc", "maas")
}

// mendSync starts what reports to MAAS again.
func (p *patient) mendSync() {
	p.t.Helper()
	for _, on := range []bool{false, true} {
		require.NoError(p.t, p.region().SetHardwareSync(p.t.Context(), p.id(), on))
	}
	require.True(p.t, p.Sims.MAAS.SetHWSyncAgent(p.id(), true))
}

// drainsOverADamagedMark waits for the onboarding's end and drains the node, where
// something stands in the way of the mark that says that it takes no new work.
func (p *patient) drainsOverADamagedMark() {
	p.t.Helper()
	j := p.stands()
	require.Equal(p.t, lifecycle.JobCompleted, j.Status, "%s: %s", j.FailedStage, j.Message)
	require.NoError(p.t, os.MkdirAll(filepath.Join(p.mark(), "in-the-way"), 0o750))
	node, err := p.App.Store.Node(p.t.Context(), *j.NodeID)
	require.NoError(p.t, err)
	raw, err := json.Marshal(contract.DecommissionInput{
		Mode: lifecycle.ModeDrain, NodeID: node.ID, Hostname: node.Hostname, From: node.Status, Reason: "e2e", GraceSeconds: 1, SystemID: *node.MAASSystemID,
	})
	require.NoError(p.t, err)
	require.NoError(p.t, p.App.Store.Tx(p.t.Context(), func(tx *db.Tx) error {
		p.job, _, err = tx.StartNodeJob(p.t.Context(), db.NodeJob{Mode: lifecycle.ModeDrain, Node: node, Job: db.NewJob{
			Kind: string(contract.DecommissionKind(lifecycle.ModeDrain)), Input: raw, Actor: admin,
		}})
		return err
	}))
}

func (p *patient) mendMark() { require.NoError(p.t, os.RemoveAll(p.mark())) }

func (p *patient) mark() string {
	return filepath.Join(p.Sims.Nodes[p.m.Spec().ID].Root(), "var/lib/slipway-agent", nodework.DrainMarker)
}
