package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/slipway-cloud/slipway/internal/temporalx/payloadcodec"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/secrets"
	"github.com/slipway-cloud/slipway/test/secretscan"
	"github.com/slipway-cloud/slipway/test/stack"
)

// The kinds of secrets that every demo makes.
const (
	kindBMC       = "BMC password"
	kindRotated   = "BMC password after its rotation"
	kindMAAS      = "MAAS API key"
	kindSSH       = "SSH login key of the nodes"
	kindUserData  = "user-data"
	kindNodeKey   = "key of an agent, a node or the CA"
	kindAPIToken  = "API token"
	kindEnrolment = "enrolment token"
	kindBoot      = "boot token"
	kindKeyFile   = "key that seals the secrets"
	kindPayload   = "key that encrypts payloads"
	kindDatabase  = "password of the database"
	kindCustomer  = "token of a customer"
	kindClient    = "secret of the portal at the identity provider"
)

func requiredKinds() []string {
	return []string{
		kindBMC, kindRotated, kindMAAS, kindSSH, kindUserData, "token in " + kindUserData, kindNodeKey, "private key in " + kindNodeKey,
		kindAPIToken, kindEnrolment, kindBoot, kindKeyFile, kindPayload, kindDatabase,
		kindCustomer, kindClient,
	}
}

// keepCopies copies what there is and all that comes.
const keepCopies = `
CREATE SCHEMA secret_search;
CREATE TABLE secret_search.sealed (name text, version integer, keeper_url text, ciphertext bytea);
CREATE TABLE secret_search.hashes (kind text, hash bytea);
CREATE FUNCTION secret_search.keep_sealed() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
  INSERT INTO secret_search.sealed VALUES (NEW.name, NEW.version, NEW.keeper_url, NEW.ciphertext);
  RETURN NULL;
END $$;
CREATE FUNCTION secret_search.keep_hash() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
  INSERT INTO secret_search.hashes VALUES (TG_ARGV[0], decode(substr(to_jsonb(NEW) ->> TG_ARGV[1], 3), 'hex'));
  RETURN NULL;
END $$;
CREATE TRIGGER secret_search AFTER INSERT ON secret_versions FOR EACH ROW EXECUTE FUNCTION secret_search.keep_sealed();
CREATE TRIGGER secret_search AFTER INSERT ON api_tokens FOR EACH ROW EXECUTE FUNCTION secret_search.keep_hash('` + kindAPIToken + `', 'hash');
CREATE TRIGGER secret_search AFTER INSERT ON enrollment_tokens FOR EACH ROW EXECUTE FUNCTION secret_search.keep_hash('` + kindEnrolment + `', 'token_hash');
CREATE TRIGGER secret_search AFTER INSERT ON pxe_tokens FOR EACH ROW EXECUTE FUNCTION secret_search.keep_hash('` + kindBoot + `', 'token_hash');
INSERT INTO secret_search.sealed SELECT name, version, keeper_url, ciphertext FROM secret_versions;`

