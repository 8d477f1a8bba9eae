package secrets

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/slipway-cloud/slipway/providers"
)

const (
	opOpen      = "secrets.open"
	keySize     = 32
	maxKeyFile  = 4 << 10
	keyFileMode = 0o600
)

// loadKeyFile reads the local key, 32 bytes as URL-safe base64 on one line, and
// makes the file, readable by its owner alone, when there is none. A file that
// others can read is refused. Two processes that start at once end up with one
// key: the file appears whole and only if it is not there.
func loadKeyFile(path string) ([keySize]byte, error) {
	var key [keySize]byte
	if path == "" {
		return key, failure(providers.KindInvalid, opOpen, nil, "the local keeper needs a key file; set secrets.key_file")
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if err := createKeyFile(path); err != nil {
			return key, failure(providers.KindInvalid, opOpen, err, "cannot create the key file %s; its folder must exist and be writable", path)
		}
	}
	text, err := readKeyFile(path)
	if err != nil {
		return key, err
	}
	raw, err := base64.URLEncoding.DecodeString(string(bytes.TrimSpace(text)))
	if err != nil || len(raw) != keySize {
		return key, failure(providers.KindInvalid, opOpen, nil,
			"the key file %s does not hold a key (%d bytes in URL-safe base64); restore it from its backup", path, keySize)
	}
	copy(key[:], raw)
	return key, nil
}

func readKeyFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, failure(providers.KindInvalid, opOpen, err, "cannot read the key file %s", path)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, failure(providers.KindInvalid, opOpen, err, "cannot read the key file %s", path)
	}
	if !info.Mode().IsRegular() {
		return nil, failure(providers.KindInvalid, opOpen, nil, "the key file %s is not a plain file", path)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, failure(providers.KindInvalid, opOpen, nil,
			"the key file %s can be read or written by others (mode %04o); run chmod 600 on it, and replace the key if they may have seen it",
			path, info.Mode().Perm())
	}
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile))
	if err != nil {
		return nil, failure(providers.KindInvalid, opOpen, err, "cannot read the key file %s", path)
	}
	return text, nil
}

// createKeyFile writes a new key beside path and links it there, which fails
// when another process was first; then its key is the one that counts.
func createKeyFile(path string) error {
	raw := make([]byte, keySize)
	if _, err := rand.Read(raw); err != nil {
		return fmt.Errorf("no random numbers: %w", err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".slipway-key-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.WriteString(base64.URLEncoding.EncodeToString(raw) + "\n")
	err = errors.Join(err, tmp.Chmod(keyFileMode), tmp.Sync(), tmp.Close())
	if err != nil {
		return err
	}
	if err := os.Link(tmp.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes the new name survive a power cut: values sealed with a lost key
// are lost too.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
