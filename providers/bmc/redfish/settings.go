package redfish

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-cloud/slipway/providers"
)

var _ providers.BMCSettings = (*BMC)(nil)

// maxSettings bounds the values of a report.
const maxSettings = 2048

// settingsReader gathers a report.
type settingsReader struct {
	b   *BMC
	op  *operation
	out providers.SettingsReport
}

// ReadSettings implements providers.BMCSettings. A part that the BMC does not have is left out.
func (b *BMC) ReadSettings(ctx context.Context) (providers.SettingsReport, error) {
	op := newOperation("settings", b.opts.MaxListRequests)
	system, _, err := b.system(ctx, op)
	if err != nil {
		return providers.SettingsReport{}, err
	}
	r := &settingsReader{b: b, op: op}
	r.boot(system)
	steps := []func() error{
		func() error { return r.media(ctx, "system", system.link("VirtualMedia")) },
		func() error { return r.secureBoot(ctx, system) },
		func() error { return r.accounts(ctx) },
		func() error { return r.managers(ctx) },
		func() error { return r.firmware(ctx) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return providers.SettingsReport{}, err
		}
	}
	slices.Sort(r.out.Unreadable)
	slices.Sort(r.out.NotOffered)
	slices.Sort(r.out.NotRead)
	slices.Sort(r.out.OtherAccounts)
	for _, values := range [][]providers.BMCSetting{r.out.Values, r.out.Added} {
		slices.SortFunc(values, func(x, y providers.BMCSetting) int { return strings.Compare(x.Name, y.Name) })
	}
	b.secrets.scrub(&r.out)
	return r.out, nil
}

func (r *settingsReader) set(name, value string) {
	if len(r.out.Values) < maxSettings {
		r.out.Values = append(r.out.Values, providers.BMCSetting{Name: name, Value: value})
	}
}

func (r *settingsReader) add(name, value string) {
	if len(r.out.Added) < maxSettings {
		r.out.Added = append(r.out.Added, providers.BMCSetting{Name: name, Value: value})
	}
}

func (r *settingsReader) notRead(what string) {
	if len(r.out.NotRead) < maxFindings {
		r.out.NotRead = append(r.out.NotRead, what)
	}
}

// addEach reads every member of a collection into an added value, whose name is that of the member
// behind a prefix.
func (r *settingsReader) addEach(ctx context.Context, prefix, link string, read func(name string, d doc)) error {
	if link == "" {
		return nil
	}
	uris, err := r.b.conn.members(ctx, r.op, link)
	if err != nil {
		return r.unread(prefix, link, err)
	}
	for _, uri := range uris {
		name := prefix + baseName(uri)
		d, err := r.b.conn.get(ctx, r.op, uri)
		if err == nil {
			read(name, d)
		} else if err := r.unread(name, uri, err); err != nil {
			return err
		}
	}
	return nil
}

// unread notes that the added values whose names begin with a prefix could not be read.
func (r *settingsReader) unread(prefix, link string, err error) error {
	if !isOfOnePart(err) {
		return err
	}
	r.add(prefix, providers.SettingUnread)
	r.notRead(link + ": " + reason(err))
	return nil
}

// fingerprint stands for a text that may hold a secret. It is SettingNone for no text.
func fingerprint(text string) string {
	if text == "" {
		return providers.SettingNone
	}
	return fmt.Sprintf("sha256 %.12x", sha256.Sum256([]byte(text)))
}

// get reads a part. A part that cannot be read is named in the report; the result is nil then. An
// error concerns the BMC as a whole.
func (r *settingsReader) get(ctx context.Context, link string) (doc, error) {
	if link == "" {
		return nil, nil
	}
	d, err := r.b.conn.get(ctx, r.op, link)
	if err == nil {
		return d, nil
	}
	return nil, r.unreadable(link, err)
}

// isOfOnePart reports whether an error concerns a part of the BMC alone.
func isOfOnePart(err error) bool {
	return passable(err) || providers.IsKind(err, providers.KindForeign)
}

func (r *settingsReader) unreadable(link string, err error) error {
	if !isOfOnePart(err) {
		return err
	}
	if providers.IsKind(err, providers.KindNotFound) {
		if len(r.out.NotOffered) < maxFindings {
			r.out.NotOffered = append(r.out.NotOffered, link)
		}
		return nil
	}
	if len(r.out.Unreadable) < maxFindings {
		r.out.Unreadable = append(r.out.Unreadable, link+": "+reason(err))
	}
	return nil
}

