package scrub

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/lifecycle"
)

const (
	systemSocket = "/run/containerd/containerd.sock"
	plugins      = "TYPE                            ID                       PLATFORMS      STATUS\n" +
		"io.containerd.snapshotter.v1    aufs                     linux/amd64    skip\n" +
		"io.containerd.snapshotter.v1    overlayfs                linux/amd64    ok\n" +
		"io.containerd.gc.v1             scheduler                -              ok\n"
)

// containerd answers ctr from lists by namespace; of k8s.io a snapshot of two
// layers.
func (b *bench) containerd(spaces ...string) {
	b.put(systemSocket, "")
	held := map[string][]string{}
	for _, s := range spaces {
		held[s+" tasks"], held[s+" containers"], held[s+" images"] = []string{s + "-1"}, []string{s + "-1", s + "-2"}, []string{"docker.io/" + s}
		held[s+" snapshots"] = []string{"sha256:" + s, s + "-1"} // the second is made of the first
	}
	b.answer["ctr"] = func(args []string) (string, error) {
		if args[0] != "--address" || args[1] != systemSocket {
			return "", errors.New("ctr failed: another socket")
		}
		args = args[2:]
		switch {
		case slices.Equal(args, []string{"namespaces", "list", "--quiet"}):
			return strings.Join(spaces, "\n"), nil
		case slices.Equal(args, []string{"plugins", "list"}):
			return plugins, nil
		}
		key, last := args[1]+" "+args[2], args[len(args)-1]
		lines := held[key]
		if slices.Contains(args, "list") {
			if args[2] != "snapshots" {
				return strings.Join(lines, "\n") + "\n", nil
			}
			out := "KEY PARENT KIND\n"
			for i, l := range lines {
				out += l + []string{"            Committed\n", " sha256:x Active\n"}[i]
			}
			return out, nil
		}
		if args[2] == "snapshots" && last == "sha256:"+args[1] && len(lines) > 1 {
			return "", errors.New("ctr failed: cannot remove snapshot with child")
		}
		if args[2] == "containers" && slices.Contains(held[args[1]+" tasks"], last) {
			return "", errors.New("ctr failed: cannot delete a non stopped container")
		}
		held[key] = slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return l == last })
		return "", nil
	}
}

func (b *bench) docker() {
	b.answer["docker"] = func([]string) (string, error) { return "", nil }
}

func TestContainerdIsEmptiedInAllNamespacesButDockers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.docker()
	b.containerd("default", "k8s.io", "moby")
	before := stepOf(b.look(StepContainers), StepContainers)
	require.False(t, before.OK)
	require.Contains(t, before.Detail, "it holds 12: tasks default/default-1, containers default/default-1")
	require.NotContains(t, before.Detail, "moby")
	res := b.steps(StepContainers)
	require.True(t, res.OK, res.Message)
	require.Contains(t, stepOf(res, StepContainers).Detail, "containerd: 4 removed")
	require.True(t, b.ran("ctr --address "+systemSocket+" --namespace k8s.io snapshots --snapshotter overlayfs delete sha256:k8s.io"))
	require.False(t, b.ran("ctr --address "+systemSocket+" --namespace moby"), "Docker sees to its own")
	require.True(t, stepOf(b.look(StepContainers), StepContainers).OK)

	b = newBench(t)
	b.containerd("moby")
	require.True(t, b.steps(StepContainers).OK)
	require.True(t, b.ran("ctr --address "+systemSocket+" --namespace moby containers delete moby-1"), "without docker nobody else does")
}

func TestAContainerdThatCannotBeAskedIsUnknown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*bench)
		says   string // "" when all is well
	}{
		"no tool":              {func(b *bench) { b.put(systemSocket, "") }, "neither ctr nor crictl is"},
		"no tool, of k3s":      {func(b *bench) { b.put("/run/k3s/containerd/containerd.sock", "") }, "neither ctr nor crictl is"},
		"docker is no witness": {func(b *bench) { b.put(systemSocket, ""); b.docker() }, "neither ctr nor crictl is"},
		"crictl is one": {func(b *bench) {
			b.put(systemSocket, "")
			b.answer["crictl"] = func([]string) (string, error) { return "", nil }
		}, ""},
		"it does not answer": {func(b *bench) {
			b.put(systemSocket, "")
			b.answer["ctr"] = func([]string) (string, error) { return "", errors.New("ctr failed: deadline exceeded") }
		}, "what it holds is unknown: ctr failed"},
		"Docker's own": {func(b *bench) { b.put("/run/docker/containerd/containerd.sock", ""); b.docker() }, ""},
		"none":         {func(*bench) {}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			c.change(b)
			for _, res := range []lifecycle.TaskResult{b.steps(StepContainers), b.look(StepContainers)} {
				step := stepOf(res, StepContainers)
				require.Equal(t, c.says == "", step.OK, step.Detail)
				require.Contains(t, step.Detail, c.says)
			}
		})
	}
}

func TestWhatAContainerdLeftThatDoesNotRunIsRemoved(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.host.Patience = 1
	b.put("/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots/1/fs/loot", "x")
	step := stepOf(b.look(StepContainers), StepContainers)
	require.False(t, step.OK)
	require.Contains(t, step.Detail, "/var/lib/containerd holds what a containerd left that does not run")
	res := b.steps(StepContainers)
	require.True(t, res.OK, res.Message)
	require.False(t, b.there("/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs"))
	require.True(t, stepOf(b.look(StepContainers), StepContainers).OK)
}

func TestParsersOfCtrFailClosed(t *testing.T) {
	t.Parallel()
	got, err := parseSnapshotters([]byte(plugins))
	require.NoError(t, err)
	require.Equal(t, []string{"overlayfs"}, got)
	for _, bad := range []string{"", "TYPE ID PLATFORMS STATUS\n", "io.containerd.snapshotter.v1 overlayfs linux/amd64 error\n"} {
		_, err := parseSnapshotters([]byte(bad))
		require.Error(t, err, bad)
	}
	keys, err := parseSnapshots([]byte("KEY                     PARENT                  KIND      \nsha256:aa                                       Committed \nbox                     sha256:aa               Active    \n"))
	require.NoError(t, err)
	require.Equal(t, []string{"sha256:aa", "box"}, keys)
	keys, err = parseSnapshots([]byte("KEY PARENT KIND\n"))
	require.NoError(t, err)
	require.Empty(t, keys)
	for _, bad := range []string{"", "sha256:aa Committed\n", "KEY PARENT KIND\nsha256:aa\n"} {
		_, err := parseSnapshots([]byte(bad))
		require.Error(t, err, bad)
	}
}
