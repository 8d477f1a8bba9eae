package secrets

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// AddressRule implements providers.Secrets.
func (s *Secrets) AddressRule(ctx context.Context, ref providers.SecretRef, use providers.Use) (spec.AddressRule, error) {
	var stated spec.SecretUse
	if ref != "" {
		name, _, err := parseRef(opResolve, ref)
		if err != nil {
			return spec.AddressRule{}, err
		}
		own := spec.IsInternalSecret(name) || slices.Contains(s.own, name)
		if own || use.Kind == spec.SecretInternal {
			return spec.AddressRule{}, checkOwn(name, own, use)
		}
		if stated, err = s.statedUse(ctx, name, use.Kind); err != nil {
			return spec.AddressRule{}, err
		}
	}
	rule, err := s.siteRule(ctx, use)
	if err != nil {
		return spec.AddressRule{}, err
	}
	if ref != "" {
		if rule, err = narrow(ref, stated, use, rule); err != nil {
			return spec.AddressRule{}, err
		}
	}
	if use.Address == "" {
		return rule, nil
	}
	return rule, providers.CheckAddress(ctx, s.resolver, rule, use.Address)
}

// checkOwn keeps Slipway's own secrets and those of operators apart.
func checkOwn(name string, own bool, use providers.Use) error {
	switch {
	case own && use.Kind != spec.SecretInternal:
		return failure(providers.KindInvalid, opResolve, nil, "secret %s is Slipway's own and is never a %s; name another secret", name, use.Kind)
	case !own:
		return failure(providers.KindInvalid, opResolve, nil, "secret %s is not one that Slipway keeps for itself", name)
	}
	return nil
}

// statedUse returns the stated use of a secret whose kind is the one given.
func (s *Secrets) statedUse(ctx context.Context, name string, kind spec.SecretKind) (spec.SecretUse, error) {
	stated, found, err := s.store.SecretUse(ctx, name)
	switch {
	case err != nil:
		return stated, storeFailure(opResolve, err)
	case found && stated.Kind == kind:
		return stated, nil
	case found:
		return stated, failure(providers.KindInvalid, opResolve, nil,
			"secret %s may be used as %s and not as %s; name another secret, or have an administrator change its use", name, stated.Kind, kind)
	}
	_, _, _, stored, err := s.store.SecretVersion(ctx, name, 0)
	switch {
	case err != nil:
		return stated, storeFailure(opResolve, err)
	case !stored:
		return stated, failure(providers.KindNotFound, opResolve, nil, "there is no secret %s; put it first", name)
	}
	return stated, failure(providers.KindInvalid, opResolve, nil,
		"nobody has stated what secret %s may be used for; an administrator has to state its use, as %s and for which sites, nodes or networks", name, kind)
}

// isBMCWithoutSite reports whether no site bounds the address of a BMC: the networks of its login
// do.
func isBMCWithoutSite(use providers.Use) bool {
	return use.Site == "" && use.Kind == spec.SecretBMCLogin
}

// narrow returns the rule for a use that the stated one allows. Where only the networks of the
// stated use allow it, no other address is allowed.
func narrow(ref providers.SecretRef, stated spec.SecretUse, use providers.Use, rule spec.AddressRule) (spec.AddressRule, error) {
	if stated.Allows(use.Site, use.Node) && !isBMCWithoutSite(use) {
		return rule, nil
	}
	if len(stated.Networks) == 0 || use.Address == "" {
		return rule, failure(providers.KindInvalid, opResolve, nil,
			"secret %s may not be used for site %q, node %q, address %q; name another secret, or have an administrator change its use%s",
			ref, use.Site, use.Node, use.Address, map[bool]string{true: " (the BMC of a node without a site needs its networks there)"}[isBMCWithoutSite(use)])
	}
	narrowed := stated.RuleWithoutSite()
	if !rule.Anywhere {
		narrowed.Networks = overlap(rule.Networks, narrowed.Networks)
	}
	if use.Site != "" {
		narrowed.Loopback, narrowed.PlainHTTP = rule.Loopback, rule.PlainHTTP
	}
	narrowed.Own, narrowed.Where = rule.Own, "networks that secret "+string(ref)+" may be used in"
	return narrowed, nil
}

// overlap returns what is in a network of both lists.
func overlap(a, b []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, x := range a {
		for _, y := range b {
			if x.Overlaps(y) {
				out = append(out, netip.PrefixFrom(x.Addr(), max(x.Bits(), y.Bits())))
				if y.Bits() > x.Bits() {
					out[len(out)-1] = y
				}
			}
		}
	}
	return out
}

// siteRule returns the rule of a kind of target at a site. Without a site, the networks of the
// login's use bound the address.
func (s *Secrets) siteRule(ctx context.Context, use providers.Use) (spec.AddressRule, error) {
	own := s.OwnAddresses(ctx)
	if use.Site == "" {
		return spec.AddressRule{Anywhere: true, Own: own}, nil
	}
	name, site, err := s.store.SiteForAddresses(ctx, use.Site)
	if err != nil {
		return spec.AddressRule{}, storeFailure(opResolve, err)
	}
	rule := site.AddressRule(use.Kind, name)
	rule.Own = own
	if use.Kind == spec.SecretSSHKey && !rule.Loopback {
		// A region may run beside the control plane. A node never does, so no port is a node's.
		for i, to := range own {
			rule.Own[i] = netip.AddrPortFrom(to.Addr(), 0)
		}
	}
	return rule, nil
}

// OwnAddresses resolves the control plane's own services. It leaves out what has never been
// resolved.
func (s *Secrets) OwnAddresses(ctx context.Context) []netip.AddrPort {
	var out []netip.AddrPort
	for _, service := range s.protected {
		host, number, err := net.SplitHostPort(service)
		port, perr := strconv.ParseUint(number, 10, 16)
		if errors.Join(err, perr) != nil || port == 0 {
			continue
		}
		for _, ip := range s.addressesOf(ctx, host) {
			out = append(out, netip.AddrPortFrom(ip.Unmap(), uint16(port)))
		}
	}
	return out
}

func (s *Secrets) addressesOf(ctx context.Context, host string) []netip.Addr {
	ip, err := netip.ParseAddr(host)
	switch {
	case host == "" || err == nil && ip.IsUnspecified():
		return localAddresses()
	case err == nil:
		return []netip.Addr{ip}
	}
	return s.ownNames.lookup(ctx, s.resolver, host)
}

// localAddresses returns the addresses of this machine's interfaces.
func localAddresses() []netip.Addr {
	interfaces, _ := net.InterfaceAddrs()
	var out []netip.Addr
	for _, a := range interfaces {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				out = append(out, ip.Unmap())
			}
		}
	}
	return out
}
