package scaleway

import (
	"context"
	"math/big"
	"slices"
	"strings"

	block "github.com/scaleway/scaleway-sdk-go/api/block/v1"
	instance "github.com/scaleway/scaleway-sdk-go/api/instance/v1"
	"github.com/scaleway/scaleway-sdk-go/scw"

	"github.com/slipway-cloud/slipway/providers"
)

// ClaimVolumes implements providers.Cloud.
func (c *client) ClaimVolumes(ctx context.Context, t providers.CloudTarget) ([]providers.CloudResource, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, err := c.server(ctx, t.Zone, t.ServerID)
	if err != nil {
		return nil, err
	}
	out := []providers.CloudResource{}
	// The server was made with a root volume alone: any other one was attached by somebody else,
	// and stays.
	if root, ok := s.Volumes["0"]; ok {
		id := root.ID
		v, err := c.volume(ctx, t.Zone, id)
		if err != nil {
			return nil, err
		}
		if instanceOf(v.Tags) == "" {
			tags, called := c.tags(t.InstanceID), name(t.InstanceID)
			if v, err = call(ctx, c, "claim_volume", true, func(opts ...scw.RequestOption) (*block.Volume, error) {
				return c.volumes.UpdateVolume(&block.UpdateVolumeRequest{Zone: scw.Zone(t.Zone), VolumeID: id, Name: &called, Tags: &tags}, opts...)
			}); err != nil {
				return nil, err
			}
		}
		out = append(out, volumeOf(v))
	}
	return out, nil
}

func volumeOf(v *block.Volume) providers.CloudResource {
	r := providers.CloudResource{Kind: providers.CloudKindVolume, ID: v.ID, Zone: string(v.Zone), Name: v.Name, InstanceID: instanceOf(v.Tags)}
	if v.CreatedAt != nil {
		r.CreatedAt = *v.CreatedAt
	}
	return r
}

func (c *client) volume(ctx context.Context, zone, id string) (*block.Volume, error) {
	return call(ctx, c, "volume", false, func(opts ...scw.RequestOption) (*block.Volume, error) {
		return c.volumes.GetVolume(&block.GetVolumeRequest{Zone: scw.Zone(zone), VolumeID: id}, opts...)
	})
}

// GrowVolume implements providers.Cloud. The answer to the order still has the old size: only a
// later look counts.
func (c *client) GrowVolume(ctx context.Context, t providers.CloudTarget, bytes int64) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	conflict := func(message string) error {
		return &providers.Error{Kind: providers.KindStateConflict, Op: "cloud.grow_volume", Message: message}
	}
	s, err := c.server(ctx, t.Zone, t.ServerID)
	if err != nil {
		return false, err
	}
	root, ok := s.Volumes["0"]
	if !ok {
		return false, conflict("the server has no root volume")
	}
	v, err := c.volume(ctx, t.Zone, root.ID)
	if err != nil {
		return false, err
	}
	switch v.Status {
	case block.VolumeStatusAvailable, block.VolumeStatusInUse:
	case block.VolumeStatusError, block.VolumeStatusLocked, block.VolumeStatusDeleted, block.VolumeStatusDeleting:
		return false, conflict("the root volume is " + string(v.Status))
	default:
		return false, nil
	}
	if int64(v.Size) >= bytes { //nolint:gosec // a volume has at most 10 TB
		return true, nil
	}
	size := scw.Size(bytes) //nolint:gosec // it is positive
	_, err = call(ctx, c, "grow_volume", true, func(opts ...scw.RequestOption) (*block.Volume, error) {
		return c.volumes.UpdateVolume(&block.UpdateVolumeRequest{Zone: scw.Zone(t.Zone), VolumeID: root.ID, Size: &size}, opts...)
	})
	return false, err
}

// SetUserData implements providers.Cloud.
func (c *client) SetUserData(ctx context.Context, t providers.CloudTarget, data providers.Secret) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := call(ctx, c, "set_user_data", true, none(func(opts ...scw.RequestOption) error {
		return c.servers.SetServerUserData(&instance.SetServerUserDataRequest{
			Zone: scw.Zone(t.Zone), ServerID: t.ServerID, Key: "cloud-init", Content: strings.NewReader(data.Reveal()),
		}, opts...)
	}))
	return err
}

// Start implements providers.Cloud.
func (c *client) Start(ctx context.Context, t providers.CloudTarget) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, err := c.server(ctx, t.Zone, t.ServerID)
	if err != nil || s.State != instance.ServerStateStopped && s.State != instance.ServerStateStoppedInPlace {
		return err
	}
	return c.act(ctx, "start", t, instance.ServerActionPoweron)
}

// Stop implements providers.Cloud.
func (c *client) Stop(ctx context.Context, t providers.CloudTarget) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, err := c.server(ctx, t.Zone, t.ServerID)
	if err != nil || s.State != instance.ServerStateRunning && s.State != instance.ServerStateStoppedInPlace {
		return err
	}
	return c.act(ctx, "stop", t, instance.ServerActionPoweroff)
}

