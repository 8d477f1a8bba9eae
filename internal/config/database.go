package config

import (
	"cmp"
	"net"
	"net/url"
	"strings"
)

// databaseURL is a URL that may hold a password, with its other spelling: a file that holds it.
type databaseURL struct {
	name      string
	url, file *string
}

func (c *Config) databaseURLs() []databaseURL {
	return []databaseURL{
		{"database.url", &c.Database.URL, &c.Database.URLFile},
		{"database.owner_url", &c.Database.OwnerURL, &c.Database.OwnerURLFile},
		{"database.customer_url", &c.Database.CustomerURL, &c.Database.CustomerURLFile},
	}
}

func (u databaseURL) flag() string { return strings.NewReplacer(".", "-", "_", "-").Replace(u.name) }

func (u databaseURL) passwordAdvice() string {
	return "use " + u.name + "_file, or set it in " + variable(u.flag())
}

// chooseSpelling lets one spelling replace the other one that an earlier source
// gave.
func (u databaseURL) chooseSpelling(set map[string]bool) {
	url, file := set[u.flag()], set[u.flag()+"-file"]
	switch {
	case url && !file:
		*u.file = ""
	case file && !url:
		*u.url = ""
	}
}

// readFile replaces the file by what it holds.
func (u databaseURL) readFile() error {
	if *u.file == "" {
		return nil
	}
	if *u.url != "" {
		return Invalid{{u.name + "_file", "and " + u.name + " are both set; keep one"}}
	}
	raw, err := readBounded(*u.file)
	if err != nil {
		return Invalid{{u.name + "_file", "cannot be read: " + err.Error()}}
	}
	*u.url = strings.TrimSpace(string(raw))
	return nil
}

// MigrationURL returns the URL that migrations use: OwnerURL or, without one, URL.
func (d Database) MigrationURL() string {
	if d.OwnerURL != "" {
		return d.OwnerURL
	}
	return d.URL
}

func (d Database) validateMigrations(v *validator) {
	if d.MigrationURL() == "" {
		v.add("database.owner_url", "is missing; set SLIPWAY_DATABASE_OWNER_URL or database.owner_url_file to the URL of a member of slipway_owner")
		return
	}
	v.postgres("database.owner_url", d.MigrationURL())
}

// postgres checks a URL that may hold a password, which is never repeated.
func (v *validator) postgres(field, raw string) {
	u, hosts, err := parsePostgres(raw)
	if err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
		v.add(field, "must be a URL that begins with postgres://")
		return
	}
	target := u.Query().Get("target_session_attrs")
	switch {
	case target == "" && len(hosts) > 1:
		v.add(field, "names several hosts; add target_session_attrs=read-write, so that connections go to the primary")
	case target != "" && target != "read-write" && target != "primary":
		v.add(field, "has target_session_attrs="+target+", and Slipway needs a server that takes writes; set read-write, or primary")
	}
}

const postgresPort = "5432"

// Hosts returns the servers that the URL names, as host:port.
func (d Database) Hosts() []string {
	u, hosts, err := parsePostgres(d.URL)
	if err != nil {
		return nil
	}
	out := make([]string, 0, len(hosts))
	for _, h := range hosts {
		if host, port, err := net.SplitHostPort(h); err == nil {
			out = append(out, net.JoinHostPort(host, cmp.Or(port, postgresPort)))
		} else if h != "" {
			out = append(out, net.JoinHostPort(strings.Trim(h, "[]"), cmp.Or(u.Query().Get("port"), postgresPort)))
		}
	}
	return out
}

// parsePostgres parses a URL of PostgreSQL, and returns its hosts as they are written. net/url
// refuses several hosts with ports, so that the returned URL has the first one alone.
func parsePostgres(raw string) (u *url.URL, hosts []string, err error) {
	scheme, rest, _ := strings.Cut(raw, "://")
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	at := strings.LastIndex(rest[:end], "@") + 1
	hosts = strings.Split(rest[at:end], ",")
	if len(hosts) > 1 {
		raw = scheme + "://" + rest[:at] + hosts[0] + rest[end:]
	}
	if u, err = url.Parse(raw); err != nil {
		return nil, nil, err
	}
	if more := u.Query().Get("host"); more != "" { // it wins over the hosts before the path
		hosts = strings.Split(more, ",")
	}
	return u, hosts, nil
}
