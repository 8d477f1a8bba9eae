package tenantaccess

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"strings"
	"time"

	"go.temporal.io/sdk/activity"
	"golang.org/x/crypto/ssh"

	"github.com/slipway-cloud/slipway/activities/agenttask"
	"github.com/slipway-cloud/slipway/activities/fault"
	"github.com/slipway-cloud/slipway/activities/login"
	"github.com/slipway-cloud/slipway/contract"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// ProveLoginIn is the input of ProveLogin.
type ProveLoginIn struct {
	contract.JobRef
	Account
	// Root is whether the account must be able to become root. Without it the account must not.
	Root bool          `json:"root"`
	Poll spec.Duration `json:"poll,omitempty"`
}

// LoginProof is what a login as the tenant showed.
type LoginProof struct {
	Connection  Connection `json:"connection"`
	UID         int        `json:"uid"`
	Root        bool       `json:"root"`
	Fingerprint string     `json:"fingerprint"` // of the one-time key
	Note        string     `json:"note,omitempty"`
}

// TimelineNote returns what the node's timeline says of the proof.
func (f LoginProof) TimelineNote() string { return f.Note }

// ActionMetadata returns what the action log says of the proof.
func (f LoginProof) ActionMetadata() lifecycle.ActionMetadata {
	host, _, _ := net.SplitHostPort(f.Connection.Address)
	return lifecycle.ActionMetadata{IPAddress: host}
}

const taskPoll = 500 * time.Millisecond

// ProveLogin logs in as the tenant will: it makes a key, has the agent put its public half, and
// nothing else, into the account, logs in with it, has it removed, and proves that the node then
// refuses it. The private half never leaves this process and is in no history.
//
// The tenant's own keys must not be on the node yet, since the account has none afterwards. A
// repetition begins again with another key: it first withdraws, or waits for, what the job asked
// the agent before, so that no older set of keys comes after it. The stage's deadline bounds it.
func (a *Activities) ProveLogin(ctx context.Context, in ProveLoginIn) (LoginProof, error) {
	t, to, err := a.target(ctx, in.JobRef, in.Account)
	if err != nil {
		return LoginProof{}, err
	}
	if err := a.settleTasks(ctx, in); err != nil {
		return LoginProof{}, err
	}
	private, public, err := newOneTimeKey()
	if err != nil {
		return LoginProof{}, fault.Internal(ctx, err)
	}
	out := LoginProof{Connection: to, Root: in.Root}
	if out.Fingerprint, err = fingerprint(public); err != nil {
		return out, fault.Internal(ctx, err)
	}
	t.PrivateKeyPEM = private
	if err := a.setKeys(ctx, in, out.Fingerprint+"/install", []string{public}); err != nil {
		return out, err
	}
	out.UID, err = a.logIn(ctx, in, t, to)
	if ctx.Err() != nil {
		return out, ctx.Err() // the next try begins by replacing the key
	}
	if removal := a.setKeys(ctx, in, out.Fingerprint+"/remove", nil); removal != nil {
		return out, keyStays(err, removal)
	}
	if err != nil {
		return out, err
	}
	accepted, err := a.SSH.OfferKey(ctx, t, public)
	switch {
	case err != nil:
		return out, fault.SSH(ctx, err)
	case accepted:
		return out, fault.New(lifecycle.FailNodeTask, "the agent reports that the one-time key %s is removed, and the node still accepts it", out.Fingerprint)
	}
	out.Note = fmt.Sprintf("a login as %s showed uid %d; its one-time key is refused again", to.User, out.UID)
	return out, nil
}

// keyStays returns the failure of a removal, and of what failed before it, as one that has a class.
func keyStays(before, removal error) error {
	first, failed := fault.Failure(before)
	second, typed := fault.Failure(removal)
	if !failed || !typed {
		return removal
	}
	return fault.New(first.Class, "%s; and its one-time key could not be removed: %s", first.Message, second.Message)
}

