package ssh

import (
	"context"
	_ "embed" // the scripts
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/providers"
)

const opJoin = "ssh.join"

// JoinPaths are the places on a machine that a join reads and writes. An empty one is the usual
// place.
type JoinPaths struct {
	Run        string // in memory, for join files; /run/slipway
	Kubernetes string // /etc/kubernetes
	UUIDFile   string // /sys/class/dmi/id/product_uuid
	Mark       string // names the cluster that we had the machine join; /var/lib/slipway/joined
	Kubeadm    string // kubeadm
}

// WithJoinPaths sets the places of joins, for machines that are simulated by an SSH server.
func WithJoinPaths(p JoinPaths) Option { return func(r *Runner) { r.join = p } }

var _ providers.JoinHost = (*Runner)(nil)

func (p JoinPaths) or() JoinPaths {
	for at, usual := range map[*string]string{
		&p.Run: "/run/slipway", &p.Kubernetes: "/etc/kubernetes", &p.UUIDFile: "/sys/class/dmi/id/product_uuid", &p.Mark: "/var/lib/slipway/joined",
		&p.Kubeadm: "kubeadm",
	} {
		if *at == "" {
			*at = usual
		}
	}
	return p
}

// rootFunction stands before the scripts: kubeadm and its files are root's.
const rootFunction = `root() { if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo -n "$@"; fi; }
`

var (
	//go:embed join_facts.sh
	joinFactsText string
	//go:embed join_put.sh
	joinPutText string
	//go:embed join_run.sh
	joinRunText string
)

const joinRemoveText = `root rm -rf -- "$0" || exit 1
if root test -e "$2"; then root rm -f -- "$1/bootstrap-kubelet.conf"; fi
`

func (r *Runner) joinDir(opID string) string { return path.Join(r.join.or().Run, opID) }

func (r *Runner) joinCall(ctx context.Context, t providers.MachineTarget, script string, stdin []byte, secrets []providers.Secret, args ...string) (providers.SSHResult, error) {
	return r.RunSSH(ctx, t.SSH, providers.SSHCommand{
		Argv: append([]string{"sh", "-c", rootFunction + script}, args...), Stdin: stdin, Secrets: secrets, Timeout: time.Minute,
	})
}

// JoinFacts implements providers.JoinHost.
func (r *Runner) JoinFacts(ctx context.Context, t providers.MachineTarget, opID string) (providers.JoinFacts, error) {
	p := r.join.or()
	res, err := r.joinCall(ctx, t, joinFactsText, nil, nil, r.bootIDFile, p.UUIDFile, p.Kubeadm, p.Kubernetes, p.Mark, r.joinDir(opID), path.Join(r.stateDir, opID))
	if err != nil {
		return providers.JoinFacts{}, err
	}
	var f providers.JoinFacts
	for line := range strings.Lines(string(res.Stdout)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch name {
		case "boot":
			f.BootID = value
		case "uuid":
			f.SystemUUID = value
		case "kubeadm":
			f.KubeadmVersion = value
		case "joined":
			f.Joined = true
		case "mark":
			f.JoinedBy = value
		case "file":
			f.HasFile = true
		case "begun":
			f.Begun = true
		}
	}
	if res.ExitCode != 0 || !validBootID.MatchString(f.BootID) {
		return providers.JoinFacts{}, failure(providers.KindProtocol, opJoin, nil, "the machine does not say its boot id")
	}
	return f, nil
}

// PutJoinFile implements providers.JoinHost. The content goes over standard input into a folder in
// memory, and counts when all of it has arrived.
func (r *Runner) PutJoinFile(ctx context.Context, t providers.MachineTarget, opID string, content providers.Secret) error {
	if !providers.ValidOpID(opID) {
		return failure(providers.KindInvalid, opJoin, nil, "the operation id is not valid")
	}
	raw := []byte(content.Reveal())
	res, err := r.joinCall(ctx, t, joinPutText, raw, []providers.Secret{content}, r.joinDir(opID), strconv.Itoa(len(raw)))
	switch {
	case err != nil:
		return err
	case res.ExitCode == 72:
		return failure(providers.KindUnsupported, opJoin, nil, "%s of the machine is not in memory; nothing secret is written there", r.join.or().Run)
	case res.ExitCode != 0:
		return failure(providers.KindStateConflict, opJoin, nil, "the join file could not be written below %s as root (exit status %d)", r.join.or().Run, res.ExitCode)
	}
	return nil
}

// RemoveJoinFile implements providers.JoinHost.
func (r *Runner) RemoveJoinFile(ctx context.Context, t providers.MachineTarget, opID string) error {
	if !providers.ValidOpID(opID) {
		return failure(providers.KindInvalid, opJoin, nil, "the operation id is not valid")
	}
	p := r.join.or()
	res, err := r.joinCall(ctx, t, joinRemoveText, nil, nil, r.joinDir(opID), p.Kubernetes, p.Mark)
	if err == nil && res.ExitCode != 0 {
		err = failure(providers.KindStateConflict, opJoin, nil, "the join file could not be removed (exit status %d)", res.ExitCode)
	}
	return err
}

// JoinScript implements providers.JoinHost.
func (r *Runner) JoinScript(opID, clusterRef string) string {
	p := r.join.or()
	var b strings.Builder
	for _, v := range [][2]string{{"dir", r.joinDir(opID)}, {"etc", p.Kubernetes}, {"mark", p.Mark}, {"kubeadm", p.Kubeadm}, {"cluster", clusterRef}} {
		fmt.Fprintf(&b, "%s=%s\n", v[0], quote([]string{v[1]}))
	}
	return b.String() + rootFunction + joinRunText
}
