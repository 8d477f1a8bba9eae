package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/slipway-cloud/slipway/api/op"
	"github.com/slipway-cloud/slipway/api/problem"
	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/lifecycle/spec"
	"github.com/slipway-cloud/slipway/providers"
)

// Secret is what may be known of a stored secret: never its value.
type Secret struct {
	Name      string `json:"name"`
	Version   int    `json:"version" doc:"The newest version, or the one that was stored now"`
	Reference string `json:"reference" doc:"name@version: what other resources refer to; the name alone means the newest"`
}

// StoredSecret is a secret in the list.
type StoredSecret struct {
	Secret
	Versions      int       `json:"versions" doc:"How many versions are kept"`
	FirstStoredAt time.Time `json:"first_stored_at"`
	StoredAt      time.Time `json:"stored_at" doc:"When the newest version was"`
	// Use is nil where nobody has stated it.
	Use *spec.SecretUse `json:"use,omitempty" doc:"What it may be used for; without it the secret cannot be used"`
}

// SecretUseRequest states what a secret may be used for.
type SecretUseRequest struct {
	Name string         `json:"name" required:"true" maxLength:"200" pattern:"^[a-z0-9][a-z0-9_.-]*(/[a-z0-9][a-z0-9_.-]*)*$" doc:"1 to 200 of a-z 0-9 / _ . -"`
	Use  spec.SecretUse `json:"use" required:"true" doc:"What the secret may be used for: its kind, and the sites, nodes or networks that may receive it"`
}

// SecretRequest stores a value.
type SecretRequest struct {
	SecretUseRequest
	Value string `json:"value" required:"true" minLength:"1" maxLength:"65536" text:"any" writeOnly:"true" doc:"At most 64 KiB; a login is {\"username\": ..., \"password\": ...} as text"`
}

func (s *server) registerSecrets() {
	tags := []string{"secrets"}
	op.Add(s.api, huma.Operation{
		OperationID: "put-secret", Method: http.MethodPut, Path: "/admin/secrets", Tags: tags, Summary: "Store a new version of a secret",
		Description: "Storing the value that is newest already gives its version again. The value is sealed and never answered.",
	}, s.putSecret)
	op.Add(s.api, huma.Operation{
		OperationID: "put-secret-use", Method: http.MethodPut, Path: "/admin/secret-uses", Tags: tags, Summary: "State what a stored secret may be used for",
		Description: "Replaces the use that was stated before. The value stays as it is.",
	}, s.putSecretUse)
	op.Add(s.api, huma.Operation{
		OperationID: "get-secret", Method: http.MethodGet, Path: "/admin/secrets", Tags: tags, Summary: "Read what may be known of a secret: its newest version",
	}, s.getSecret)
	op.Add(s.api, huma.Operation{
		OperationID: "list-secrets", Method: http.MethodGet, Path: "/admin/secret-names", Tags: tags, Summary: "List secrets by name, never their values",
		Description: "Those that Slipway made itself, such as logins of rotated BMCs, are among them.",
	}, s.listSecrets)
}

func (s *server) listSecrets(ctx context.Context, in *struct {
	op.Page
	Prefix string `query:"prefix" maxLength:"200" doc:"Only names that begin with this"`
}) (*op.Listed[StoredSecret], error) {
	after, err := in.After()
	if err != nil {
		return nil, err
	}
	rows, err := s.store.ListSecrets(ctx, in.Prefix, after, in.Limit+1)
	if err != nil {
		return nil, err
	}
	return op.Paged(rows, in.Limit, func(r db.StoredSecret) string { return r.Name }, func(r db.StoredSecret) StoredSecret {
		return StoredSecret{
			Secret{r.Name, r.Version, r.Name + "@" + strconv.Itoa(r.Version)}, r.Versions, r.FirstStoredAt.UTC(), r.StoredAt.UTC(), useView(r.Use),
		}
	}), nil
}

// useView returns a stored use, nil for none.
func useView(raw json.RawMessage) *spec.SecretUse {
	var use spec.SecretUse
	if json.Unmarshal(raw, &use) != nil || use.Kind == "" {
		return nil
	}
	return &use
}

// checkSecret checks what a request says of a secret. Only slipwayd itself may store its own
// secrets: a value of another origin would stop its processes at their next start, or sign and
// encrypt for whoever knows it.
func (s *server) checkSecret(in SecretUseRequest) error {
	if spec.IsInternalSecret(in.Name) || in.Name == s.cfg.NodeCARef {
		return problem.NewInvalid(problem.Field{Location: "body.name", Message: "is a key that slipwayd makes and rotates itself, as are all names that begin with " + spec.ReservedSecrets + "; choose another name"})
	}
	if !spec.ValidRef(in.Name) || strings.Contains(in.Name, "@") {
		return problem.NewInvalid(problem.Field{Location: "body.name", Message: "must be 1 to 200 of a-z 0-9 / _ . -, beginning with a letter or digit"})
	}
	return op.PrefixFieldErrors("body.use", in.Use.Validate())
}

