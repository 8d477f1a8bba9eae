package taskhandlers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slipway-cloud/slipway/agent/atomicfile"
	"github.com/slipway-cloud/slipway/agent/task"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// credentialPaths hold what an installation by MAAS was given: user-data and vendor-data as
// cloud-init keeps them, and the key by which the machine speaks to MAAS. The installer keeps a
// copy of the key in its own configuration and log.
var credentialPaths = []string{
	"/var/lib/cloud", "/run/cloud-init", "/var/log/cloud-init.log", "/var/log/cloud-init-output.log", "/etc/maas", "/root/curtin-install-cfg.yaml",
	"/root/curtin-install.log", "/var/log/installer",
}

// cloudConfigDir is where the datasource of cloud-init is configured, with the key for MAAS in it.
const cloudConfigDir = "/etc/cloud/cloud.cfg.d"

// cloudInitOff keeps cloud-init from beginning again without its datasource: it would give the node
// other host keys.
const cloudInitOff = "/etc/cloud/cloud-init.disabled"

// credentialWords stand in every file that holds a key for MAAS.
var credentialWords = [][]byte{[]byte("token_secret"), []byte("token_key"), []byte("consumer_key")}

// RetireCredentials is the handler of node.retire_credentials: it overwrites and removes what of
// the installation is on the disk and may be good elsewhere. A tenant who is root reads every file.
// It can be repeated.
func (h Host) RetireCredentials(ctx context.Context, r task.Request, steps *task.Recorder) lifecycle.TaskResult {
	if _, ok := r.Args.(*spec.RetireCredentialsArgs); !ok {
		return task.Fail(task.CodeInternal, "the arguments are not those of credentials to be retired")
	}
	err := steps.Do(ctx, "cloud_init", func(context.Context) (string, error) {
		if err := os.MkdirAll(h.path(filepath.Dir(cloudInitOff)), 0o755); err != nil {
			return "", err
		}
		return "it does not begin again at a boot", atomicfile.Replace(h.path(cloudInitOff), nil, 0o644)
	})
	if err == nil {
		err = steps.Do(ctx, "hardware_sync", h.endHardwareSync)
	}
	if err == nil {
		err = steps.Do(ctx, "files", func(context.Context) (string, error) { return h.removeCredentials() })
	}
	return steps.End(err)
}

// endHardwareSync ends the timer that speaks to MAAS with the machine's key.
func (h Host) endHardwareSync(ctx context.Context) (string, error) {
	const timer = "maas_hardware_sync.timer"
	found := slices.ContainsFunc([]string{"/lib/systemd/system/", unitDir + "/"}, func(dir string) bool {
		_, err := os.Lstat(h.path(dir + timer))
		return err == nil
	})
	if !found || !h.HasTool("systemctl") {
		return "", task.Skip("hardware sync is not installed")
	}
	_, err := h.Tool(ctx, "systemctl", "disable", "--now", timer)
	return "hardware sync with MAAS has ended", err
}

func (h Host) removeCredentials() (string, error) {
	paths := slices.Clone(credentialPaths)
	configs, err := h.credentialConfigs()
	if err != nil {
		return "", err
	}
	if h.TokenFile != "" {
		paths = append(paths, h.TokenFile)
	}
	var errs []error
	removed := 0
	for _, path := range append(paths, configs...) {
		n, err := h.wipe(h.path(path))
		removed, errs = removed+n, append(errs, err)
	}
	if left, err := h.credentialConfigs(); err != nil || len(left) > 0 {
		errs = append(errs, err, fmt.Errorf("%d files of %s still hold a key for MAAS", len(left), cloudConfigDir))
	}
	return fmt.Sprintf("%d files overwritten and removed", removed), errors.Join(errs...)
}

// credentialConfigs lists the configurations of cloud-init that hold a key for MAAS.
func (h Host) credentialConfigs() ([]string, error) {
	entries, err := os.ReadDir(h.path(cloudConfigDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var out []string
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		path := filepath.Join(cloudConfigDir, e.Name())
		raw, rerr := os.ReadFile(h.path(path))
		if rerr != nil {
			return nil, rerr
		}
		if slices.ContainsFunc(credentialWords, func(w []byte) bool { return bytes.Contains(raw, w) }) {
			out = append(out, path)
		}
	}
	return out, err
}

// wipe overwrites and removes a file, or every file of a directory. It follows no link, and leaves
// empty directories. It returns how many files there were.
func (h Host) wipe(path string) (int, error) {
	n := 0
	err := filepath.WalkDir(path, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || d.IsDir() {
			return err
		}
		n++
		if d.Type().IsRegular() {
			if err := overwrite(path); err != nil {
				return err
			}
		}
		return os.Remove(path)
	})
	if err != nil {
		return n, fmt.Errorf("%s is not removed: %w", strings.TrimPrefix(path, h.Root), err)
	}
	return n, nil
}

// overwrite puts zeros in the place of a file's content: who reads the disk below the file system
// finds no copy there.
func overwrite(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err == nil {
		zeros := make([]byte, 64<<10)
		for left := st.Size(); left > 0 && err == nil; left -= int64(len(zeros)) {
			_, err = f.Write(zeros[:min(left, int64(len(zeros)))])
		}
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
