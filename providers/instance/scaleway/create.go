package scaleway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	instance "github.com/scaleway/scaleway-sdk-go/api/instance/v1"
	marketplace "github.com/scaleway/scaleway-sdk-go/api/marketplace/v2"
	"github.com/scaleway/scaleway-sdk-go/scw"

	"github.com/slipway-cloud/slipway/providers"
)

// Currency is that of Scaleway's prices.
const Currency = "EUR"

func (c *client) installationTag() string { return "slipway-installation=" + c.installation }

func instanceTag(id string) string { return "slipway-instance=" + id }

func (c *client) tags(instanceID string) []string {
	return []string{c.installationTag(), instanceTag(instanceID)}
}

// instanceOf returns the instance that tags name, "" for none.
func instanceOf(tags []string) string {
	for _, t := range tags {
		if id, ok := strings.CutPrefix(t, "slipway-instance="); ok {
			return id
		}
	}
	return ""
}

// Check implements providers.Cloud.
func (c *client) Check(ctx context.Context, zone string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := call(ctx, c, "check", false, func(opts ...scw.RequestOption) (*instance.ListServersResponse, error) {
		return c.servers.ListServers(&instance.ListServersRequest{Zone: scw.Zone(zone), Project: &c.project, PerPage: scw.Uint32Ptr(1)}, opts...)
	})
	return err
}

func (c *client) types(ctx context.Context, zone string) (map[string]*instance.ServerType, error) {
	res, err := call(ctx, c, "types", false, func(opts ...scw.RequestOption) (*instance.ListServersTypesResponse, error) {
		return c.servers.ListServersTypes(&instance.ListServersTypesRequest{Zone: scw.Zone(zone)}, append(opts, scw.WithAllPages())...)
	})
	if err != nil {
		return nil, err
	}
	return res.Servers, nil
}

// micros returns a price in millionths. The shortest text of a 32-bit float is the text of the
// answer.
func micros(price float32) int64 {
	v, err := strconv.ParseFloat(strconv.FormatFloat(float64(price), 'f', -1, 32), 64)
	if err != nil {
		return 0
	}
	return int64(v*1e6 + 0.5)
}

// Offer implements providers.Cloud.
func (c *client) Offer(ctx context.Context, zone, serverType string) (providers.CloudOffer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all, err := c.types(ctx, zone)
	if err != nil {
		return providers.CloudOffer{}, err
	}
	t, ok := all[serverType]
	if !ok || t.EndOfService {
		return providers.CloudOffer{}, &providers.Error{Kind: providers.KindInvalid, Op: "cloud.offer", Message: fmt.Sprintf("%s has no server type %s", zone, serverType)}
	}
	return providers.CloudOffer{
		HourlyMicro: micros(t.HourlyPrice), Currency: Currency, GrowsVolume: t.VolumesConstraint == nil || t.VolumesConstraint.MaxSize == 0,
	}, nil
}

// Create implements providers.Cloud.
func (c *client) Create(ctx context.Context, in providers.CloudCreate) (providers.CloudServer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	image, err := c.image(ctx, in)
	if err != nil {
		return providers.CloudServer{}, err
	}
	group, err := c.ensureGroup(ctx, in)
	if err != nil {
		return providers.CloudServer{}, notOfServer(err)
	}
	local := instance.BootTypeLocal
	res, err := call(ctx, c, "create", true, func(opts ...scw.RequestOption) (*instance.CreateServerResponse, error) {
		return c.servers.CreateServer(&instance.CreateServerRequest{
			Zone: scw.Zone(in.Zone), Name: name(in.InstanceID), CommercialType: in.Type, Image: &image, Project: &c.project, Tags: c.tags(in.InstanceID),
			DynamicIPRequired: scw.BoolPtr(true), SecurityGroup: &group, BootType: &local,
		}, opts...)
	})
	if err != nil {
		return providers.CloudServer{}, err
	}
	return viewOf(res.Server), nil
}