// stateUse stores what a secret may be used for, with its audit row.
func stateUse(ctx context.Context, tx *db.Tx, in SecretUseRequest) error {
	for i, id := range in.Use.Sites {
		if _, err := tx.Site(ctx, id); err != nil {
			return unknownTarget(err, fmt.Sprintf("body.use.sites[%d]", i), "site")
		}
	}
	for i, id := range in.Use.Nodes {
		if _, err := tx.Node(ctx, id); err != nil {
			return unknownTarget(err, fmt.Sprintf("body.use.nodes[%d]", i), "node")
		}
	}
	old, _, err := tx.SecretUse(ctx, in.Name)
	if err != nil {
		return err
	}
	changed, err := tx.SetSecretUse(ctx, in.Name, in.Use)
	if err != nil || !changed {
		return err
	}
	return op.Audit(ctx, tx, "secret", in.Name, nil, "state_use", map[string]any{"use": in.Use, "old_use": old})
}

func unknownTarget(err error, location, what string) error {
	if errors.Is(err, db.ErrNotFound) {
		return problem.NewInvalid(problem.Field{Location: location, Message: "there is no such " + what})
	}
	return err
}

func (s *server) putSecretUse(ctx context.Context, in *struct{ Body SecretUseRequest }) (*struct{ Body SecretUseRequest }, error) {
	_, _, _, found, err := s.store.SecretVersion(ctx, in.Body.Name, 0)
	if err == nil && !found {
		err = problem.New(problem.NotFound, "there is no secret "+in.Body.Name+"; put it first")
	}
	if err == nil {
		err = s.checkSecret(in.Body)
	}
	if err == nil {
		err = s.store.Tx(ctx, func(tx *db.Tx) error { return stateUse(ctx, tx, in.Body) })
	}
	return &struct{ Body SecretUseRequest }{in.Body}, err
}

func (s *server) putSecret(ctx context.Context, in *struct{ Body SecretRequest }) (*struct{ Body Secret }, error) {
	if _, ok := providers.ParseLogin(providers.NewSecret(in.Body.Value)); !ok && in.Body.Use.Kind == spec.SecretBMCLogin {
		return nil, problem.NewInvalid(problem.Field{
			Location: "body.value", Message: `is no login of a BMC; it must be the text {"username": "...", "password": "..."}`,
		})
	}
	if err := s.checkSecret(in.Body.SecretUseRequest); err != nil {
		return nil, err
	}
	for range putAttempts {
		version, err := s.storeSecret(ctx, in.Body)
		if err != nil {
			return nil, err
		}
		if version > 0 {
			return &struct{ Body Secret }{Secret{in.Body.Name, version, in.Body.Name + "@" + strconv.Itoa(version)}}, nil
		}
	}
	return nil, problem.New(problem.Conflict, "the secret is being deleted and put at the same time; put it again")
}

// putAttempts bounds the attempts to store a secret that is deleted at the same time.
const putAttempts = 3

// errDeleted: the secret was deleted after its value was sealed, which would not open.
var errDeleted = errors.New("the secret was deleted")

// storeSecret stores a value, its use and their audit rows in one transaction, and returns the
// version, 0 where the secret was deleted meanwhile. The keeper seals the value before the
// transaction begins.
func (s *server) storeSecret(ctx context.Context, in SecretRequest) (version int, err error) {
	sealed, err := s.cfg.Secrets.Seal(ctx, in.Name, providers.NewSecret(in.Value))
	if err != nil {
		return 0, err
	}
	err = s.store.Tx(ctx, func(tx *db.Tx) (err error) {
		if err := stateUse(ctx, tx, in.SecretUseRequest); err != nil {
			return err
		}
		version = sealed.Newest
		if !sealed.IsStored {
			if version, err = tx.PutSecretVersion(ctx, in.Name, sealed.KeeperURL, sealed.Ciphertext, sealed.Fingerprint); err != nil {
				return err
			}
			if version <= sealed.Newest {
				return errDeleted
			}
		}
		return op.Audit(ctx, tx, "secret", in.Name, nil, "put", map[string]any{"version": version})
	})
	if errors.Is(err, errDeleted) {
		return 0, nil
	}
	return version, err
}

func (s *server) getSecret(ctx context.Context, in *struct {
	Name string `query:"name" maxLength:"200" required:"true"`
}) (*struct{ Body Secret }, error) {
	if !spec.ValidRef(in.Name) || strings.Contains(in.Name, "@") {
		return nil, problem.NewInvalid(problem.Field{Location: "query.name", Message: "is not a secret's name, or one that begins with " + spec.ReservedSecrets + ", which are slipwayd's own"})
	}
	version, _, _, found, err := s.store.SecretVersion(ctx, in.Name, 0)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, problem.New(problem.NotFound, "there is no secret "+in.Name+"; put it first")
	}
	return &struct{ Body Secret }{Secret{in.Name, version, in.Name + "@" + strconv.Itoa(version)}}, nil
}
