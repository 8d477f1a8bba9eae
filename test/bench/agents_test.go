package bench_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/slipway-cloud/slipway/agent/protocol"
	"github.com/slipway-cloud/slipway/internal/nodeca"
	"github.com/slipway-cloud/slipway/test/runenv"
)

// agentPoolEnv makes the test binary run a pool of agents in a process of its own, so that their
// cost is not counted as the API's.
const agentPoolEnv = "SLIPWAY_BENCH_AGENT_POOL"

// agentPool is the configuration that the process reads from its standard input.
type agentPool struct {
	URL     string
	CA, Key []byte // of the node CA
	Nodes   []string
	Every   time.Duration // between two heartbeats of a node
}

func TestMain(m *testing.M) {
	if os.Getenv(agentPoolEnv) == "" {
		code := m.Run()
		if err := measured.write(); err != nil {
			fmt.Fprintln(os.Stderr, "figures of the benchmarks:", err)
			code = max(code, 1)
		}
		os.Exit(code)
	}
	if err := runAgentPool(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "agent pool:", err)
		os.Exit(1)
	}
}

// runAgentPool connects all agents, writes a line when they are connected, and sends heartbeats
// until its input ends.
func runAgentPool(in io.Reader, out io.Writer) error {
	dec := json.NewDecoder(in)
	var c agentPool
	if err := dec.Decode(&c); err != nil {
		return err
	}
	ca, err := nodeca.FromPEM(c.CA, c.Key)
	if err != nil {
		return err
	}
	key, err := agentKey(c.Key)
	if err != nil {
		return err
	}
	agents := make([]func(context.Context) error, len(c.Nodes))
	sem := make(chan struct{}, 32)
	failed := make(chan error, len(c.Nodes))
	for i, node := range c.Nodes {
		sem <- struct{}{}
		go func() {
			defer func() { <-sem }()
			send, err := newPoolAgent(c.URL, ca, key, node)
			if err == nil {
				err = send(context.Background())
			}
			agents[i] = send
			failed <- err
		}()
	}
	for range c.Nodes {
		if err := <-failed; err != nil {
			return err
		}
	}
	fmt.Fprintln(out, "connected")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var all sync.WaitGroup
	for i, send := range agents {
		all.Go(func() {
			select {
			case <-ctx.Done():
				return
			case <-time.After(c.Every * time.Duration(i) / time.Duration(len(agents))):
			}
			tick := time.NewTicker(c.Every)
			defer tick.Stop()
			for ctx.Err() == nil {
				if err := send(ctx); err != nil && ctx.Err() == nil {
					fmt.Fprintln(os.Stderr, "agent pool:", err)
				}
				select {
				case <-ctx.Done():
				case <-tick.C:
				}
			}
		})
	}
	_, _ = io.Copy(io.Discard, dec.Buffered())
	_, _ = io.Copy(io.Discard, in)
	cancel()
	all.Wait()
	return nil
}

// agentKey returns the key of all agents in the pool. It is the CA's key, which both processes
// have.
func agentKey(caKey []byte) (*ecdsa.PrivateKey, error) {
	blk, _ := pem.Decode(caKey)
	key, err := x509.ParsePKCS8PrivateKey(blk.Bytes)
	if err != nil {
		return nil, err
	}
	return key.(*ecdsa.PrivateKey), nil
}

// newPoolAgent returns a function that sends a heartbeat of one agent, on a connection of its own
// as a real agent has.
func newPoolAgent(url string, ca *nodeca.CA, key *ecdsa.PrivateKey, node string) (func(context.Context) error, error) {
	cert, err := ca.IssueNode(key.Public(), nodeca.Identity{NodeID: node, Generation: 1})
	if err != nil {
		return nil, err
	}
	blk, _ := pem.Decode(cert.PEM)
	tr := &http.Transport{ForceAttemptHTTP2: true, IdleConnTimeout: time.Hour, TLSClientConfig: &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: ca.Pool(), Certificates: []tls.Certificate{{Certificate: [][]byte{blk.Bytes}, PrivateKey: key}}}}
	hc := &http.Client{Transport: tr, Timeout: runenv.Patience(30 * time.Second)}
	return func(ctx context.Context) error {
		raw, err := json.Marshal(protocol.Heartbeat{BootID: "boot", AgentVersion: "1.0.0", Generation: 1, SentAt: time.Now(), UptimeSecs: 3600})
		if err != nil {
			return err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+protocol.PathHeartbeat, bytes.NewReader(raw))
		if err != nil {
			return err
		}
		res, err := hc.Do(req)
		if err != nil {
			return err
		}
		defer func() { _ = res.Body.Close() }()
		body, err := io.ReadAll(io.LimitReader(res.Body, 1<<16))
		if err == nil && res.StatusCode != http.StatusOK {
			err = fmt.Errorf("status %d: %s", res.StatusCode, body)
		}
		return err
	}, nil
}

// startAgentPool starts a pool in a process of its own and waits until all agents are connected. It
// returns a function that ends the process.
func startAgentPool(b *testing.B, c agentPool) (leave func()) {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), agentPoolEnv+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(b, err)
	out, err := cmd.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	require.NoError(b, json.NewEncoder(in).Encode(c))
	said := make([]byte, 10)
	_, err = io.ReadFull(out, said)
	require.NoError(b, err, "the connections of the agent pool")
	return func() {
		_ = in.Close()
		_, _ = io.Copy(io.Discard, out)
		require.NoError(b, cmd.Wait())
	}
}
