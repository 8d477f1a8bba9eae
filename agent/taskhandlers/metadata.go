package taskhandlers

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/slipway-cloud/slipway/agent/atomicfile"
	"github.com/slipway-cloud/slipway/agent/metadata"
	"github.com/slipway-cloud/slipway/agent/task"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
)

// metadataUnit is the unit that opens the socket for the metadata.
const metadataUnit = "slipway-agent-metadata.socket"

// SetMetadata is the handler of allocation.set_metadata: it puts the document where the other half
// of the agent reads it, and gives the loopback device its address. Without a document both go.
func (h Host) SetMetadata(ctx context.Context, r task.Request, steps *task.Recorder) lifecycle.TaskResult {
	args, ok := r.Args.(*spec.SetMetadataArgs)
	if !ok {
		return task.Fail(task.CodeInternal, "the arguments are not those of metadata")
	}
	if args.Document == nil {
		return steps.End(steps.Do(ctx, "metadata", func(ctx context.Context) (string, error) {
			return h.endMetadata(ctx, lifecycle.TenantAccount(args.AllocationID))
		}))
	}
	err := steps.Do(ctx, "document", func(context.Context) (string, error) {
		raw, err := json.MarshalIndent(args.Document, "", "  ")
		if err != nil {
			return "", err
		}
		if err := os.MkdirAll(filepath.Dir(h.path(metadata.Path)), 0o755); err != nil {
			return "", err
		}
		return "written to " + metadata.Path, atomicfile.Replace(h.path(metadata.Path), append(raw, '\n'), 0o644)
	})
	if err == nil {
		err = steps.Do(ctx, "address", func(ctx context.Context) (string, error) { return h.setMetadataAddress(ctx, true) })
	}
	return steps.End(err)
}

func (h Host) setMetadataAddress(ctx context.Context, on bool) (string, error) {
	if !h.real() {
		return "", task.Skip("a simulated node has no loopback device of its own")
	}
	if on {
		if _, err := os.Lstat(h.path(filepath.Join(unitDir, metadataUnit))); err != nil {
			return "", errors.New("the unit " + metadataUnit + " is not installed, so that nothing would serve the metadata; run the agent's installer of this version again")
		}
	}
	if err := metadata.SetAddress(ctx, h.Tool, on); err != nil {
		return "", err
	}
	return metadata.Address + map[bool]string{true: " is on the loopback device", false: " is not on the loopback device"}[on], nil
}

// endMetadata ends the metadata of the account's allocation. That of another allocation stays,
// because a task for a tenant of the past may come late. A document that cannot be read goes.
func (h Host) endMetadata(ctx context.Context, user string) (string, error) {
	path := h.path(metadata.Path)
	d, err := metadata.Read(path)
	if err == nil && d != nil && lifecycle.TenantAccount(d.InstanceID) != user {
		return "", task.Skip("the metadata is of another allocation")
	}
	if err := os.RemoveAll(path); err != nil {
		return "", err
	}
	if err := atomicfile.SyncDir(filepath.Dir(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if _, err := h.setMetadataAddress(ctx, false); err != nil && h.real() {
		return "", err
	}
	return "nothing is served", nil
}

// RestoreMetadata gives the loopback device its address again after a boot, when there is a
// document, and takes it away when there is none.
func (h Host) RestoreMetadata(ctx context.Context) error {
	if !h.real() {
		return nil
	}
	_, err := os.Lstat(h.path(metadata.Path))
	return metadata.SetAddress(ctx, h.Tool, err == nil)
}
