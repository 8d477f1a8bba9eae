package pg

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// EnsureLogin makes the user name, who may log in and is a member of role, unless it is there. It
// is safe to call from several processes at once. Every process that knows the server's own
// password computes the same password for the user; where the server asks for none, the user has
// none.
func (s *Server) EnsureLogin(ctx context.Context, name, role string) error {
	conn, err := pgx.Connect(ctx, s.adminDSN())
	if err != nil {
		return fmt.Errorf("create the login %s: %w", name, err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var member bool
	const find = `SELECT coalesce((SELECT pg_has_role(r.oid, $2, 'MEMBER') FROM pg_roles r WHERE r.rolname = $1), false)`
	if err := conn.QueryRow(ctx, find, name, role).Scan(&member); err != nil {
		return fmt.Errorf("look for the login %s: %w", name, err)
	}
	login := pgx.Identifier{name}.Sanitize()
	if !member {
		_, err := conn.Exec(ctx, "CREATE ROLE "+login+" LOGIN "+s.passwordClause(name)+" IN ROLE "+pgx.Identifier{role}.Sanitize())
		var refused *pgconn.PgError
		if errors.As(err, &refused) && (refused.Code == "42710" || refused.Code == "23505") { // another process was faster
			err = nil
		}
		if err != nil {
			return fmt.Errorf("create the login %s: %w", name, err)
		}
	}
	dsn, err := s.LoginDSN("postgres", name)
	if err != nil {
		return err
	}
	var refused *pgconn.PgError
	if err := ping(ctx, dsn); errors.As(err, &refused) && refused.Code == "28P01" { // the server's own password has changed
		_, err = conn.Exec(ctx, "ALTER ROLE "+login+" "+s.passwordClause(name))
		return err
	} else if err != nil {
		return fmt.Errorf("log in as %s: %w", name, err)
	}
	return nil
}

// LoginDSN returns the connection URL of the named database for a user of EnsureLogin.
func (s *Server) LoginDSN(database, name string) (string, error) {
	dsn, password := s.DSN(database), s.loginPassword(name)
	if !strings.HasPrefix(dsn, "postgres://") && !strings.HasPrefix(dsn, "postgresql://") {
		dsn += " user=" + name // in a key=value string the last one counts
		if password != "" {
			dsn += " password=" + password
		}
		return dsn, nil
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return "", errors.New("the PostgreSQL address is not a URL")
	}
	q := u.Query()
	q.Del("user")
	q.Del("password")
	u.RawQuery, u.User = q.Encode(), url.User(name)
	if password != "" {
		u.User = url.UserPassword(name, password)
	}
	return u.String(), nil
}

func (s *Server) adminDSN() string {
	if s.external != "" {
		return s.external
	}
	return s.DSN("postgres")
}

// loginPassword is empty when the server's own is.
func (s *Server) loginPassword(name string) string {
	cfg, err := pgx.ParseConfig(s.adminDSN())
	if err != nil || cfg.Password == "" {
		return ""
	}
	mac := hmac.New(sha256.New, []byte(cfg.Password))
	_, _ = mac.Write([]byte("login: " + name))
	return hex.EncodeToString(mac.Sum(nil))
}

func (s *Server) passwordClause(name string) string {
	if p := s.loginPassword(name); p != "" {
		return "PASSWORD '" + p + "'"
	}
	return "PASSWORD NULL"
}
