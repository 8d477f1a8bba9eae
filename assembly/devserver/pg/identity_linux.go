package pg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// identity is who the server runs as. PostgreSQL refuses to run as root, so root has to become
// somebody else.
type identity struct {
	name       string
	credential *syscall.Credential // run as this user, who then owns the folder
	namespace  bool                // run as uid 1000 of a user namespace that is root outside: no other user needed, files stay root's
}

// chooseIdentity returns us for an ordinary user. For root: user postgres, else nobody, if that
// user can reach the binaries and the folder; else a user namespace, if this kernel and container
// allow one. Data that is there already keeps its owner, which PostgreSQL insists on.
func chooseIdentity(ctx context.Context, binDir, root string) (identity, error) {
	if os.Geteuid() != 0 {
		return identity{name: "the current user"}, nil
	}
	if info, err := os.Stat(filepath.Join(root, "data")); err == nil {
		return ownerOf(info)
	}
	var reasons error
	for _, name := range []string{"postgres", "nobody"} {
		account, err := user.Lookup(name)
		if err != nil {
			reasons = errors.Join(reasons, err)
			continue
		}
		cred, err := credentialOf(account)
		if err != nil {
			reasons = errors.Join(reasons, err)
			continue
		}
		if err := errors.Join(reachable(filepath.Dir(root), cred.Uid), reachable(binDir, cred.Uid)); err != nil {
			reasons = errors.Join(reasons, fmt.Errorf("user %s: %w", name, err))
			continue
		}
		return identity{name: name, credential: cred}, nil
	}
	inside := identity{name: "a user namespace", namespace: true}
	if err := inside.try(ctx); err != nil {
		return identity{}, errors.Join(errors.New("PostgreSQL refuses to run as root and no other way was found: "+
			"keep the data in a folder that user postgres can reach, for example under "+os.TempDir()), reasons, err)
	}
	return inside, nil
}

func ownerOf(info fs.FileInfo) (identity, error) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return identity{}, fmt.Errorf("cannot tell who owns %s", info.Name())
	}
	if stat.Uid == 0 {
		return identity{name: "a user namespace", namespace: true}, nil
	}
	return identity{name: "the owner of the data", credential: &syscall.Credential{Uid: stat.Uid, Gid: stat.Gid}}, nil
}

func credentialOf(account *user.User) (*syscall.Credential, error) {
	uid, err := strconv.ParseUint(account.Uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user %s: %w", account.Username, err)
	}
	gid, err := strconv.ParseUint(account.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("user %s: %w", account.Username, err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// reachable tells whether uid may walk down to dir. Folders that do not exist yet are made by us
// later, and do not count.
func reachable(dir string, uid uint32) error {
	for {
		info, err := os.Stat(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		default:
			stat, ok := info.Sys().(*syscall.Stat_t)
			owns := ok && stat.Uid == uid && info.Mode()&0o100 != 0
			if !owns && info.Mode()&0o001 == 0 {
				return fmt.Errorf("%s may not be entered", dir)
			}
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return nil
		}
		dir = parent
	}
}

// try runs a program that does nothing, which a container may forbid.
func (id identity) try(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/true")
	id.apply(cmd)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("a user namespace: %w", err)
	}
	return nil
}

func (id identity) apply(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: id.credential}
	if id.namespace {
		const inside = 1000
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: inside, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: inside, HostID: os.Getgid(), Size: 1}}
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: inside, Gid: inside, NoSetGroups: true}
	}
}

// own gives path to the user, if it is another one.
func (id identity) own(path string) error {
	if id.credential == nil {
		return nil
	}
	if err := os.Chown(path, int(id.credential.Uid), int(id.credential.Gid)); err != nil {
		return fmt.Errorf("give %s to user %s: %w", path, id.name, err)
	}
	return nil
}