func (c *client) act(ctx context.Context, op string, t providers.CloudTarget, a instance.ServerAction) error {
	_, err := call(ctx, c, op, true, func(opts ...scw.RequestOption) (*instance.ServerActionResponse, error) {
		return c.servers.ServerAction(&instance.ServerActionRequest{Zone: scw.Zone(t.Zone), ServerID: t.ServerID, Action: a}, opts...)
	})
	return err
}

// DeleteServer implements providers.Cloud. A server that runs is terminated; one that is stopped is
// deleted, which needs no free machine.
func (c *client) DeleteServer(ctx context.Context, t providers.CloudTarget) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, err := c.server(ctx, t.Zone, t.ServerID)
	if providers.IsKind(err, providers.KindNotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	switch s.State { //nolint:exhaustive // the others pass
	case instance.ServerStateStopped:
		_, err = call(ctx, c, "delete_server", true, none(func(opts ...scw.RequestOption) error {
			return c.servers.DeleteServer(&instance.DeleteServerRequest{Zone: scw.Zone(t.Zone), ServerID: t.ServerID}, opts...)
		}))
	case instance.ServerStateRunning, instance.ServerStateStoppedInPlace:
		err = c.act(ctx, "terminate_server", t, instance.ServerActionTerminate)
	}
	return false, passing(err)
}

// passing drops an error that says that a deletion is too early, or has happened.
func passing(err error) error {
	if k := providers.KindOf(err); k == providers.KindBusy || k == providers.KindNotFound {
		return nil
	}
	return err
}

// Delete implements providers.Cloud.
func (c *client) Delete(ctx context.Context, r providers.CloudResource) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	zone := scw.Zone(r.Zone)
	var err error
	switch r.Kind {
	case providers.CloudKindVolume:
		v, lookErr := c.volume(ctx, r.Zone, r.ID)
		if lookErr == nil && v.Status != block.VolumeStatusAvailable && v.Status != block.VolumeStatusError {
			return false, nil // in use, or being deleted
		}
		if err = lookErr; err == nil {
			_, err = call(ctx, c, "delete_volume", true, none(func(opts ...scw.RequestOption) error {
				return c.volumes.DeleteVolume(&block.DeleteVolumeRequest{Zone: zone, VolumeID: r.ID}, opts...)
			}))
		}
	case providers.CloudKindSnapshot:
		_, err = call(ctx, c, "delete_snapshot", true, none(func(opts ...scw.RequestOption) error {
			return c.volumes.DeleteSnapshot(&block.DeleteSnapshotRequest{Zone: zone, SnapshotID: r.ID}, opts...)
		}))
	case providers.CloudKindAddress:
		_, err = call(ctx, c, "delete_address", true, none(func(opts ...scw.RequestOption) error {
			return c.servers.DeleteIP(&instance.DeleteIPRequest{Zone: zone, IP: r.ID}, opts...)
		}))
	case providers.CloudKindGroup:
		_, err = call(ctx, c, "delete_group", true, none(func(opts ...scw.RequestOption) error {
			return c.servers.DeleteSecurityGroup(&instance.DeleteSecurityGroupRequest{Zone: zone, SecurityGroupID: r.ID}, opts...)
		}))
	case providers.CloudKindServer:
		return false, &providers.Error{Kind: providers.KindInvalid, Op: "cloud.delete", Message: "servers are deleted by DeleteServer"}
	}
	if providers.IsKind(err, providers.KindNotFound) {
		return true, nil
	}
	return false, passing(err)
}

// List implements providers.Cloud.
func (c *client) List(ctx context.Context, zone, instanceID string) ([]providers.CloudResource, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	tag := c.installationTag()
	if instanceID != "" {
		tag = instanceTag(instanceID)
	}
	servers, err := c.listServers(ctx, zone, tag)
	if err != nil {
		return nil, err
	}
	prices := map[string]*instance.ServerType{}
	if len(servers) > 0 {
		if prices, err = c.types(ctx, zone); err != nil {
			return nil, err
		}
	}
	out := []providers.CloudResource{}
	for _, s := range servers {
		r := providers.CloudResource{Kind: providers.CloudKindServer, ID: s.ID, Zone: zone, Name: s.Name, InstanceID: instanceOf(s.Tags), CreatedAt: viewOf(s).CreatedAt}
		if t := prices[s.CommercialType]; t != nil {
			r.HourlyMicro, r.Currency = micros(t.HourlyPrice), Currency
		}
		out = append(out, r)
	}
	storage, err := c.listStorage(ctx, zone, tag)
	if err != nil {
		return nil, err
	}
	network, err := c.listNetwork(ctx, zone, tag)
	return slices.Concat(out, storage, network), err
}