// each reads every member of a collection.
func (r *settingsReader) each(ctx context.Context, link string, read func(uri string, d doc) error) error {
	if link == "" {
		return nil
	}
	uris, err := r.b.conn.members(ctx, r.op, link)
	if err != nil {
		return r.unreadable(link, err)
	}
	for _, uri := range uris {
		d, err := r.get(ctx, uri)
		if err != nil {
			return err
		}
		if d == nil {
			continue
		}
		if err := read(uri, d); err != nil {
			return err
		}
	}
	return nil
}

// boot reads the order of boot, and an override that is not for one boot alone: MAAS sets that one
// whenever it starts the machine.
func (r *settingsReader) boot(system doc) {
	boot := system.sub("Boot")
	r.set("boot/order", strings.Join(boot.texts("BootOrder"), ","))
	override := "none"
	if boot.text(keyEnabled) == "Continuous" {
		override = boot.text(keyTarget)
	}
	r.set("boot/override", override)
	r.add("boot/http_uri", fingerprint(boot.text("HttpBootUri")))
	r.notRead("what the BMC's boot entries lead to") // an installation changes that of a disk
	if version := system.text("BiosVersion"); version != "" {
		r.set("bios/version", version)
	}
}

// media reads what is inserted as virtual media.
func (r *settingsReader) media(ctx context.Context, of, link string) error {
	return r.addEach(ctx, of+"/virtual_media/", link, func(name string, d doc) {
		image := ""
		if isInserted(d) {
			image = "inserted " + d.text("Image")
		}
		r.add(name, fingerprint(image))
	})
}

func (r *settingsReader) secureBoot(ctx context.Context, system doc) error {
	d, err := r.get(ctx, system.link("SecureBoot"))
	if d != nil {
		r.set("secure_boot", fmt.Sprintf("enabled %t, mode %s", d.flag("SecureBootEnable"), d.text("SecureBootMode")))
	}
	return err
}

// accounts reads every account that has a name, with its keys, and the directories that others come
// from. A locked account is not another one.
func (r *settingsReader) accounts(ctx context.Context) error {
	service, err := r.get(ctx, r.b.accountService())
	if err != nil || service == nil {
		return err
	}
	if err := r.directories(ctx, service); err != nil {
		return err
	}
	return r.each(ctx, service.link("Accounts"), func(uri string, d doc) error {
		name := d.text("UserName")
		if name == "" {
			return nil
		}
		if err := r.keys(ctx, uri, d); err != nil {
			return err
		}
		r.set("account/"+baseName(uri), fmt.Sprintf("%s, %s, enabled %t", name, d.text("RoleId"), d.flag("Enabled")))
		if d.flag("Enabled") && name != r.b.target.User && len(r.out.OtherAccounts) < maxFindings {
			r.out.OtherAccounts = append(r.out.OtherAccounts, name)
		}
		return nil
	})
}

// keys reads the keys for SSH of an account.
func (r *settingsReader) keys(ctx context.Context, account string, d doc) error {
	link := d.link("Keys")
	if link == "" {
		r.notRead("keys for SSH of the BMC's account " + baseName(account))
	}
	return r.addEach(ctx, "account/"+baseName(account)+"/key/", link, func(name string, d doc) {
		r.add(name, fingerprint(d.text("KeyString")))
	})
}

// directories reads the servers whose accounts may log in too, and the roles that they get.
func (r *settingsReader) directories(ctx context.Context, service doc) error {
	read := func(name string, d doc) {
		var roles []string
		for _, m := range d.docs("RemoteRoleMapping") {
			roles = append(roles, fmt.Sprintf("%s%s is %s", m.text("RemoteGroup"), m.text("RemoteUser"), m.text("LocalRole")))
		}
		slices.Sort(roles)
		r.add(name, fmt.Sprintf("enabled %t, servers %s, roles %s", d.flag("ServiceEnabled"), strings.Join(d.texts("ServiceAddresses"), " "), strings.Join(roles, ", ")))
	}
	for _, name := range []string{"LDAP", "ActiveDirectory", "OAuth2", "TACACSplus"} {
		if d := service.sub(name); d != nil {
			read("directory/"+name, d)
		}
	}
	return r.addEach(ctx, "directory/external/", service.link("AdditionalExternalAccountProviders"), read)
}

