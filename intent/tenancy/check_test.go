package tenancy_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	tenancydb "github.com/slipway-cloud/slipway/db/tenancy"
	"github.com/slipway-cloud/slipway/intent"
	"github.com/slipway-cloud/slipway/intent/tenancy"
	"github.com/slipway-cloud/slipway/lifecycle"
)

func line(t testing.TB, public any) string {
	t.Helper()
	key, err := ssh.NewPublicKey(public)
	require.NoError(t, err)
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
}

func ed25519Line(t testing.TB) string {
	t.Helper()
	public, _, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	return line(t, public)
}

func rsaLine(t testing.TB, bits int) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, bits)
	require.NoError(t, err)
	return line(t, key.Public())
}

func TestParseSSHKey(t *testing.T) {
	t.Parallel()
	ed := ed25519Line(t)
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	for _, good := range []string{ed, ed + " ada@laptop", "  " + ed + "\n", line(t, ec.Public()), rsaLine(t, 3072)} {
		key, err := tenancy.ParseSSHKey(good)
		require.NoError(t, err)
		require.Equal(t, strings.Join(strings.Fields(good)[:2], " "), key.PublicKey)
		require.Regexp(t, "^SHA256:", key.Fingerprint)
	}
	for text, why := range map[string]string{
		"": "not an SSH public key", "ssh-ed25519 AAAA": "not an SSH public key", "-----BEGIN OPENSSH PRIVATE KEY-----": "never the private key",
		`command="sh" ` + ed: "options", ed + "\n" + ed: "one line", rsaLine(t, 2048): "2048 bits", "# comment": "not an SSH public key", strings.Repeat("a", 20000): "one line",
	} {
		_, err := tenancy.ParseSSHKey(text)
		require.ErrorContains(t, err, why)
	}
}

var stored = regexp.MustCompile(`^[a-z0-9@.-]+ [A-Za-z0-9+/=]+$`)

func FuzzParseSSHKey(f *testing.F) {
	ed := ed25519Line(f)
	for _, seed := range []string{ed, ed + " a b", `no-pty,command="x" ` + ed, "ssh-rsa AAAA", ed + "\r\n" + ed, "cert-authority " + ed} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		key, err := tenancy.ParseSSHKey(text)
		if err != nil {
			require.NotContains(t, err.Error(), "\n")
			return
		}
		require.Regexp(t, stored, key.PublicKey)
		again, err := tenancy.ParseSSHKey(key.PublicKey)
		require.NoError(t, err)
		require.Equal(t, key, again)
	})
}

// FuzzCheckTags requires that no accepted tag holds what a shell or a YAML document would read.
func FuzzCheckTags(f *testing.F) {
	for _, seed := range [][2]string{{"team", "ml"}, {"a/b", "x y"}, {"k", "$(id)"}, {"k", "a: b\n- c"}, {"k", "`id`"}, {"k", "'"}, {"K", ""}, {"k", "\xff"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, key, value string) {
		if tenancy.CheckTags(map[string]string{key: value}) != "" {
			return
		}
		require.False(t, strings.ContainsAny(key+value, "\"'`$\\;&|<>(){}[]*?!#~%,\n\r\t\x00"), "%q %q", key, value)
		require.LessOrEqual(t, len(key), 63)
	})
}

// FuzzParseEmail requires that an accepted address is one that a sign-in can be compared with.
func FuzzParseEmail(f *testing.F) {
	for _, seed := range []string{"ada@example.com", "Ada <ada@example.com>", "a@b, c@d", "ada@exämple.com", "\"a b\"@c.d", "A@B.C", "a@[127.0.0.1]"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		email, err := tenancy.ParseEmail(text)
		if err != nil {
			return
		}
		require.Equal(t, strings.ToLower(text), email)
		require.LessOrEqual(t, len(email), 254)
		require.NotContains(t, email, " ")
	})
}

