package secrets

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"github.com/slipway-cloud/slipway/providers"
)

const (
	opCopy       = "secrets.copy"
	copiesPrefix = reservedPrefix + "copy/"
	// copiesSuffix makes the folder of the copies from the name of the key file.
	copiesSuffix  = ".copies"
	copiesDirMode = 0o700
)

// sealedCopy is a file of the folder of copies. It is no use without the keeper's key.
type sealedCopy struct {
	Keeper string          `json:"keeper"`
	Sealed json.RawMessage `json:"sealed"`
}

// KeepCopy seals a value in a file beside the key file, so that it outlives a restore of the
// database. It replaces an earlier copy of the same name. It does nothing with a keeper that has no
// key file.
func (s *Secrets) KeepCopy(ctx context.Context, name string, value providers.Secret) error {
	if err := checkName(opCopy, name); err != nil || s.copies == "" {
		return err
	}
	s.reveal(ctx, value.Reveal())
	sealed, err := s.current.seal(ctx, opCopy, copiesPrefix+name, 0, []byte(value.Reveal()))
	if err != nil {
		return err
	}
	text, err := json.Marshal(sealedCopy{Keeper: s.current.url, Sealed: sealed})
	if err == nil {
		err = writeCopy(s.copyFile(name), text)
	}
	if err != nil {
		return failure(providers.KindUnavailable, opCopy, err, "the sealed copy of %s cannot be written; the folder %s must be writable for the workers", name, s.copies)
	}
	return nil
}

// ReadCopy opens what KeepCopy stored. It returns KindNotFound when there is no copy.
func (s *Secrets) ReadCopy(ctx context.Context, name string) (providers.Secret, error) {
	none := failure(providers.KindNotFound, opCopy, nil, "there is no sealed copy of %s", name)
	if err := checkName(opCopy, name); err != nil {
		return providers.Secret{}, err
	}
	if s.copies == "" {
		return providers.Secret{}, none
	}
	text, err := os.ReadFile(s.copyFile(name))
	if errors.Is(err, fs.ErrNotExist) {
		return providers.Secret{}, none
	}
	var found sealedCopy
	if err == nil {
		err = json.Unmarshal(text, &found)
	}
	if err != nil {
		return providers.Secret{}, failure(providers.KindUnavailable, opCopy, err, "the sealed copy of %s cannot be read", name)
	}
	keeper, known := s.byURL[found.Keeper]
	if !known {
		return providers.Secret{}, failure(providers.KindInvalid, opCopy, nil, "the copy of %s was sealed by a keeper that is not configured; name it among the previous keepers", name)
	}
	value, err := keeper.open(ctx, opCopy, copiesPrefix+name, 1, found.Sealed)
	if err != nil {
		return providers.Secret{}, err
	}
	s.reveal(ctx, string(value))
	return providers.NewSecret(string(value)), nil
}

func (s *Secrets) copyFile(name string) string { return filepath.Join(s.copies, url.PathEscape(name)) }

// writeCopy writes a file whole or not at all, readable by its owner alone, and outlives a power
// cut.
func writeCopy(path string, text []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, copiesDirMode); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(dir, ".copy-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(text)
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return err
	}
	return syncDir(dir)
}