// planted returns the secrets of the run with their parts, and the hashes of the tokens whose text
// only its holder has.
func (c *secretSearch) planted(ctx context.Context, o *operator) ([]secretscan.Secret, []secretscan.Hash, error) {
	whole, err := c.stored(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, m := range c.stack.Sims.Fleet.All() {
		whole = append(whole, secretscan.Secret{Kind: kindBMC, Value: m.Spec().BMCPassword})
	}
	for _, p := range c.stack.PXE {
		whole = append(whole, secretscan.Secret{Kind: kindBMC, Value: p.Hardware.Spec().BMCPassword}, secretscan.Secret{Kind: kindUserData, Value: p.UserData()})
	}
	key, err := os.ReadFile(c.stack.Config.Secrets.KeyFile)
	if err != nil {
		return nil, nil, err
	}
	text := strings.TrimSpace(string(key))
	raw, err := base64.URLEncoding.DecodeString(text)
	if err != nil {
		return nil, nil, fmt.Errorf("the key file: %w", err)
	}
	whole = append(whole, secretscan.Secret{Kind: kindKeyFile, Value: text},
		secretscan.Secret{Kind: kindMAAS, Value: c.stack.Sims.APIKey}, secretscan.Secret{Kind: kindAPIToken, Value: o.token})
	address, err := url.Parse(c.stack.Config.Database.URL)
	if err != nil {
		return nil, nil, errors.New("the database's URL cannot be read") // the error would repeat it
	}
	password, _ := address.User.Password()
	whole = append(whole, secretscan.Secret{Kind: kindDatabase, Value: password})
	whole = append(whole, secretscan.Secret{Kind: kindClient, Value: c.stack.Identity.Secret})
	for _, token := range o.customerTokens {
		whole = append(whole, secretscan.Secret{Kind: kindCustomer, Value: token})
	}
	// The key itself is random bytes, which no separator divides into parts.
	out := []secretscan.Secret{{Kind: "private key", Value: secretscan.PrivateKeyMark}, {Kind: kindKeyFile, Value: string(raw)}}
	for _, s := range slices.Concat(whole, c.keys) {
		out = append(out, secretscan.Expand(s)...)
	}
	hashes, err := c.hashes(ctx)
	if err != nil {
		return nil, nil, err
	}
	return out, hashes, complete(out, hashes)
}

// complete returns an error when a kind of secret is missing: it would not have been searched for.
func complete(planted []secretscan.Secret, hashes []secretscan.Hash) error {
	have := map[string]bool{}
	for _, s := range planted {
		have[s.Kind] = have[s.Kind] || s.Value != ""
	}
	for _, h := range hashes {
		have[h.Kind] = true
	}
	for _, kind := range requiredKinds() {
		if !have[kind] {
			return fmt.Errorf("the run made no %s, or it was not collected", kind)
		}
	}
	return nil
}

// sealed is a row that the triggers kept. It is the whole store of one reader.
type sealed struct {
	secrets.Store // nil: nothing is written
	Name          string
	Version       int
	KeeperURL     string
	Ciphertext    []byte
}

// SecretVersion implements secrets.Store.
func (s *sealed) SecretVersion(context.Context, string, int) (version int, keeperURL string, ciphertext []byte, found bool, err error) {
	return s.Version, s.KeeperURL, s.Ciphertext, true, nil
}

// stored opens the secrets that Slipway has ever stored, by a reader of the search's own: Slipway's
// log redactor must not learn a value from the search.
func (c *secretSearch) stored(ctx context.Context) ([]secretscan.Secret, error) {
	rows, err := c.conn.Query(ctx, `SELECT name, version, keeper_url, ciphertext FROM secret_search.sealed WHERE name NOT LIKE '\_slipway/%'`)
	if err != nil {
		return nil, err
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s sealed, err error) {
		return s, row.Scan(&s.Name, &s.Version, &s.KeeperURL, &s.Ciphertext)
	})
	if err != nil {
		return nil, err
	}
	store := &sealed{}
	o := secrets.Options{} // the search reads all, whatever it may be used for
	for _, s := range all {
		o.Own = append(o.Own, s.Name)
	}
	reader, err := secrets.Open(ctx, store, secrets.Keeper{URL: c.stack.Config.Secrets.Keeper, KeyFile: c.stack.Config.Secrets.KeyFile}, o)
	if err != nil {
		return nil, err
	}
	defer reader.Close() //nolint:errcheck // a local keeper has no connection
	var out []secretscan.Secret
	for _, *store = range all {
		value, err := reader.Resolve(ctx, providers.SecretRef(store.Name), providers.OwnUse())
		if err != nil {
			return nil, err
		}
		out = append(out, secretscan.Secret{Kind: c.kindOf(store.Name), Value: value.Reveal()})
	}
	return out, nil
}

// kindOf tells the kind of a stored secret by its name.
func (c *secretSearch) kindOf(name string) string {
	site := c.stack.SiteSpec()
	switch {
	case strings.HasPrefix(name, stack.BMCSecret("")):
		return kindBMC
	case strings.HasPrefix(name, "bmc/rotated/"):
		return kindRotated
	case name == site.MAASAPIKeyRef:
		return kindMAAS
	case name == site.SSHKeyRef:
		return kindSSH
	case strings.HasPrefix(name, "userdata/"):
		return kindUserData
	case name == payloadcodec.KeyName:
		return kindPayload
	default:
		return "stored secret " + name
	}
}

func (c *secretSearch) hashes(ctx context.Context) ([]secretscan.Hash, error) {
	rows, err := c.conn.Query(ctx, "SELECT kind, hash FROM secret_search.hashes")
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (h secretscan.Hash, err error) {
		var sum []byte
		if err = row.Scan(&h.Kind, &sum); err == nil && len(sum) != len(h.SHA256) {
			err = fmt.Errorf("the hash of a token has %d bytes", len(sum))
		}
		copy(h.SHA256[:], sum)
		return h, err
	})
}