func TestCheckQuota(t *testing.T) {
	t.Parallel()
	limits := tenancydb.Limits{Total: 10, PerSKU: map[string]int{"sku_a": 4}}
	for name, c := range map[string]struct {
		inUse, want map[string]int
		why         string
	}{
		"fits exactly":   {map[string]int{"sku_a": 3, "sku_b": 5}, map[string]int{"sku_a": 1, "sku_b": 1}, ""},
		"over the SKU":   {map[string]int{"sku_a": 4}, map[string]int{"sku_a": 1}, "of sku_a it has 4 of 4 nodes and asks for 1"},
		"over the total": {map[string]int{"sku_b": 9}, map[string]int{"sku_b": 2}, "of all SKUs it has 9 of 10 nodes and asks for 2"},
		"lowered limit":  {map[string]int{"sku_a": 9}, map[string]int{"sku_a": 1}, "it has 9 of 4 nodes"},
		"overflow":       {map[string]int{"sku_b": 1}, map[string]int{"sku_b": int(^uint(0) >> 1)}, "of all SKUs"},
		"nothing":        {nil, map[string]int{"sku_a": 0}, "at least 1"},
		"negative":       {map[string]int{"sku_b": 9}, map[string]int{"sku_a": -5, "sku_b": 5}, "at least 1"},
	} {
		err := tenancy.CheckQuota(limits, c.inUse, c.want)
		if c.why == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, c.why, name)
		require.NotNil(t, intent.AsRefusal(err))
	}
	require.Error(t, tenancy.CheckQuota(tenancydb.Limits{}, nil, map[string]int{"sku_a": 1}), "without a quota a project may have nothing")
}

// TestAdmitNodes_ConcurrentClaimsStayWithin has many claims reserve in a table of reservations, each
// in the transaction that admits it.
func TestAdmitNodes_ConcurrentClaimsStayWithin(t *testing.T) {
	t.Parallel()
	dsn := dbtest.FreshDatabase(t)
	s, owner := dbtest.Open(t, dsn), dbtest.Owner(t, dsn)
	_, err := owner.Exec(t.Context(), "CREATE TABLE reservations (project_id text, nodes integer); GRANT SELECT, INSERT ON reservations TO "+db.RoleApp)
	require.NoError(t, err)
	var project tenancydb.Project
	require.NoError(t, s.Tx(t.Context(), func(tx *db.Tx) error {
		account, err := tenancydb.CreateAccount(t.Context(), tx, "a", 5)
		require.NoError(t, err)
		project, err = tenancydb.CreateProject(t.Context(), tx, account.ID, "p", nil, db.Actor{Owner: lifecycle.OwnerAdmin})
		require.NoError(t, err)
		return tenancydb.PutQuota(t.Context(), tx, project.ID, "", 7)
	}))
	claim := func() error {
		return s.Tx(t.Context(), func(tx *db.Tx) error {
			count := func(ctx context.Context) (map[string]int, error) {
				n := 0
				err := tx.DBTX().QueryRow(ctx, "SELECT coalesce(sum(nodes), 0) FROM reservations WHERE project_id = $1", project.ID).Scan(&n)
				return map[string]int{"sku_a": n}, err
			}
			if err := tenancy.AdmitNodes(t.Context(), tx, project.ID, map[string]int{"sku_a": 2}, count); err != nil {
				return err
			}
			_, err := tx.DBTX().Exec(t.Context(), "INSERT INTO reservations VALUES ($1, 2)", project.ID)
			return err
		})
	}
	var wg sync.WaitGroup
	errs := make(chan error, 10)
	for range cap(errs) {
		wg.Go(func() { errs <- claim() })
	}
	wg.Wait()
	close(errs)
	admitted := 0
	for err := range errs {
		if err == nil {
			admitted++
		} else {
			require.ErrorContains(t, err, fmt.Sprintf("it has %d of 7 nodes and asks for 2", 6))
		}
	}
	require.Equal(t, 3, admitted)
	require.NoError(t, s.Tx(t.Context(), func(tx *db.Tx) error {
		_, err := tenancy.CloseProject(t.Context(), tx, project.ID, 0, func(context.Context, *db.Tx, string) (int, error) { return 0, nil }, db.Actor{Owner: lifecycle.OwnerAdmin})
		return err
	}))
	require.ErrorContains(t, claim(), "the project is closed")
}
