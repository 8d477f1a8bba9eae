package server

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/config"
	"github.com/slipway-cloud/slipway/internal/nodeca"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/secrets"
)

// errNoCA means that nobody has created the node CA yet.
var errNoCA = errors.New("there is no node CA; run slipwayd migrate with the same settings, which creates it once")

// openCA loads the node CA from its directory, or from the secret store where several processes
// share it. It never creates one: of two processes that did so, one would go on with a CA that no
// other process knows.
func openCA(ctx context.Context, cfg config.Config, s *secrets.Secrets) (*nodeca.CA, error) {
	life := nodeca.WithNodeLife(cfg.Agent.CertTTL)
	if cfg.Agent.CARef == "" {
		if cfg.Agent.CADir == "" {
			return nil, errors.New("agent.ca_dir or agent.ca_ref must be set: it is where the nodes' certificate authority is kept")
		}
		ca, err := nodeca.Load(cfg.Agent.CADir, life)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("agent.ca_dir %s: %w", cfg.Agent.CADir, errNoCA)
		}
		return ca, err
	}
	ref := providers.SecretRef(cfg.Agent.CARef)
	got, err := s.Resolve(ctx, ref, providers.OwnUse())
	if providers.IsKind(err, providers.KindNotFound) {
		return nil, fmt.Errorf("agent.ca_ref %s: %w", ref, errNoCA)
	}
	if err != nil {
		return nil, fmt.Errorf("node CA %s: %w", ref, err)
	}
	return parseCA([]byte(got.Reveal()), life)
}

// EnsureNodeCA creates the node CA where there is none. One process at a time does it; all others
// find the same CA. It refuses while an agent may still hold a certificate of the CA that is missing,
// which the new one would shut out, unless replace is set. Repeatable.
func EnsureNodeCA(ctx context.Context, cfg config.Config, store *db.Store, s *secrets.Secrets, replace bool) error {
	return store.Tx(ctx, func(tx *db.Tx) error {
		if err := tx.Lock(ctx, "slipway:node_ca"); err != nil {
			return err
		}
		_, err := openCA(ctx, cfg, s)
		if !errors.Is(err, errNoCA) {
			return err
		}
		if enrolled, err := tx.AnyAgentEnrolled(ctx); err != nil {
			return err
		} else if enrolled && !replace {
			return errors.New("the node CA is missing while agents have enrolled under it, and a new one would shut all of them out: " +
				"put the old one back (agent.ca_dir, agent.ca_ref), or make a new one with --new-node-ca and have every node enrol again")
		}
		if cfg.Agent.CARef == "" {
			_, err = nodeca.Open(cfg.Agent.CADir)
			return err
		}
		made, err := nodeca.Create()
		if err != nil {
			return err
		}
		bundle := append(bytes.Clone(made.CertPEM()), made.KeyPEM()...)
		if err := s.PutFirst(ctx, cfg.Agent.CARef, providers.NewSecret(string(bundle))); err != nil {
			return fmt.Errorf("store the new node CA: %w", err)
		}
		return nil
	})
}

// Migrate brings the database up to date and creates the node CA, if the configuration says where it
// is kept. It returns whether it does.
func Migrate(ctx context.Context, cfg config.Config, replaceCA bool) (ca bool, err error) {
	if err := db.Migrate(ctx, cfg.Database.MigrationURL()); err != nil {
		return false, err
	}
	if cfg.Agent.CARef == "" && cfg.Agent.CADir == "" {
		return false, nil
	}
	store, err := db.Open(ctx, cfg.Database.MigrationURL())
	if err != nil {
		return false, err
	}
	defer store.Close()
	var sealed *secrets.Secrets
	if cfg.Agent.CARef != "" {
		if sealed, err = secrets.Open(ctx, store, secrets.Keeper{URL: cfg.Secrets.Keeper, KeyFile: cfg.Secrets.KeyFile}, secrets.Options{Previous: PreviousKeeper(cfg), Own: ownSecrets(cfg)}); err != nil {
			return false, fmt.Errorf("secret keeper: %w", err)
		}
		defer func() { err = errors.Join(err, sealed.Close()) }()
	}
	return true, EnsureNodeCA(ctx, cfg, store, sealed, replaceCA)
}

func parseCA(bundle []byte, opts ...nodeca.Option) (*nodeca.CA, error) {
	var cert, key []byte
	for {
		var block *pem.Block
		if block, bundle = pem.Decode(bundle); block == nil {
			break
		}
		if block.Type == "CERTIFICATE" {
			cert = pem.EncodeToMemory(block)
		} else {
			key = pem.EncodeToMemory(block)
		}
	}
	if cert == nil || key == nil {
		return nil, errors.New("the node CA secret must hold a certificate and its key in PEM form")
	}
	return nodeca.FromPEM(cert, key, opts...)
}