// listStorage lists volumes and snapshots. The block API finds what has any of the tags, so that
// one tag is asked for at a time.
func (c *client) listStorage(ctx context.Context, zone, tag string) ([]providers.CloudResource, error) {
	out := []providers.CloudResource{}
	volumes, err := call(ctx, c, "list_volumes", false, func(opts ...scw.RequestOption) (*block.ListVolumesResponse, error) {
		return c.volumes.ListVolumes(&block.ListVolumesRequest{Zone: scw.Zone(zone), ProjectID: &c.project, Tags: []string{tag}}, append(opts, scw.WithAllPages())...)
	})
	if err != nil {
		return nil, err
	}
	snapshots, err := call(ctx, c, "list_snapshots", false, func(opts ...scw.RequestOption) (*block.ListSnapshotsResponse, error) {
		return c.volumes.ListSnapshots(&block.ListSnapshotsRequest{Zone: scw.Zone(zone), ProjectID: &c.project, Tags: []string{tag}}, append(opts, scw.WithAllPages())...)
	})
	if err != nil {
		return nil, err
	}
	if len(volumes.Volumes)+len(snapshots.Snapshots) == 0 {
		return out, nil
	}
	prices := c.storagePrices(ctx, zone)
	for _, v := range volumes.Volumes {
		if slices.Contains(v.Tags, c.installationTag()) {
			out = append(out, priced(volumeOf(v), prices[v.Type].volume, v.Size))
		}
	}
	for _, s := range snapshots.Snapshots {
		if slices.Contains(s.Tags, c.installationTag()) {
			r := providers.CloudResource{Kind: providers.CloudKindSnapshot, ID: s.ID, Zone: zone, Name: s.Name, InstanceID: instanceOf(s.Tags)}
			kind := ""
			if s.ParentVolume != nil {
				kind = s.ParentVolume.Type
			}
			out = append(out, priced(r, prices[kind].snapshot, s.Size))
		}
	}
	return out, nil
}

// storagePrice is what a GB costs an hour.
type storagePrice struct{ volume, snapshot *scw.Money }

// storagePrices returns the prices of storage by the type of the volume. Where they cannot be read
// it returns none: what is billed is listed all the same.
func (c *client) storagePrices(ctx context.Context, zone string) map[string]storagePrice {
	types, err := call(ctx, c, "list_volume_types", false, func(opts ...scw.RequestOption) (*block.ListVolumeTypesResponse, error) {
		return c.volumes.ListVolumeTypes(&block.ListVolumeTypesRequest{Zone: scw.Zone(zone)}, append(opts, scw.WithAllPages())...)
	})
	out := map[string]storagePrice{}
	if err != nil {
		return out
	}
	for _, t := range types.VolumeTypes {
		out[t.Type] = storagePrice{t.Pricing, t.SnapshotPricing}
	}
	return out
}

// priced returns a resource with what so many bytes cost an hour.
func priced(r providers.CloudResource, price *scw.Money, size scw.Size) providers.CloudResource {
	if price == nil || price.Units < 0 || price.Nanos < 0 {
		return r
	}
	const perUnit, perMicro, gigabyte = 1_000_000_000, 1000, 1_000_000_000
	nanos := new(big.Int).Mul(big.NewInt(price.Units), big.NewInt(perUnit))
	nanos.Add(nanos, big.NewInt(int64(price.Nanos))).Mul(nanos, new(big.Int).SetUint64(uint64(size)))
	if micro := nanos.Div(nanos, big.NewInt(perMicro*gigabyte)); micro.IsInt64() {
		r.HourlyMicro, r.Currency = micro.Int64(), price.CurrencyCode
	}
	return r
}

func (c *client) listNetwork(ctx context.Context, zone, tag string) ([]providers.CloudResource, error) {
	out := []providers.CloudResource{}
	addresses, err := call(ctx, c, "list_addresses", false, func(opts ...scw.RequestOption) (*instance.ListIPsResponse, error) {
		return c.servers.ListIPs(&instance.ListIPsRequest{Zone: scw.Zone(zone), Project: &c.project, Tags: []string{tag}}, append(opts, scw.WithAllPages())...)
	})
	if err != nil {
		return nil, err
	}
	for _, a := range addresses.IPs {
		if slices.Contains(a.Tags, c.installationTag()) {
			out = append(out, providers.CloudResource{Kind: providers.CloudKindAddress, ID: a.ID, Zone: zone, Name: a.Address.String(), InstanceID: instanceOf(a.Tags)})
		}
	}
	groups, err := c.listGroups(ctx, zone, tag)
	if err != nil {
		return nil, err
	}
	for _, g := range groups {
		out = append(out, providers.CloudResource{Kind: providers.CloudKindGroup, ID: g.ID, Zone: zone, Name: g.Name, InstanceID: instanceOf(g.Tags)})
	}
	return out, nil
}
