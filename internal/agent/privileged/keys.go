package privileged

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"syscall"

	"github.com/slipway-cloud/slipway/internal/agent/wire"
)

// KeyFile is the file with the keys that sign tasks, as the JSON of a list of
// wire.TaskKey. It must belong to whoever runs this process and be writable by
// nobody else.
type KeyFile string

// Load reads the keys; none when there is no file yet.
func (k KeyFile) Load() ([]wire.TaskKey, error) {
	f, err := os.OpenFile(string(k), os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the task keys: %w", err)
	}
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read the task keys: %w", err)
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok || int(sys.Uid) != os.Geteuid() || st.Mode().Perm()&0o022 != 0 || !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s must be a file of uid %d that nobody else may write; its keys are not believed", string(k), os.Geteuid())
	}
	var keys []wire.TaskKey
	if err := json.NewDecoder(f).Decode(&keys); err != nil {
		return nil, fmt.Errorf("%s is damaged; write it anew with the keys of the control plane", string(k))
	}
	return keys, nil
}

// ErrOtherKeys says that keys were offered that are not those of the file.
var ErrOtherKeys = errors.New("other task keys were offered than the keys file holds; they are not believed: if the control plane has new keys, write them to the file")

// Adopt takes the first keys that are offered, which is at enrolment, before
// any tenant was on the node. Later ones are never believed: who may offer them
// may be the one who was taken over. Root may write the file.
func (k KeyFile) Adopt(keys []wire.TaskKey) error {
	have, err := k.Load()
	if err != nil || len(keys) == 0 {
		return err
	}
	if len(have) > 0 {
		if !reflect.DeepEqual(have, keys) {
			return ErrOtherKeys
		}
		return nil
	}
	raw, err := json.MarshalIndent(keys, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(string(k)), 0o755); err != nil {
		return err
	}
	tmp := string(k) + ".new"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC|syscall.O_NOFOLLOW, 0o644)
	if err != nil {
		return fmt.Errorf("write the task keys: %w", err)
	}
	_, err = f.Write(append(raw, '\n'))
	if err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err == nil {
		err = os.Rename(tmp, string(k))
	}
	return err
}