// logIn logs in with the one-time key and compares what the account may with what it should.
func (a *Activities) logIn(ctx context.Context, in ProveLoginIn, t providers.SSHTarget, to Connection) (int, error) {
	attempt := a.attempt(in.JobRef, to)
	if err := attempt.Record(ctx, a.Store, login.Started); err != nil {
		return 0, err
	}
	uid, err := a.SSH.Login(ctx, t)
	attempt.Recorder(a.Store)(ctx, err)
	if err != nil {
		return 0, fault.SSH(ctx, err)
	}
	if uid == 0 {
		return 0, fault.New(lifecycle.FailNodeTask, "account %s has the uid of root", t.User)
	}
	res, err := a.SSH.RunSSH(ctx, t, providers.SSHCommand{Argv: []string{"sudo", "-n", "id", "-u"}})
	if err != nil {
		return uid, fault.SSH(ctx, err)
	}
	if root := res.ExitCode == 0 && strings.TrimSpace(string(res.Stdout)) == "0"; root != in.Root {
		words := map[bool]string{true: "becomes root and must not", false: "cannot become root by sudo and should"}
		return uid, fault.New(lifecycle.FailNodeTask, "account %s %s", t.User, words[root])
	}
	return uid, nil
}

func newOneTimeKey() (private providers.Secret, public string, err error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return private, "", err
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		return private, "", err
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		return private, "", err
	}
	public = strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey())))
	return providers.NewSecret(string(pem.EncodeToMemory(block))), public, nil
}

// settleTasks withdraws what the job asked the agent before and no agent has taken, and waits for
// the rest.
func (a *Activities) settleTasks(ctx context.Context, in ProveLoginIn) error {
	return fault.Internal(ctx, fault.PollStore(ctx, pollOr(in.Poll, taskPoll), func() (bool, error) {
		var revoked db.TasksRevoked
		err := a.Store.Tx(ctx, func(tx *db.Tx) error {
			var err error
			revoked, err = tx.RevokeTasks(ctx, in.JobID, actor(ctx, in.JobID))
			return err
		})
		for _, t := range revoked.Left {
			if t.Status == lifecycle.TaskDispatched {
				return false, err
			}
		}
		return err == nil, err
	}))
}

// setKeys has the agent set the keys of the account, and waits for it.
func (a *Activities) setKeys(ctx context.Context, in ProveLoginIn, key string, keys []string) error {
	args, err := json.Marshal(spec.SetKeysArgs{AllocationID: in.AllocationID, User: lifecycle.TenantAccount(in.AllocationID), Keys: keys})
	if err != nil {
		return fault.Internal(ctx, err)
	}
	ask := db.NewTask{NodeID: in.NodeID, JobID: in.JobID, Kind: lifecycle.TaskKindSetKeys, Args: args,
		Key: in.JobID + "/" + in.Stage + "/" + key, Actor: actor(ctx, in.JobID)}
	asked := false
	var t db.NodeTask
	err = fault.PollStore(ctx, pollOr(in.Poll, taskPoll), func() (bool, error) {
		if !asked {
			if err := a.Store.Tx(ctx, func(tx *db.Tx) error {
				if err := tx.RequireJobAtWork(ctx, in.JobID, false, in.Pass); err != nil {
					return err
				}
				_, _, err := tx.EnqueueTask(ctx, ask)
				return err
			}); err != nil {
				return false, err
			}
			asked = true
		}
		var err error
		t, err = a.Store.TaskByKey(ctx, in.NodeID, ask.Key)
		return err == nil && (lifecycle.NodeTask.Terminal(t.Status) || t.Status == lifecycle.TaskUncertain), err
	})
	if err != nil {
		return fault.Internal(ctx, err)
	}
	_, err = agenttask.Outcome(t)
	return err
}

func actor(ctx context.Context, jobID string) db.Actor {
	by := db.Actor{Owner: lifecycle.OwnerJob, ID: jobID}
	if activity.IsActivity(ctx) {
		by.ID = activity.GetInfo(ctx).WorkflowExecution.ID
		by.WorkflowID = by.ID
	}
	return by
}
