package config

import (
	"fmt"
	"log/slog"
	"net/url"
	"strings"

	"gopkg.in/yaml.v3"
)

// Redacted returns the settings with every secret replaced, for printing. Paths
// of secret files stay.
func (c Config) Redacted() Config {
	c.Database.URL, c.Database.OwnerURL = redactURL(c.Database.URL), redactURL(c.Database.OwnerURL)
	c.Database.CustomerURL = redactURL(c.Database.CustomerURL)
	c.Secrets.Keeper = redactKeeper(c.Secrets.Keeper)
	c.Secrets.PreviousKeeper = redactKeeper(c.Secrets.PreviousKeeper)
	return c
}

// String is the redacted configuration as YAML, so that printing one by accident
// shows no secret.
func (c Config) String() string {
	type plain Config // without String
	out, err := yaml.Marshal(plain(c.Redacted()))
	if err != nil {
		return "configuration that cannot be printed"
	}
	return string(out)
}

// Format makes every verb, also %+v and %#v, print what String does.
func (c Config) Format(f fmt.State, _ rune) { _, _ = fmt.Fprint(f, c.String()) }

// LogValue does the same for structured logs.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

const hidden = "[secret]"

func redactURL(raw string) string {
	if !hasPassword(raw) {
		return raw
	}
	u, hosts, err := parsePostgres(raw)
	if err != nil || u.Scheme == "" {
		return hidden
	}
	u.Host = strings.Join(hosts, ",")
	if _, has := u.User.Password(); has {
		u.User = url.User(u.User.Username())
	}
	q := u.Query()
	q.Del("password")
	q.Del("sslpassword")
	u.RawQuery = q.Encode()
	return u.String()
}

// redactKeeper hides a key that somebody put into the URL, which Validate refuses.
func redactKeeper(raw string) string {
	if rest, local := strings.CutPrefix(raw, "base64key://"); local && rest != "" {
		return "base64key://" + hidden
	}
	return raw
}
