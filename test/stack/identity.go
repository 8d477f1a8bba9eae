package stack

import (
	"context"
	"os"
	"path/filepath"

	"github.com/slipway-cloud/slipway/assembly/devserver/identity"
	"github.com/slipway-cloud/slipway/internal/config"
)

// startIdentity starts the identity provider and makes Slipway its client.
func (s *Stack) startIdentity(ctx context.Context, cfg *config.Config) error {
	var err error
	s.Identity, err = identity.Start(ctx, identity.Options{Port: s.Options.IdentityPort, PortalURL: cfg.API.PublicURL})
	if err != nil {
		return err
	}
	s.onClose(func() { _ = s.Identity.Close() })
	cfg.OIDC.Issuer, cfg.OIDC.Audience, cfg.OIDC.ClientID = s.Identity.Issuer, identity.Audience, identity.PortalClient
	cfg.OIDC.CLIClientID = identity.ProgramClient
	cfg.OIDC.ClientSecretFile = filepath.Join(s.Dir, "oidc-client-secret")
	return os.WriteFile(cfg.OIDC.ClientSecretFile, []byte(s.Identity.Secret), 0o600)
}
