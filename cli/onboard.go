package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
)

// target is which node is meant, by names or ids.
type target struct{ site, profile, sku, hostname string }

func (t *target) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&t.site, "site", "", "the site, by name or id")
	f.StringVar(&t.profile, "profile", "", "the profile, by name or id")
	f.StringVar(&t.sku, "sku", "", "the SKU, by name or id")
	f.StringVar(&t.hostname, "hostname", "", "hostname of the node: one DNS label in lower case")
}

// resolve finds the ids.
func (t target) resolve(ctx context.Context, a *app) (ids client.NodeRequest, err error) {
	for name, v := range map[string]string{"--site": t.site, "--profile": t.profile, "--sku": t.sku, "--hostname": t.hostname} {
		if v == "" {
			return ids, fail(ExitUsage, "%s is missing", name)
		}
	}
	ids.Hostname = t.hostname
	if ids.SiteID, err = a.siteOf(ctx, t.site); err != nil {
		return ids, err
	}
	if ids.ProfileID, err = a.profileOf(ctx, ids.SiteID, t.profile); err != nil {
		return ids, err
	}
	ids.SkuID, err = a.skuOf(ctx, t.sku)
	return ids, err
}

func (a *app) nodeOnboard() *cobra.Command {
	var t target
	var b bmcFlags
	var file string
	var w watchFlags
	cmd := &cobra.Command{
		Use: "onboard", Short: "Make a bare server an active GPU node; or many of them, from a file", Args: cobra.NoArgs,
		Example: "  slipway node onboard --site north --profile standard --sku h100x8 --hostname gpu-1 --bmc 10.0.0.11 --credential bmc/gpu-1 --watch\n" +
			"  slipway node onboard --file batch.yaml\n\nwith batch.yaml:\n  name: rack 7\n  site: north\n  profile: standard\n  sku: h100x8\n  items:\n" +
			"    - {hostname: gpu-1, bmc: 10.0.0.11, credential: bmc/gpu-1}",
	}
	t.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&b.Address, "bmc", "", "address of the BMC: host, host:port or https://host:port")
	f.StringVar(&b.Credential, "credential", "", "secret that holds the BMC's login; slipway secret put stores one")
	f.StringVar(&b.SystemID, "bmc-system-id", "", "which system, where the BMC has several")
	f.StringVar(&b.Protocol, "bmc-protocol", "", "redfish or ipmi (default: what the profile says); ipmi only where there is no working Redfish")
	f.IntVar(&b.CipherSuite, "ipmi-cipher-suite", 0, "with ipmi: 17, or 3 for a device that has nothing better (default 17)")
	f.StringVarP(&file, "file", "f", "", "YAML or JSON file with a batch")
	w.add(cmd)
	var dry dryRun
	dry.flags(cmd)
	for _, alone := range []string{"site", "profile", "sku", "hostname", "bmc", "credential", "bmc-system-id", "bmc-protocol", "ipmi-cipher-suite"} {
		cmd.MarkFlagsMutuallyExclusive("file", alone)
	}
	cmd.RunE = does(func(cmd *cobra.Command, _ []string) error {
		if err := dry.check(file, w); err != nil {
			return err
		}
		if file != "" {
			return a.onboardBatch(cmd.Context(), file, w)
		}
		ids, err := t.resolve(cmd.Context(), a)
		if err != nil {
			return err
		}
		if b.Address == "" || b.Credential == "" {
			return fail(ExitUsage, "--bmc and --credential are needed")
		}
		body := client.OnboardingRequest{SiteID: ids.SiteID, ProfileID: ids.ProfileID, SkuID: ids.SkuID, Hostname: ids.Hostname, Bmc: b.request()}
		if dry.on {
			return a.planOnboarding(cmd, body, dry)
		}
		r, err := a.api.CreateOnboarding(cmd.Context(), body)
		return a.followJob(cmd.Context(), r, err, w)
	})
	return cmd
}

// followJob follows a job that was asked for where that is wanted, or else shows it.
func (a *app) followJob(ctx context.Context, r client.Answer[client.Job], err error, w watchFlags) error {
	j, err := client.Value(r, err)
	if err != nil {
		return err
	}
	if w.on {
		return a.watchJob(ctx, j.ID, w)
	}
	return a.show(r.Raw, func() error { return a.jobFields(j) })
}

// bmcFlags is a BMC as an operator names it.
type bmcFlags struct {
	Address     string `json:"bmc"`
	Credential  string `json:"credential"`
	SystemID    string `json:"bmc_system_id"`
	Protocol    string `json:"bmc_protocol"`
	CipherSuite int    `json:"ipmi_cipher_suite"`
}

func (b bmcFlags) request() client.BMCRequest {
	return client.BMCRequest{
		Address: b.Address, CredentialRef: b.Credential, SystemID: b.SystemID,
		Protocol: client.BMCRequestProtocol(b.Protocol), IpmiCipherSuite: client.BMCRequestIpmiCipherSuite(b.CipherSuite),
	}
}

// batchFile is a batch as an operator writes it, by names or ids.
type batchFile struct {
	Name    string `json:"name"`
	Site    string `json:"site"`
	Profile string `json:"profile"`
	SKU     string `json:"sku"`
	Items   []struct {
		Hostname string `json:"hostname"`
		Profile  string `json:"profile"`
		SKU      string `json:"sku"`
		bmcFlags
	} `json:"items"`
}

