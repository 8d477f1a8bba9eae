package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"gopkg.in/yaml.v3"
)

const (
	configFlag  = "config"
	maxFileSize = 1 << 20
)

// Source is the flags of one command, bound by Flags, to be loaded after they
// are parsed.
type Source struct {
	flags *pflag.FlagSet
	file  *string
}

// Flags adds --config and one flag for every setting to fs.
func Flags(fs *pflag.FlagSet) *Source {
	shown := Default() // only for the defaults in the help
	own := settings(&shown)
	own.VisitAll(func(f *pflag.Flag) { f.Usage += " [" + variable(f.Name) + "]" })
	fs.AddFlagSet(own)
	return &Source{
		flags: fs,
		file:  fs.String(configFlag, "", "YAML file with settings ["+variable(configFlag)+"]"),
	}
}

// Load reads file, environment and flags, in that order of rising precedence,
// and validates what parts need. lookupEnv is os.LookupEnv outside tests.
// A variable that is set but empty counts as not set. Errors name the setting
// and say what to do; they never repeat a value that may be secret.
func (s *Source) Load(lookupEnv func(string) (string, bool), parts ...Part) (Config, error) {
	c := Default()
	path := *s.file
	if path == "" {
		path, _ = lookupEnv(variable(configFlag))
	}
	if path != "" {
		if err := readFile(path, &c); err != nil {
			return Config{}, err
		}
		for _, u := range c.databaseURLs() {
			if hasPassword(*u.url) {
				return Config{}, Invalid{{u.name, "holds a password, and configuration files get copied; " + u.passwordAdvice()}}
			}
		}
	}
	all := settings(&c)
	if err := applyEnv(all, lookupEnv, &c); err != nil {
		return Config{}, err
	}
	if err := applyFlags(all, s.flags, &c); err != nil {
		return Config{}, err
	}
	for _, u := range c.databaseURLs() {
		if err := u.readFile(); err != nil {
			return Config{}, err
		}
	}
	if err := c.Validate(parts...); err != nil {
		return Config{}, err
	}
	return c, nil
}

func readFile(path string, c *Config) error {
	raw, err := readBounded(path)
	if err != nil {
		return fmt.Errorf("cannot read the configuration file: %w", err)
	}
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	dec.KnownFields(true)
	if err := dec.Decode(c); err != nil && !errors.Is(err, io.EOF) { // EOF: an empty file
		return fmt.Errorf("configuration file %s: %w", path, yamlProblem(err))
	}
	var more any
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		return fmt.Errorf("configuration file %s: holds more than one YAML document; keep one", path)
	}
	return nil
}

// yamlProblem says in our words what the decoder found.
func yamlProblem(err error) error {
	var te *yaml.TypeError
	if !errors.As(err, &te) {
		return err
	}
	lines := make([]string, len(te.Errors))
	for i, l := range te.Errors {
		line, rest, unknown := strings.Cut(l, ": field ")
		if name, _, found := strings.Cut(rest, " not found in type"); unknown && found {
			l = fmt.Sprintf("%s: there is no setting %q here; correct its name or remove it", line, name)
		} else if line, _, wrongType := strings.Cut(l, ": cannot unmarshal "); wrongType {
			l = line + ": the value has the wrong form for its setting" // the decoder's words repeat the value
		}
		lines[i] = l
	}
	return errors.New(strings.Join(lines, "; "))
}

// applyEnv sets what the environment names. The two spellings of a database
// URL replace each other: the later source decides which one counts.
func applyEnv(all *pflag.FlagSet, lookupEnv func(string) (string, bool), c *Config) error {
	var errs []error
	set := map[string]bool{}
	all.VisitAll(func(f *pflag.Flag) {
		v, ok := lookupEnv(variable(f.Name))
		if !ok || v == "" {
			return
		}
		set[f.Name] = true
		if err := f.Value.Set(v); err != nil {
			errs = append(errs, fmt.Errorf("%s is not a valid %s; correct it or unset it", variable(f.Name), kindOf(f)))
		}
	})
	for _, u := range c.databaseURLs() {
		u.chooseSpelling(set)
	}
	return errors.Join(errs...)
}

func applyFlags(all, given *pflag.FlagSet, c *Config) error {
	var errs []error
	set := map[string]bool{}
	given.Visit(func(f *pflag.Flag) {
		own := all.Lookup(f.Name)
		if own == nil { // --config, or a flag of the command's own
			return
		}
		set[f.Name] = true
		errs = append(errs, own.Value.Set(f.Value.String()))
	})
	for _, u := range c.databaseURLs() {
		if set[u.flag()] && hasPassword(*u.url) {
			return Invalid{{u.name, "holds a password, and everybody on this machine can read command lines; " + u.passwordAdvice()}}
		}
		u.chooseSpelling(set)
	}
	return errors.Join(errs...)
}

func kindOf(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "int":
		return "whole number"
	case "bool":
		return "true or false"
	case "duration":
		return "duration such as 90s or 24h"
	default:
		return f.Value.Type()
	}
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err == nil && len(raw) > maxFileSize {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxFileSize)
	}
	return raw, err
}

// hasPassword says whether a PostgreSQL URL (or key=value string) contains a password. A value that
// cannot be read counts as if it did.
func hasPassword(dsn string) bool {
	if dsn == "" {
		return false
	}
	if !strings.Contains(dsn, "://") {
		return strings.Contains(strings.ToLower(dsn), "password")
	}
	u, _, err := parsePostgres(dsn)
	if err != nil {
		return true
	}
	_, inUser := u.User.Password()
	return inUser || u.Query().Has("password") || u.Query().Has("sslpassword")
}
