package secrets

import (
	"bytes"
	"context"
	"errors"
	"sync"

	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// Memory is a Store that forgets when the process ends: for tests and for the
// dev stack without a database. The zero value is ready.
type Memory struct {
	mu   sync.Mutex
	rows map[string][]memoryRow
}

type memoryRow struct {
	keeperURL               string
	ciphertext, fingerprint []byte
}

var _ Store = (*Memory)(nil)

// PutSecretVersion implements Store.
func (m *Memory) PutSecretVersion(_ context.Context, name, keeperURL string, ciphertext, fingerprint []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	rows := m.rows[name]
	if n := len(rows); n > 0 && bytes.Equal(rows[n-1].fingerprint, fingerprint) {
		return n, nil
	}
	if m.rows == nil {
		m.rows = map[string][]memoryRow{}
	}
	m.rows[name] = append(rows, memoryRow{keeperURL, bytes.Clone(ciphertext), bytes.Clone(fingerprint)})
	return len(rows) + 1, nil
}

// SecretVersion implements Store.
func (m *Memory) SecretVersion(_ context.Context, name string, version int) (int, string, []byte, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	rows := m.rows[name]
	if version == 0 {
		version = len(rows)
	}
	if version < 1 || version > len(rows) {
		return 0, "", nil, false, nil
	}
	row := rows[version-1]
	return version, row.keeperURL, bytes.Clone(row.ciphertext), true, nil
}

// DeleteSecret implements Store.
func (m *Memory) DeleteSecret(_ context.Context, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.rows, name)
	return nil
}

// SecretUse implements Store. A value that is kept for a process only may be used for nothing that
// leaves it.
func (m *Memory) SecretUse(context.Context, string) (spec.SecretUse, bool, error) {
	return spec.SecretUse{}, false, nil
}

// SiteForAddresses implements Store. There are no sites.
func (m *Memory) SiteForAddresses(context.Context, string) (string, spec.SiteSpec, error) {
	return "", spec.SiteSpec{}, errors.New("there are no sites without a database")
}