// request finds the ids, each name once.
func (b batchFile) request(ctx context.Context, a *app) (out client.BatchRequest, err error) {
	site, err := a.siteOf(ctx, b.Site)
	if err != nil {
		return out, err
	}
	known := map[string]string{}
	once := func(kind, name string, find func(string) (string, error)) (string, error) {
		if name == "" {
			return "", nil
		}
		if id, ok := known[kind+name]; ok {
			return id, nil
		}
		id, err := find(name)
		known[kind+name] = id
		return id, err
	}
	profile := func(name string) (string, error) {
		return once("p/", name, func(n string) (string, error) { return a.profileOf(ctx, site, n) })
	}
	sku := func(name string) (string, error) {
		return once("s/", name, func(n string) (string, error) { return a.skuOf(ctx, n) })
	}
	out.Name, out.SiteID, out.SkuID = &b.Name, site, new(string)
	if out.ProfileID, err = profile(b.Profile); err != nil {
		return out, err
	}
	if *out.SkuID, err = sku(b.SKU); err != nil {
		return out, err
	}
	for _, i := range b.Items {
		item := client.BatchItemRequest{Hostname: i.Hostname, Bmc: i.request()}
		if item.ProfileID, err = profile(i.Profile); err != nil {
			return out, err
		}
		if item.SkuID, err = sku(i.SKU); err != nil {
			return out, err
		}
		out.Items = append(out.Items, item)
	}
	return out, nil
}

func (a *app) onboardBatch(ctx context.Context, file string, w watchFlags) error {
	var b batchFile
	if err := a.readDocument(file, &b); err != nil {
		return err
	}
	if b.Site == "" || b.Profile == "" || len(b.Items) == 0 {
		return fail(ExitUsage, "%s needs site, profile and items", file)
	}
	body, err := b.request(ctx, a)
	if err != nil {
		return err
	}
	r, err := a.api.CreateOnboardingBatch(ctx, body)
	got, err := client.Value(r, err)
	if err != nil {
		return err
	}
	if w.on {
		return a.watchBatch(ctx, got.ID, w)
	}
	if err := a.showBatch(r); err != nil {
		return err
	}
	switch rejected := got.Counts["rejected"]; rejected {
	case 0:
		return nil
	case got.Total:
		return fail(ExitRefused, "nothing was started: all %d items were rejected", got.Total)
	default:
		return fail(ExitRefused, "%d of %d items were rejected; send only the rejected ones again", rejected, got.Total)
	}
}

func (a *app) showBatch(r client.Answer[client.Batch]) error {
	return show(a, r, func(b client.Batch) error {
		if err := a.fields("batch", b.ID, "name", b.Name, "at a time", b.MaxParallel, "items", b.Total, "of these", counts(b.Counts)); err != nil {
			return err
		}
		t := a.table("HOSTNAME", "STATUS", "PROGRESS", "STAGE", "JOB", "REJECTED BECAUSE")
		for _, i := range b.Items {
			t.row(i.Hostname, i.Status, percent(i.ProgressPercent), orDash(i.Stage), orDash(i.JobID), i.Error)
		}
		return t.flush()
	})
}

func (a *app) batchCommand() *cobra.Command {
	var w watchFlags
	one := &cobra.Command{Use: "show BATCH", Short: "Show a batch and its items, by id or name", Args: cobra.ExactArgs(1)}
	w.add(one)
	one.RunE = does(func(cmd *cobra.Command, args []string) error {
		id, err := a.batchOf(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		if w.on {
			return a.watchBatch(cmd.Context(), id, w)
		}
		r, err := a.api.GetOnboardingBatch(cmd.Context(), id)
		if err != nil {
			return err
		}
		return a.showBatch(r)
	})
	all := &cobra.Command{Use: "list", Short: "List batches, newest first", Args: cobra.NoArgs, RunE: does(func(cmd *cobra.Command, _ []string) error {
		r, err := listAll(cmd.Context(), list(a.api.ListOnboardingBatches, nil), 50)
		if err != nil {
			return err
		}
		return show(a, r, func(got client.ListBatch) error {
			t := a.table("ID", "NAME", "ITEMS", "OF THESE")
			for _, b := range got.Data {
				t.row(b.ID, orDash(b.Name), b.Total, counts(b.Counts))
			}
			return t.flush()
		})
	})}
	return group("batch", "Batches of onboardings", one, all)
}

// batchEnded reports whether nothing moves any more without an operator.
func batchEnded(b client.Batch) (done, well bool) {
	well = true
	for _, i := range b.Items {
		d, ok := outcome(i.Status)
		if i.Status == "rejected" {
			d, ok = true, false
		}
		if !d {
			return false, false
		}
		well = well && ok
	}
	return true, well
}

func batchFailed(b client.Batch) string {
	var bad []string
	for _, i := range b.Items {
		if _, ok := outcome(i.Status); !ok {
			bad = append(bad, i.Hostname+" ("+i.Status+")")
		}
	}
	return oneLine(strings.Join(bad, ", "))
}
