package cli

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

func (a *app) roceCommand() *cobra.Command {
	var ports []string
	var file string
	set := &cobra.Command{
		Use: "set SITE HOSTNAME", Short: "Write all RoCE ports of a host", Args: cobra.ExactArgs(2),
		Example: "  slipway roce set north gpu-1 --port interface=ens1f0,mtu=9000,subnet=10.1.0.0/24,ip=10.1.0.7,tag=roce",
	}
	set.Flags().StringArrayVar(&ports, "port", nil, "interface=NAME[,mtu=N][,subnet=CIDR][,ip=ADDRESS][,tag=TAG...]; may be repeated")
	set.Flags().StringVarP(&file, "file", "f", "", "YAML or JSON file with a list of ports")
	set.MarkFlagsMutuallyExclusive("port", "file")
	set.MarkFlagsOneRequired("port", "file")
	set.RunE = does(func(cmd *cobra.Command, args []string) error {
		list := []spec.RoCEPort{}
		if file != "" {
			if err := a.readDocument(file, &list); err != nil {
				return err
			}
		}
		for _, text := range ports {
			p, err := parsePort(text)
			if err != nil {
				return err
			}
			list = append(list, p)
		}
		return a.roce(cmd, args, "PUT", map[string]any{"ports": list})
	})
	show := &cobra.Command{Use: "show SITE HOSTNAME", Short: "Show the RoCE ports of a host", Args: cobra.ExactArgs(2),
		RunE: does(func(cmd *cobra.Command, args []string) error { return a.roce(cmd, args, "GET", nil) })}
	return group("roce", "RoCE assignments: the fast ports of a host, by site and hostname", set, show)
}

func (a *app) roce(cmd *cobra.Command, args []string, method string, body any) error {
	site, err := a.siteOf(cmd.Context(), args[0])
	if err != nil {
		return err
	}
	r, err := a.ask(cmd.Context(), method, "/admin/maas-sites/"+site+"/roce-assignments/"+url.PathEscape(args[1]), body, nil)
	if err != nil {
		return err
	}
	return a.show(r.raw, func() error {
		var got struct{ Ports []spec.RoCEPort }
		if err := r.into(&got); err != nil {
			return err
		}
		t := a.table("INTERFACE", "MTU", "SUBNET", "IP", "TAGS")
		for _, p := range got.Ports {
			t.row(p.Interface, p.MTU, orDash(p.SubnetCIDR), orDash(p.IP), orDash(strings.Join(p.Tags, ",")))
		}
		return t.flush()
	})
}

func parsePort(text string) (spec.RoCEPort, error) {
	var p spec.RoCEPort
	for _, pair := range strings.Split(text, ",") {
		k, v, _ := strings.Cut(pair, "=")
		switch k {
		case "interface":
			p.Interface = v
		case "mtu":
			n, err := strconv.Atoi(v)
			if err != nil {
				return p, fail(ExitUsage, "--port: mtu %q is no number", v)
			}
			p.MTU = n
		case "subnet":
			p.SubnetCIDR = v
		case "ip":
			p.IP = v
		case "tag":
			p.Tags = append(p.Tags, v)
		default:
			return p, fail(ExitUsage, "--port: %q is not one of interface, mtu, subnet, ip, tag", k)
		}
	}
	return p, nil
}