func (r *settingsReader) managers(ctx context.Context) error {
	return r.each(ctx, r.b.conn.root.link("Managers"), func(uri string, d doc) error {
		id := baseName(uri)
		r.set("manager/"+id+"/firmware", d.text("FirmwareVersion"))
		if err := r.protocols(ctx, id, d.link("NetworkProtocol")); err != nil {
			return err
		}
		if err := r.media(ctx, "manager/"+id, d.link("VirtualMedia")); err != nil {
			return err
		}
		err := r.each(ctx, d.link("EthernetInterfaces"), func(uri string, d doc) error {
			r.set("manager/"+id+"/nic/"+baseName(uri), network(d))
			return nil
		})
		if err != nil {
			return err
		}
		return r.each(ctx, d.link("HostInterfaces"), func(uri string, d doc) error {
			r.set("manager/"+id+"/host_interface/"+baseName(uri), fmt.Sprintf("enabled %t", d.flag("InterfaceEnabled")))
			return nil
		})
	})
}

// network is what of an interface's settings somebody decides. An address that DHCP gives may
// change.
func network(d doc) string {
	var static []string
	for _, key := range []string{"IPv4StaticAddresses", "IPv6StaticAddresses"} {
		for _, a := range d.docs(key) {
			static = append(static, a.text("Address"))
		}
	}
	return fmt.Sprintf("mac %s, dhcp4 %t, static %s, name servers %s", strings.ToLower(d.text("MACAddress")),
		d.sub("DHCPv4").flag("DHCPEnabled"), strings.Join(static, " "), strings.Join(d.texts("StaticNameServers"), " "))
}

func (r *settingsReader) protocols(ctx context.Context, id, link string) error {
	d, err := r.get(ctx, link)
	if err != nil || d == nil {
		return err
	}
	for _, name := range []string{"HTTP", "HTTPS", "IPMI", "SSH", "SNMP", "Telnet", "KVMIP", "VirtualMedia"} {
		p := d.sub(name)
		if p == nil {
			continue
		}
		port, _ := p.number("Port")
		r.set("manager/"+id+"/protocol/"+name, fmt.Sprintf("enabled %t, port %d", p.flag("ProtocolEnabled"), int(port)))
	}
	return nil
}

func (r *settingsReader) firmware(ctx context.Context) error {
	service, err := r.get(ctx, r.b.conn.root.link("UpdateService"))
	if err != nil || service == nil {
		return err
	}
	return r.each(ctx, service.link("FirmwareInventory"), func(uri string, d doc) error {
		r.set("firmware/"+baseName(uri), d.text("Version"))
		return nil
	})
}

// DisableHostInterfaces implements providers.BMCSettings.
func (b *BMC) DisableHostInterfaces(ctx context.Context) (providers.HostInterfaces, error) {
	op := newOperation("host_interfaces", b.opts.MaxListRequests)
	var out providers.HostInterfaces
	if err := b.conn.ready(ctx, op); err != nil {
		return out, err
	}
	r := &settingsReader{b: b, op: op}
	err := r.each(ctx, b.conn.root.link("Managers"), func(_ string, manager doc) error {
		return r.each(ctx, manager.link("HostInterfaces"), func(uri string, d doc) error {
			off, err := b.disableHostInterface(ctx, op, uri, d)
			switch {
			case err != nil:
				return err
			case off:
				out.Off++
			default:
				out.LeftOn = append(out.LeftOn, uri)
			}
			return nil
		})
	})
	out.LeftOn = append(append(out.LeftOn, r.out.Unreadable...), r.out.NotOffered...)
	b.secrets.scrub(&out)
	return out, err
}

// disableHostInterface switches one off and reads it again. A BMC that refuses leaves it on.
func (b *BMC) disableHostInterface(ctx context.Context, op *operation, uri string, d doc) (bool, error) {
	if !d.flag("InterfaceEnabled") {
		return true, nil
	}
	if err := b.patchTagged(ctx, op, uri, map[string]bool{"InterfaceEnabled": false}); err != nil {
		if passable(err) || providers.IsKind(err, providers.KindStateConflict) {
			return false, nil
		}
		return false, err
	}
	after, err := b.conn.get(ctx, op, uri)
	if err != nil {
		return false, err
	}
	return !after.flag("InterfaceEnabled"), nil
}
