package scaleway

import (
	"context"
	"fmt"
	"net"
	"slices"

	instance "github.com/scaleway/scaleway-sdk-go/api/instance/v1"
	"github.com/scaleway/scaleway-sdk-go/scw"

	"github.com/slipway-cloud/slipway/providers"
)

// ensureGroup returns the security group of an instance with its rules, and makes it where there is
// none.
func (c *client) ensureGroup(ctx context.Context, in providers.CloudCreate) (string, error) {
	groups, err := c.listGroups(ctx, in.Zone, instanceTag(in.InstanceID))
	if err != nil {
		return "", err
	}
	id := ""
	if len(groups) > 0 {
		id = groups[0].ID
	} else {
		res, err := call(ctx, c, "create_group", true, func(opts ...scw.RequestOption) (*instance.CreateSecurityGroupResponse, error) {
			return c.servers.CreateSecurityGroup(&instance.CreateSecurityGroupRequest{
				Zone: scw.Zone(in.Zone), Name: name(in.InstanceID), Project: &c.project, Tags: c.tags(in.InstanceID), Stateful: true,
				InboundDefaultPolicy: instance.SecurityGroupPolicyDrop, OutboundDefaultPolicy: instance.SecurityGroupPolicyAccept,
			}, opts...)
		})
		if err != nil {
			return "", err
		}
		id = res.SecurityGroup.ID
	}
	_, err = c.writeRules(ctx, in.Zone, id, in.Sources)
	return id, err
}

func (c *client) listGroups(ctx context.Context, zone, tag string) ([]*instance.SecurityGroup, error) {
	res, err := call(ctx, c, "list_groups", false, func(opts ...scw.RequestOption) (*instance.ListSecurityGroupsResponse, error) {
		return c.servers.ListSecurityGroups(&instance.ListSecurityGroupsRequest{Zone: scw.Zone(zone), Project: &c.project, Tags: []string{tag}}, append(opts, scw.WithAllPages())...)
	})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(res.SecurityGroups, func(g *instance.SecurityGroup) bool { return !slices.Contains(g.Tags, c.installationTag()) }), nil
}

// wantedRules returns the rules of a group. A range is written for each source and port.
func wantedRules(zone string, s providers.CloudSources) ([]*instance.SetSecurityGroupRulesRequestRule, error) {
	var out []*instance.SetSecurityGroupRulesRequestRule
	add := func(sources []string, ports ...uint32) error {
		for _, source := range sources {
			_, network, err := net.ParseCIDR(source)
			if err != nil {
				return &providers.Error{Kind: providers.KindInvalid, Op: "cloud.group", Message: fmt.Sprintf("%q is no network such as 192.0.2.0/24", source)}
			}
			for _, port := range ports {
				z := scw.Zone(zone)
				out = append(out, &instance.SetSecurityGroupRulesRequestRule{
					Action: instance.SecurityGroupRuleActionAccept, Protocol: instance.SecurityGroupRuleProtocolTCP, Direction: instance.SecurityGroupRuleDirectionInbound,
					IPRange: scw.IPNet{IPNet: *network}, DestPortFrom: scw.Uint32Ptr(port), Zone: &z,
				})
			}
		}
		return nil
	}
	if err := add(s.SSH, 22); err != nil {
		return nil, err
	}
	return out, add(s.Worker, providers.WorkerVLLMPort, providers.WorkerAgentPort)
}

// writeRules writes the rules of a group where they differ, and reports whether they were as
// wanted.
func (c *client) writeRules(ctx context.Context, zone, id string, s providers.CloudSources) (bool, error) {
	wanted, err := wantedRules(zone, s)
	if err != nil {
		return false, err
	}
	res, err := call(ctx, c, "list_rules", false, func(opts ...scw.RequestOption) (*instance.ListSecurityGroupRulesResponse, error) {
		return c.servers.ListSecurityGroupRules(&instance.ListSecurityGroupRulesRequest{Zone: scw.Zone(zone), SecurityGroupID: id}, append(opts, scw.WithAllPages())...)
	})
	if err != nil {
		return false, err
	}
	var have, want []string
	for _, r := range res.Rules {
		if r.Editable { // the others are Scaleway's own
			have = append(have, describe(r.Action, r.Protocol, r.Direction, r.IPRange, r.DestPortFrom, r.DestPortTo))
		}
	}
	for _, r := range wanted {
		want = append(want, describe(r.Action, r.Protocol, r.Direction, r.IPRange, r.DestPortFrom, r.DestPortTo))
	}
	slices.Sort(have)
	slices.Sort(want)
	if slices.Equal(have, want) {
		return true, nil
	}
	_, err = call(ctx, c, "set_rules", true, func(opts ...scw.RequestOption) (*instance.SetSecurityGroupRulesResponse, error) {
		return c.servers.SetSecurityGroupRules(&instance.SetSecurityGroupRulesRequest{Zone: scw.Zone(zone), SecurityGroupID: id, Rules: wanted}, opts...)
	})
	return false, err
}

func describe(a instance.SecurityGroupRuleAction, p instance.SecurityGroupRuleProtocol, d instance.SecurityGroupRuleDirection, r scw.IPNet, from, to *uint32) string {
	ports := [2]uint32{}
	if from != nil {
		ports[0], ports[1] = *from, *from
	}
	if to != nil {
		ports[1] = *to
	}
	return fmt.Sprintf("%s %s %s %s %d-%d", a, p, d, r.IPNet.String(), ports[0], ports[1])
}

// VerifyGroup implements providers.Cloud.
func (c *client) VerifyGroup(ctx context.Context, t providers.CloudTarget, sources providers.CloudSources) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	conflict := func(message string) error {
		return &providers.Error{Kind: providers.KindStateConflict, Op: "cloud.verify_group", Message: message}
	}
	s, err := c.server(ctx, t.Zone, t.ServerID)
	if err != nil {
		return false, err
	}
	groups, err := c.listGroups(ctx, t.Zone, instanceTag(t.InstanceID))
	if err != nil {
		return false, err
	}
	i := slices.IndexFunc(groups, func(g *instance.SecurityGroup) bool { return s.SecurityGroup != nil && g.ID == s.SecurityGroup.ID })
	switch {
	case i < 0:
		return false, conflict("the server has another security group than that of its instance: somebody changed it")
	case groups[i].InboundDefaultPolicy != instance.SecurityGroupPolicyDrop:
		return false, conflict("the security group accepts what no rule names: somebody changed it")
	case groups[i].State == instance.SecurityGroupStateSyncingError:
		return false, conflict("the provider cannot put the rules of the security group in force")
	}
	same, err := c.writeRules(ctx, t.Zone, groups[i].ID, sources)
	return same && groups[i].State == instance.SecurityGroupStateAvailable, err
}