func name(instanceID string) string { return "slipway-" + instanceID }

// notOfServer types a failure before the order for a server: whatever became of it, there is no
// server.
func notOfServer(err error) error {
	var pe *providers.Error
	if errors.As(err, &pe) && pe.Kind == providers.KindUncertain {
		pe.Kind = providers.KindUnavailable
	}
	return err
}

// image returns the id of an image in the zone, which the marketplace knows by its label.
func (c *client) image(ctx context.Context, in providers.CloudCreate) (string, error) {
	noImage := &providers.Error{Kind: providers.KindInvalid, Op: "cloud.image", Message: fmt.Sprintf("%s has no image %s for %s", in.Zone, in.Image, in.Type)}
	zone := scw.Zone(in.Zone)
	res, err := call(ctx, c, "image", false, func(opts ...scw.RequestOption) (*marketplace.ListLocalImagesResponse, error) {
		return c.images.ListLocalImages(&marketplace.ListLocalImagesRequest{
			ImageLabel: &in.Image, Zone: &zone, Type: marketplace.LocalImageTypeInstanceSbs,
		}, append(opts, scw.WithAllPages())...)
	})
	if providers.IsKind(err, providers.KindNotFound) {
		return "", noImage
	}
	if err != nil {
		return "", err
	}
	for _, i := range res.LocalImages {
		if slices.Contains(i.CompatibleCommercialTypes, in.Type) {
			return i.ID, nil
		}
	}
	return "", noImage
}

func viewOf(s *instance.Server) providers.CloudServer {
	out := providers.CloudServer{
		ID: s.ID, Name: s.Name, Type: s.CommercialType, Zone: string(s.Zone), State: providers.CloudState(s.State), Detail: s.StateDetail,
	}
	if s.CreationDate != nil {
		out.CreatedAt = *s.CreationDate
	}
	if s.SecurityGroup != nil {
		out.GroupID = s.SecurityGroup.ID
	}
	for _, ip := range s.PublicIPs {
		if out.Address == "" && ip.Family == instance.ServerIPIPFamilyInet {
			out.Address = ip.Address.String()
		}
	}
	if root, ok := s.Volumes["0"]; ok { // somebody else attached any other one
		out.Volumes = []string{root.ID}
	}
	return out
}

// Find implements providers.Cloud.
func (c *client) Find(ctx context.Context, zone, instanceID string) ([]providers.CloudServer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, err := c.listServers(ctx, zone, instanceTag(instanceID))
	if err != nil {
		return nil, err
	}
	out := make([]providers.CloudServer, 0, len(found))
	for _, s := range found {
		out = append(out, viewOf(s))
	}
	slices.SortFunc(out, func(a, b providers.CloudServer) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return out, nil
}

func (c *client) listServers(ctx context.Context, zone, tag string) ([]*instance.Server, error) {
	res, err := call(ctx, c, "list_servers", false, func(opts ...scw.RequestOption) (*instance.ListServersResponse, error) {
		return c.servers.ListServers(&instance.ListServersRequest{Zone: scw.Zone(zone), Project: &c.project, Tags: []string{tag}}, append(opts, scw.WithAllPages())...)
	})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(res.Servers, func(s *instance.Server) bool { return !slices.Contains(s.Tags, c.installationTag()) }), nil
}

// Server implements providers.Cloud.
func (c *client) Server(ctx context.Context, zone, id string) (providers.CloudServer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, err := c.server(ctx, zone, id)
	if err != nil {
		return providers.CloudServer{}, err
	}
	return viewOf(s), nil
}

func (c *client) server(ctx context.Context, zone, id string) (*instance.Server, error) {
	res, err := call(ctx, c, "server", false, func(opts ...scw.RequestOption) (*instance.GetServerResponse, error) {
		return c.servers.GetServer(&instance.GetServerRequest{Zone: scw.Zone(zone), ServerID: id}, opts...)
	})
	if err != nil {
		return nil, err
	}
	return res.Server, nil
}
