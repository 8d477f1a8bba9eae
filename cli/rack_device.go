package cli

import (
	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
)

func (a *app) rackDeviceCommand() *cobra.Command {
	return group("rack-device", "Switch trays and power shelves of racks: BMCs with health and firmware, no nodes",
		a.rackDeviceList(), a.rackDeviceShow(), a.rackDeviceAdd(), a.rackDeviceRemove())
}

func (a *app) rackDeviceList() *cobra.Command {
	var site string
	var limit int
	cmd := &cobra.Command{Use: "list", Short: "List switch trays and power shelves with their health", Args: cobra.NoArgs}
	cmd.Flags().StringVar(&site, "site", "", "only those of this site, by name or id")
	cmd.Flags().IntVar(&limit, "limit", 0, "at most so many (default: all)")
	cmd.RunE = does(func(cmd *cobra.Command, _ []string) error {
		var filter client.ListRackDevicesParams
		if site != "" {
			id, err := a.siteOf(cmd.Context(), site)
			if err != nil {
				return err
			}
			filter.SiteID = &id
		}
		r, err := listAll(cmd.Context(), list(a.api.ListRackDevices, &filter), limit)
		if err != nil {
			return err
		}
		return show(a, r, func(got client.ListRackDevice) error {
			t := a.table("ID", "KIND", "NAME", "RACK", "HEALTH", "BMC", "READ")
			for _, d := range got.Data {
				t.row(d.ID, d.Kind, d.Name, d.Rack, d.Class, d.BmcID, a.when(d.ReadAt))
			}
			return t.flush()
		})
	})
	return cmd
}

func (a *app) rackDeviceShow() *cobra.Command {
	cmd := &cobra.Command{Use: "show DEVICE", Short: "Show a switch tray or power shelf with what is not well and its firmware", Args: cobra.ExactArgs(1)}
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		r, err := a.api.GetRackDevice(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		return show(a, r, func(d client.RackDeviceDetails) error {
			if err := a.fields("id", d.ID, "kind", d.Kind, "name", d.Name, "rack", d.Rack, "BMC", d.BmcID, "health", d.Class, "read", a.when(d.ReadAt)); err != nil {
				return err
			}
			t := a.table("CLASS", "CATEGORY", "TARGET", "NOTE")
			for _, p := range d.Probes {
				if p.Class != "ok" {
					t.row(p.Class, p.Category, p.Target, p.Note)
				}
			}
			if err := t.flush(); err != nil {
				return err
			}
			t = a.table("KIND", "ID", "MODEL", "FIRMWARE")
			for _, p := range d.Parts {
				if !p.Gone {
					t.row(p.Kind, p.ID, p.Model, p.Firmware)
				}
			}
			return t.flush()
		})
	})
	return cmd
}

func (a *app) rackDeviceAdd() *cobra.Command {
	var b client.RackDeviceRequest
	var site, kind, rack, protocol, pin string
	cmd := &cobra.Command{
		Use: "add NAME", Short: "Add a switch tray or power shelf", Args: cobra.ExactArgs(1),
		Long: "Its BMC's certificate is probed in the next pass; approve it with `slipway bmc approve-pin` unless --pin names it.",
	}
	f := cmd.Flags()
	f.StringVar(&site, "site", "", "the site, by name or id")
	f.StringVar(&kind, "kind", "", "switch_tray or power_shelf")
	f.StringVar(&rack, "rack", "", "the rack that it stands in")
	f.StringVar(&b.Address, "address", "", "of its BMC: host, host:port or https://host:port")
	f.StringVar(&b.CredentialRef, "credential", "", "the stored login of its BMC")
	f.StringVar(&protocol, "protocol", "", "redfish (default) or ipmi")
	f.StringVar(&pin, "pin", "", "the pin of its certificate, if you have compared it")
	for _, name := range []string{"site", "kind", "address", "credential"} {
		_ = cmd.MarkFlagRequired(name)
	}
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		id, err := a.siteOf(cmd.Context(), site)
		if err != nil {
			return err
		}
		b.SiteID, b.Name, b.Kind, b.Rack = id, args[0], client.RackDeviceRequestKind(kind), rack
		b.Protocol, b.PinSha256 = client.RackDeviceRequestProtocol(protocol), pin
		r, err := a.api.CreateRackDevice(cmd.Context(), b)
		if err != nil {
			return err
		}
		return show(a, r, func(d client.RackDevice) error {
			return a.fields("id", d.ID, "name", d.Name, "BMC", d.BmcID)
		})
	})
	return cmd
}

func (a *app) rackDeviceRemove() *cobra.Command {
	cmd := &cobra.Command{Use: "remove DEVICE", Short: "Remove a switch tray or power shelf with the record of its BMC and its log", Args: cobra.ExactArgs(1)}
	cmd.RunE = does(func(cmd *cobra.Command, args []string) error {
		_, err := a.api.DeleteRackDevice(cmd.Context(), args[0])
		return err
	})
	return cmd
}
