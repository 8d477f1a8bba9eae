package agent

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/slipway-cloud/slipway/agent/atomicfile"
	"github.com/slipway-cloud/slipway/agent/protocol"
)

// The files of the state directory, all 0600. The pending files are the journal. A key is written
// there before the server first sees it, and stays until its certificate is stored. So after a
// crash or a lost answer the agent asks again with the same key. Enrolment and renewal have
// separate files: after a lost answer to a renewal, a useless token must not replace the key of
// that renewal, since another key would look like a stolen certificate.
const (
	identityFile  = "identity.json"
	pendingFile   = "pending.json"
	enrolmentFile = "pending-enrolment.json"
)

// identity is the identity of this node. Key and certificate are in one file, so that they always
// belong together. TokenSHA256 is the hash of the token with which the node enrolled.
type identity struct {
	NodeID      string `json:"node_id"`
	Generation  int64  `json:"generation"`
	Certificate string `json:"certificate_pem"`
	Key         string `json:"key_pem"`
	TokenSHA256 string `json:"token_sha256,omitempty"`
	// TaskKeys are the keys that may sign tasks, as the server named them last.
	TaskKeys []protocol.TaskKey `json:"task_keys,omitempty"`

	leaf *x509.Certificate
	pair tls.Certificate
}

// renewAt returns the time of renewal: after half of the certificate's life, and up to a twentieth
// of it later. The serial number decides how much later, so that agents that enrolled together do
// not renew together.
func (i *identity) renewAt() time.Time {
	life := i.leaf.NotAfter.Sub(i.leaf.NotBefore)
	late := new(big.Int).Mod(i.leaf.SerialNumber, big.NewInt(1000)).Int64()
	return i.leaf.NotBefore.Add(life/2 + life/20_000*time.Duration(late))
}

// pending is a key whose certificate is not stored yet. TokenSHA256 is set for
// an enrolment and empty for a renewal.
type pending struct {
	Key         string `json:"key_pem"`
	TokenSHA256 string `json:"token_sha256,omitempty"`
}

type state struct{ dir string }

func openState(dir string) (*state, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the state directory: %w", err)
	}
	return &state{dir}, nil
}

// identity loads the identity of this node, or nil when it has not enrolled.
func (s *state) identity() (*identity, error) {
	var id identity
	found, err := s.load(identityFile, &id)
	if err != nil || !found {
		return nil, err
	}
	return parseIdentity(id)
}

func parseIdentity(id identity) (*identity, error) {
	pair, err := tls.X509KeyPair([]byte(id.Certificate), []byte(id.Key))
	if err != nil {
		return nil, errors.New("certificate and key do not belong together")
	}
	id.pair, id.leaf = pair, pair.Leaf
	return &id, nil
}

// pendingKey returns the journal's key for this purpose, or makes and stores a new one. It does not
// use a key that was made for another token.
func (s *state) pendingKey(tokenSHA256 string) (*ecdsa.PrivateKey, pending, error) {
	var p pending
	file := pendingFile
	if tokenSHA256 != "" {
		file = enrolmentFile
	}
	found, err := s.load(file, &p)
	if err == nil && !found { // versions before kept both in one file
		found, err = s.load(pendingFile, &p)
	}
	if err != nil {
		return nil, p, err
	}
	if found && p.TokenSHA256 == tokenSHA256 {
		if key, err := parseKey(p.Key); err == nil {
			return key, p, nil
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, p, fmt.Errorf("make a key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, p, fmt.Errorf("encode a key: %w", err)
	}
	p = pending{Key: string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), TokenSHA256: tokenSHA256}
	return key, p, s.save(file, p)
}

func parseKey(text string) (*ecdsa.PrivateKey, error) {
	b, _ := pem.Decode([]byte(text))
	if b == nil {
		return nil, errors.New("no key")
	}
	k, err := x509.ParsePKCS8PrivateKey(b.Bytes)
	if err != nil {
		return nil, errors.New("no key")
	}
	key, ok := k.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("no ECDSA key")
	}
	return key, nil
}

// adopt stores an identity and then removes the journal, since earlier requests no longer matter.
func (s *state) adopt(id *identity) error {
	if err := s.save(identityFile, id); err != nil {
		return err
	}
	return errors.Join(remove(filepath.Join(s.dir, pendingFile)), remove(filepath.Join(s.dir, enrolmentFile)))
}

func (s *state) load(name string, into any) (bool, error) {
	raw, err := os.ReadFile(filepath.Join(s.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the agent's state: %w", err)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return false, fmt.Errorf("%s is damaged; remove it and enrol again with a new token", filepath.Join(s.dir, name))
	}
	return true, nil
}

// save replaces a whole file, and returns when it is on disk.
func (s *state) save(name string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode the agent's state: %w", err)
	}
	if err := atomicfile.Replace(filepath.Join(s.dir, name), raw, 0o600); err != nil {
		return fmt.Errorf("write the agent's state: %w", err)
	}
	return nil
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}

// readToken returns the token of a file and its SHA-256, or "" when there is none.
func readToken(path string) (text, sum string, err error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", "", nil
	}
	if err != nil {
		return "", "", fmt.Errorf("read the enrolment token: %w", err)
	}
	text = strings.TrimSpace(string(raw))
	if text == "" {
		return "", "", nil
	}
	h := sha256.Sum256([]byte(text))
	return text, hex.EncodeToString(h[:]), nil
}
