package server

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/slipway-cloud/slipway/internal/config"
	"github.com/slipway-cloud/slipway/internal/nodeca"
	"github.com/slipway-cloud/slipway/providers"
	"github.com/slipway-cloud/slipway/providers/secrets"
)

// openCA loads the nodes' CA from its directory, or from the secret store where
// several processes share it; there it is created by whoever comes first.
func openCA(ctx context.Context, cfg config.Config, s *secrets.Secrets) (*nodeca.CA, error) {
	if cfg.Agent.CARef == "" {
		if cfg.Agent.CADir == "" {
			return nil, errors.New("agent.ca_dir or agent.ca_ref must be set: it is where the nodes' certificate authority is kept")
		}
		return nodeca.Open(cfg.Agent.CADir)
	}
	ref := providers.SecretRef(cfg.Agent.CARef)
	got, err := s.Resolve(ctx, ref)
	if providers.IsKind(err, providers.KindNotFound) {
		made, cerr := nodeca.Create()
		if cerr != nil {
			return nil, cerr
		}
		bundle := append(bytes.Clone(made.CertPEM()), made.KeyPEM()...)
		if err := s.PutFirst(ctx, cfg.Agent.CARef, providers.NewSecret(string(bundle))); err != nil {
			return nil, fmt.Errorf("store the new node CA: %w", err)
		}
		got, err = s.Resolve(ctx, ref)
	}
	if err != nil {
		return nil, fmt.Errorf("node CA %s: %w", ref, err)
	}
	return parseCA([]byte(got.Reveal()))
}

func parseCA(bundle []byte) (*nodeca.CA, error) {
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
	return nodeca.FromPEM(cert, key)
}
