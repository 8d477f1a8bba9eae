package maas

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"sort"
	"strings"

	"github.com/canonical/gomaasclient/entity"

	"github.com/slipway-cloud/slipway/providers"
)

// probedConfig are the settings that Probe reads. A MAAS that does not know one,
// or does not show it to the user, leaves it out.
var probedConfig = [...]string{
	"node_timeout",                   // minutes
	"hardware_sync_interval",         // like 15m
	"enable_disk_erasing_on_release", // true, false
	"default_storage_layout",         // flat, ...
	"default_distro_series",          // jammy, ...
}

// Probe reads what makes a site usable and checks nothing but the connection,
// the API key and the version: whether the user is an administrator, has SSH
// keys, and whether the wanted image is there is in the result. It sends at
// most a dozen reads.
func (c *client) Probe(ctx context.Context) (providers.MAASInfo, error) {
	info := providers.MAASInfo{Config: map[string]string{}}
	shape := read("probe")
	shape.requests = 4 + len(probedConfig)
	err := c.call(ctx, shape, func(s *session) error {
		version, err := s.api.Version.Get()
		if err != nil {
			return err
		}
		if version.Version == "" {
			return errors.New("the answer names no version")
		}
		info.Version = version.Version
		user, err := s.api.Users.Whoami()
		if err != nil {
			return err
		}
		if user.UserName == "" {
			return errors.New("the answer names no user")
		}
		info.User, info.IsSuperuser = user.UserName, user.IsSuperUser
		keys, err := s.api.SSHKeys.Get()
		if err != nil {
			return err
		}
		info.SSHKeys = len(keys)
		for _, k := range keys {
			if line := strings.TrimSpace(plain(k.Key)); line != "" && len(line) <= maxKey {
				info.AuthorizedKeys = append(info.AuthorizedKeys, line)
			}
		}
		// gomaasclient's own call would add a parameter that MAAS does not know.
		var images []entity.BootResource
		if err := s.get("", url.Values{}, &images, "boot-resources"); err != nil {
			return err
		}
		info.Images = imageNames(images)
		return s.probeConfig(info.Config)
	})
	if err != nil {
		return providers.MAASInfo{}, err
	}
	return info, nil
}

// maxKey bounds the line of an SSH key: RSA with 16384 bits has about 2.8 kB.
const maxKey = 8 << 10

func (s *session) probeConfig(into map[string]string) error {
	for _, name := range probedConfig {
		data, err := s.api.MAASServer.Get(name)
		switch status := s.guard.last.status; {
		case err == nil:
			into[name] = configValue(data)
		case s.guard.last.err == nil && (status == http.StatusBadRequest || status == http.StatusForbidden):
		default:
			return err
		}
	}
	return nil
}

// configValue unwraps the JSON in which get_config answers.
func configValue(data []byte) string {
	text := strings.TrimSpace(string(data))
	var s string
	switch {
	case text == "null":
		return ""
	case json.Unmarshal([]byte(text), &s) == nil:
		return bounded(plain(s), 500)
	}
	return bounded(plain(text), 500)
}

func imageNames(images []entity.BootResource) []string {
	seen := map[string]bool{}
	var out []string
	for _, i := range images {
		if i.Name != "" && !seen[i.Name] {
			seen[i.Name] = true
			out = append(out, i.Name)
		}
	}
	sort.Strings(out)
	return out
}
