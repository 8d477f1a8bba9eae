package privileged

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"syscall"
	"time"

	"github.com/slipway-cloud/slipway/agent/atomicfile"
	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/agent/taskkeys"
)

// KeyFile is the file with the keys that sign tasks, as the JSON of a list of
// protocol.TaskKey. It must belong to the user of this process and be writable by
// nobody else. An operator who writes it needs key_id and public only.
type KeyFile struct {
	Path string
	mu   sync.Mutex // of Adopt: the file never goes back
}

// Load reads the keys; none when there is no file yet.
func (k *KeyFile) Load() ([]protocol.TaskKey, error) {
	f, err := os.OpenFile(k.Path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
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
		return nil, fmt.Errorf("%s must be a file of uid %d that nobody else may write; its keys are not believed", k.Path, os.Geteuid())
	}
	var keys []protocol.TaskKey
	if err := json.NewDecoder(f).Decode(&keys); err != nil {
		return nil, fmt.Errorf("%s is damaged; write it again with the keys of the control plane", k.Path)
	}
	return keys, nil
}

// Adopt takes the first keys that are offered, which is at enrolment, before
// any tenant was on the node, and later those that follow from them by
// signature: the process that offers them may have been taken over. The keys
// that it accepts are on the disk when it returns, also when it refuses others.
func (k *KeyFile) Adopt(offered []protocol.TaskKey) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	have, err := k.Load()
	if err != nil {
		return err
	}
	next, refused := taskkeys.Extend(have, offered)
	next = current(next, time.Now())
	if reflect.DeepEqual(have, next) {
		return refused
	}
	return errors.Join(k.write(next), refused)
}

// current leaves out keys that have ended. The newest one stays, since the next
// one hangs on it.
func current(keys []protocol.TaskKey, now time.Time) []protocol.TaskKey {
	if len(keys) == 0 {
		return nil
	}
	return append(taskkeys.Valid(keys[:len(keys)-1], now), keys[len(keys)-1])
}

func (k *KeyFile) write(keys []protocol.TaskKey) error {
	raw, err := json.MarshalIndent(keys, "", "  ")
	if err != nil {
		return fmt.Errorf("write the task keys: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(k.Path), 0o755); err != nil {
		return fmt.Errorf("write the task keys: %w", err)
	}
	if err := atomicfile.Replace(k.Path, append(raw, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the task keys: %w", err)
	}
	return nil
}
