package cli

import (
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-cloud/slipway/client"
)

func (a *app) roceCommand() *cobra.Command {
	var texts []string
	var file string
	set := &cobra.Command{
		Use: "set SITE HOSTNAME", Short: "Write all RoCE ports of a host", Args: cobra.ExactArgs(2),
		Example: "  slipway roce set north gpu-1 --port interface=ens1f0,mtu=9000,subnet=10.1.0.0/24,ip=10.1.0.7,tag=roce",
	}
	set.Flags().StringArrayVar(&texts, "port", nil, "interface=NAME[,mtu=N][,subnet=CIDR][,ip=ADDRESS][,tag=TAG...]; may be repeated")
	set.Flags().StringVarP(&file, "file", "f", "", "YAML or JSON file with a list of ports")
	set.MarkFlagsMutuallyExclusive("port", "file")
	set.MarkFlagsOneRequired("port", "file")
	set.RunE = does(func(cmd *cobra.Command, args []string) error {
		ports := []client.RoCEPort{}
		if file != "" {
			if err := a.readDocument(file, &ports); err != nil {
				return err
			}
		}
		for _, text := range texts {
			p, err := parsePort(text)
			if err != nil {
				return err
			}
			ports = append(ports, p)
		}
		body := client.RoCERequest{Ports: ports}
		return a.roce(cmd, args, func(site string) (client.Answer[client.RoCE], error) {
			return a.api.PutRoce(cmd.Context(), site, args[1], body)
		})
	})
	show := &cobra.Command{Use: "show SITE HOSTNAME", Short: "Show the RoCE ports of a host", Args: cobra.ExactArgs(2),
		RunE: does(func(cmd *cobra.Command, args []string) error {
			return a.roce(cmd, args, func(site string) (client.Answer[client.RoCE], error) {
				return a.api.GetRoce(cmd.Context(), site, args[1])
			})
		})}
	return group("roce", "RoCE assignments: the fast ports of a host, by site and hostname", set, show)
}

func (a *app) roce(cmd *cobra.Command, args []string, ask func(site string) (client.Answer[client.RoCE], error)) error {
	site, err := a.siteOf(cmd.Context(), args[0])
	if err != nil {
		return err
	}
	r, err := ask(site)
	if err != nil {
		return err
	}
	return a.show(r.Raw, func() error {
		got, err := r.Decode()
		if err != nil {
			return err
		}
		t := a.table("INTERFACE", "MTU", "SUBNET", "IP", "TAGS")
		for _, p := range got.Ports {
			t.row(p.Interface, p.Mtu, orDash(p.SubnetCidr), orDash(p.IP), orDash(strings.Join(p.Tags, ",")))
		}
		return t.flush()
	})
}

func parsePort(text string) (client.RoCEPort, error) {
	var p client.RoCEPort
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
			p.Mtu = int64(n)
		case "subnet":
			p.SubnetCidr = v
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
