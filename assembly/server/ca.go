package server

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/internal/config"
	"github.com/slipway-cloud/slipway/internal/nodeca"
	"github.com/slipway-cloud/slipway/internal/temporalx/payloadcodec"
	"github.com/slipway-cloud/slipway/lifecycle"
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

// NewCA says under which circumstances Migrate makes a node CA although agents have enrolled.
type NewCA struct {
	// Replace allows a new CA where agents may hold certificates of the one that is missing.
	Replace bool
	// KeeperKeyLost states that nobody has the key any more that sealed the secrets of this
	// database. A CA that it sealed counts as missing, and so does the newest payload key.
	KeeperKeyLost bool
}

// EnsureNodeCA creates the node CA where there is none. One process at a time does it; all others
// find the same CA. It refuses while an agent may still hold a certificate of the CA that is
// missing, which the new one would shut out, unless o.Replace is set; then every agent's identity
// is locked until it enrols again. It refuses a CA that is there and cannot be opened, unless o
// says that its key is lost. Repeatable.
func EnsureNodeCA(ctx context.Context, cfg config.Config, store *db.Store, s *secrets.Secrets, o NewCA) error {
	return store.Tx(ctx, func(tx *db.Tx) error {
		if err := tx.Lock(ctx, "slipway:node_ca"); err != nil {
			return err
		}
		_, err := openCA(ctx, cfg, s)
		lost := false
		if err != nil && !errors.Is(err, errNoCA) {
			if lost, err = checkLostCA(ctx, cfg, s, o, err); err != nil {
				return err
			}
		}
		if err == nil && !lost {
			return nil
		}
		if enrolled, err := tx.AnyAgentEnrolled(ctx); err != nil {
			return err
		} else if enrolled && !o.Replace {
			return errors.New("the node CA is missing while agents have enrolled under it, and a new one would shut all of them out: " +
				"put the old one back (agent.ca_dir, agent.ca_ref), or make a new one with --new-node-ca and give every agent a new token")
		} else if enrolled {
			if err := endCertificates(ctx, tx); err != nil {
				return err
			}
		}
		return createCA(ctx, cfg, s, lost)
	})
}

// checkLostCA reports whether the CA in the secret store cannot be opened and is to be replaced. It
// returns cause, with what to do, where it must not be: another reason than a lost key, or no word
// of the operator that nobody has that key.
func checkLostCA(ctx context.Context, cfg config.Config, s *secrets.Secrets, o NewCA, cause error) (bool, error) {
	if cfg.Agent.CARef == "" || strings.Contains(cfg.Agent.CARef, "@") { // a version that is named is never replaced
		return false, cause
	}
	lost, err := s.IsLost(ctx, cfg.Agent.CARef)
	switch {
	case err != nil, !lost:
		return false, cause
	case !o.Replace || !o.KeeperKeyLost:
		return false, fmt.Errorf("%w; bring back the key that sealed it (secrets.key_file, or secrets.previous_key_file). Only where nobody has that key any more, "+
			"make a new CA with --new-node-ca --keeper-key-lost: every agent then needs a new token", cause)
	}
	return true, nil
}

// endCertificates locks the agents out that a CA of before let in, also at a process that has not
// been started again and still knows that CA. The audit log has it.
func endCertificates(ctx context.Context, tx *db.Tx) error {
	const reason = "the node CA was replaced; the agent needs a new token"
	n, err := tx.LockAllAgentIdentities(ctx, reason)
	if err != nil {
		return err
	}
	return tx.AppendAudit(ctx, db.Entry{ResourceKind: "node_ca", ResourceID: "node_ca", Kind: db.EntryAction, Name: "replace",
		Actor: db.Actor{Owner: lifecycle.OwnerSystem, ID: "slipwayd migrate", Metadata: map[string]any{"agents": n}}})
}

// createCA makes a CA where the configuration says, in place of one that is lost.
func createCA(ctx context.Context, cfg config.Config, s *secrets.Secrets, lost bool) error {
	if cfg.Agent.CARef == "" {
		_, err := nodeca.Open(cfg.Agent.CADir)
		return err
	}
	made, err := nodeca.Create()
	if err != nil {
		return err
	}
	bundle := providers.NewSecret(string(append(bytes.Clone(made.CertPEM()), made.KeyPEM()...)))
	if lost {
		_, err = s.ReplaceLost(ctx, cfg.Agent.CARef, bundle)
	} else {
		err = s.PutFirst(ctx, cfg.Agent.CARef, bundle)
	}
	if err != nil {
		return fmt.Errorf("store the new node CA: %w", err)
	}
	return nil
}

// Migrate brings the database up to date and creates the node CA, if the configuration says where
// it is kept. It returns whether it does.
func Migrate(ctx context.Context, cfg config.Config, o NewCA) (ca bool, err error) {
	if err := db.Migrate(ctx, cfg.Database.MigrationURL()); err != nil {
		return false, err
	}
	ca = cfg.Agent.CARef != "" || cfg.Agent.CADir != ""
	if !ca && !o.KeeperKeyLost {
		return false, nil
	}
	store, err := db.Open(ctx, cfg.Database.MigrationURL())
	if err != nil {
		return false, err
	}
	defer store.Close()
	var sealed *secrets.Secrets
	if cfg.Agent.CARef != "" || o.KeeperKeyLost {
		if sealed, err = secrets.Open(ctx, store, secrets.Keeper{URL: cfg.Secrets.Keeper, KeyFile: cfg.Secrets.KeyFile}, secrets.Options{Previous: PreviousKeeper(cfg), Own: ownSecrets(cfg)}); err != nil {
			return false, fmt.Errorf("secret keeper: %w", err)
		}
		defer func() { err = errors.Join(err, sealed.Close()) }()
	}
	if o.KeeperKeyLost { // no process starts without a payload key that it can open
		if _, err := payloadcodec.ReplaceLost(ctx, sealed); err != nil {
			return false, err
		}
	}
	if !ca {
		return false, nil
	}
	return true, EnsureNodeCA(ctx, cfg, store, sealed, o)
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
