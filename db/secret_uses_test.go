package db_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/dbtest"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// TestMigrations_DeriveSecretUses upgrades a database whose secrets have no use yet.
func TestMigrations_DeriveSecretUses(t *testing.T) {
	t.Parallel()
	dsn := dbtest.FreshDatabase(t)
	s := dbtest.Open(t, dbtest.OwnerDSN(t, dsn)) // as of this version, the other roles have no rights
	cfg, err := pgx.ParseConfig(dbtest.OwnerDSN(t, dsn))
	require.NoError(t, err)
	sqlDB := stdlib.OpenDB(*cfg)
	t.Cleanup(func() { _ = sqlDB.Close() })
	p, err := goose.NewProvider(goose.DialectPostgres, sqlDB, db.Migrations())
	require.NoError(t, err)
	_, err = p.DownTo(t.Context(), 27)
	require.NoError(t, err)
	_, err = sqlDB.ExecContext(t.Context(), "ALTER TABLE nodes ADD COLUMN left_by_machine boolean NOT NULL DEFAULT false") // the store of this version writes it
	require.NoError(t, err)

	site := func(s2 spec.SiteSpec) db.Site {
		return dbtest.Site(t, s, func(p *dbtest.Params) { p.Site = s2 })
	}
	ber := site(spec.SiteSpec{MAASURL: "http://10.0.0.2/MAAS", MAASAPIKeyRef: "maas/ber", SSHKeyRef: "ssh/all@2"})
	ams := site(spec.SiteSpec{MAASURL: "https://maas.ams/MAAS", MAASAPIKeyRef: "both", SSHKeyRef: "ssh/all"})
	sim := site(spec.SiteSpec{MAASURL: "http://127.0.0.1/MAAS", MAASAPIKeyRef: "maas/sim", Simulated: true})
	node := dbtest.Node(t, s, dbtest.At(ber.ID)).ID
	other := dbtest.Node(t, s, dbtest.At(ber.ID)).ID
	for _, b := range []db.NewBMC{
		{NodeID: &node, Address: "https://10.4.0.1:8443/", CredentialRef: "bmc/a@1"},
		{NodeID: &other, Address: "[fd00:4::1]:443", CredentialRef: "both"},
		{Address: "10.4.0.9", CredentialRef: "bmc/free"}, {Address: "bmc.example", CredentialRef: "bmc/name"},
	} {
		b.Protocol = "redfish"
		_, err := s.CreateBMC(t.Context(), b)
		require.NoError(t, err)
	}
	for _, name := range []string{"maas/ber", "maas/sim", "ssh/all", "both", "bmc/a", "bmc/free", "bmc/name", "unused"} {
		_, err := s.PutSecretVersion(t.Context(), name, "keeper", []byte("sealed"), []byte(name))
		require.NoError(t, err)
	}
	_, err = sqlDB.ExecContext(t.Context(), "ALTER TABLE nodes DROP COLUMN left_by_machine")
	require.NoError(t, err)
	require.NoError(t, db.Migrate(t.Context(), dbtest.OwnerDSN(t, dsn)))

	for name, want := range map[string]spec.SecretUse{
		"maas/ber": {Kind: spec.SecretMAASKey, Sites: []string{ber.ID}},
		"bmc/a":    {Kind: spec.SecretBMCLogin, Sites: []string{ber.ID}},
		"bmc/free": {Kind: spec.SecretBMCLogin, Networks: []string{"10.4.0.9/32"}},
		"both":     {}, "bmc/name": {}, "unused": {},
	} {
		use, found, err := s.SecretUse(t.Context(), name)
		require.NoError(t, err)
		require.Equal(t, want.Kind != "", found, name)
		require.Equal(t, want, use, name)
	}
	use, _, err := s.SecretUse(t.Context(), "ssh/all")
	require.NoError(t, err)
	require.Equal(t, spec.SecretSSHKey, use.Kind)
	require.ElementsMatch(t, []string{ber.ID, ams.ID}, use.Sites)

	for _, tc := range []struct {
		id       string
		networks []string
		http     bool
	}{{ber.ID, []string{"10.4.0.1/32", "fd00:4::1/128"}, true}, {ams.ID, nil, false}, {sim.ID, []string{"127.0.0.0/8"}, false}} {
		now, err := s.Site(t.Context(), tc.id)
		require.NoError(t, err)
		require.Equal(t, tc.networks, now.Spec.BMCNetworks)
		require.Equal(t, tc.http, now.Spec.MAASPlainHTTP)
	}
}
