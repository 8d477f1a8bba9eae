// Package portal stores the sessions of the operator portal and the sign-ins at an identity
// provider that have begun. It holds hashes of cookies and tokens, never their text. All times are
// compared with the clock of the database. It is a package below db, so the first argument after
// the context says how a function commits.
package portal

import (
	"context"
	"errors"
	"time"

	"github.com/slipway-cloud/slipway/db"
	"github.com/slipway-cloud/slipway/db/portal/gen"
)

func queries(c db.Conn) *gen.Queries { return gen.New(c.DBTX()) }

// The methods of sign-in.
const (
	MethodOIDC  = "oidc"
	MethodToken = "token"
)

// StepUpFor is how long a second sign-in counts.
const StepUpFor = 10 * time.Minute

// maxSessions bounds the live sessions of one principal; a further sign-in ends the oldest.
const maxSessions = 10

// maxAgent bounds what is kept of the browser's own name.
const maxAgent = 200

// Session is a session as stored.
type Session = gen.PortalSession

// Live is a live session with what holds now. Roles are those of its token, where it has one.
// IsPrevious: the cookie was replaced less than 30 seconds ago. IsStale: nobody has used it for a
// minute.
type Live = gen.SessionByHashRow

// Now is who a live session speaks for.
type Now = gen.SessionByIDRow

// New is a session that begins. TokenID is of a session that an API token began; Groups, Email,
// Issuer, Subject and Sid are of one that an identity provider began.
type New struct {
	Hash      []byte
	Method    string
	Principal string
	Name      string
	Roles     []string
	Groups    []string
	Email     string // "" unless the identity provider has verified it
	TokenID   string
	Issuer    string
	Subject   string
	Sid       string
	AuthTime  time.Time
	UserAgent string
	Idle      time.Duration
	Max       time.Duration
}

// Begin stores a session and returns its id. It ends the oldest sessions of the principal when
// there are too many.
func Begin(ctx context.Context, tx *db.Tx, n New) (string, error) {
	id := db.NewID("ses")
	now, err := tx.Clock(ctx)
	if err != nil {
		return "", err
	}
	p := gen.InsertSessionParams{
		ID: id, Hash: n.Hash, Method: n.Method, Principal: n.Principal, Name: n.Name, Roles: db.EmptyIfNil(n.Roles), Groups: db.EmptyIfNil(n.Groups), Email: n.Email,
		Issuer: n.Issuer, Subject: n.Subject, Sid: n.Sid, IdleSeconds: min(n.Idle, n.Max).Seconds(), MaxSeconds: n.Max.Seconds(),
		AuthTime: earlier(n.AuthTime, now), UserAgent: db.ClipText(n.UserAgent, maxAgent-1),
	}
	if n.TokenID != "" {
		p.TokenID = &n.TokenID
	}
	if err := queries(tx).InsertSession(ctx, p); err != nil {
		return "", db.MapError("session of "+n.Principal, err)
	}
	_, err = queries(tx).TrimSessions(ctx, gen.TrimSessionsParams{Principal: n.Principal, Keep: maxSessions})
	return id, db.MapError("end the oldest sessions of "+n.Principal, err)
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || a.After(b) {
		return b
	}
	return a
}

// Find returns the live session of a cookie, or db.ErrNotFound.
func Find(ctx context.Context, c db.Conn, hash []byte) (Live, error) {
	row, err := queries(c).SessionByHash(ctx, gen.SessionByHashParams{Hash: hash, StepUpSeconds: StepUpFor.Seconds()})
	return row, db.MapError("session", err)
}

// FindByID returns who a live session speaks for now, or db.ErrNotFound.
func FindByID(ctx context.Context, c db.Conn, id string) (Now, error) {
	row, err := queries(c).SessionByID(ctx, id)
	return row, db.MapError("session "+id, err)
}

// Touch moves the idle end of a session. It writes at most once a minute.
func Touch(ctx context.Context, c db.Conn, id string, idle time.Duration) error {
	return db.MapError("session "+id, queries(c).TouchSession(ctx, gen.TouchSessionParams{ID: id, IdleSeconds: idle.Seconds()}))
}

// Rotate gives a session a new cookie and its present roles. It returns false when another request
// has done so.
func Rotate(ctx context.Context, c db.Conn, s Live, newHash []byte) (bool, error) {
	n, err := queries(c).RotateSession(ctx, gen.RotateSessionParams{
		ID: s.PortalSession.ID, OldHash: s.PortalSession.Hash, NewHash: newHash, Roles: db.EmptyIfNil(s.RolesNow),
	})
	return n == 1, db.MapError("session "+s.PortalSession.ID, err)
}

// StepUp records a second sign-in of the session's principal and gives the session a new cookie.
// It returns db.ErrNotFound when the session has ended or is another principal's.
func StepUp(ctx context.Context, tx *db.Tx, id string, by New) error {
	now, err := tx.Clock(ctx)
	if err != nil {
		return err
	}
	n, err := queries(tx).StepUpSession(ctx, gen.StepUpSessionParams{
		ID: id, Principal: by.Principal, Name: by.Name, NewHash: by.Hash, Roles: db.EmptyIfNil(by.Roles), Groups: db.EmptyIfNil(by.Groups), Email: by.Email,
		AuthTime: earlier(by.AuthTime, now), StepUpSeconds: StepUpFor.Seconds(), Sid: by.Sid,
	})
	if err == nil && n == 0 {
		err = db.ErrNotFound
	}
	return db.MapError("session "+id, err)
}

// End ends a session. It returns false when there is none.
func End(ctx context.Context, c db.Conn, id string) (bool, error) {
	n, err := queries(c).EndSession(ctx, id)
	return n == 1, db.MapError("session "+id, err)
}

// Ended is a session that a provider's logout ended.
type Ended = gen.EndSessionsOfProviderRow

// EndByProvider ends the sessions of a session at the provider, or without a sid all of the
// subject. jti is the hash of the logout's own id: one that was seen before ends nothing and
// returns false.
func EndByProvider(ctx context.Context, tx *db.Tx, issuer, subject, sid string, jti []byte, until time.Time) ([]Ended, bool, error) {
	n, err := queries(tx).InsertLogout(ctx, gen.InsertLogoutParams{Hash: jti, ExpiresAt: until})
	if err != nil || n == 0 {
		return nil, false, db.MapError("logout of "+issuer, err)
	}
	rows, err := queries(tx).EndSessionsOfProvider(ctx, gen.EndSessionsOfProviderParams{Issuer: issuer, Subject: subject, Sid: sid})
	return rows, true, db.MapError("logout of "+issuer, err)
}

// EndAll ends all sessions, and all sign-ins that have begun.
func EndAll(ctx context.Context, tx *db.Tx) ([]gen.EndAllSessionsRow, error) {
	rows, err := queries(tx).EndAllSessions(ctx)
	return rows, db.MapError("end all sessions", err)
}

// SignIn is a sign-in at the provider that has begun. StepUp is the session that it is a second
// sign-in of, Replaces the session that the browser had when it began; each is "" when there is
// none.
type SignIn struct {
	ReturnTo, StepUp, Replaces string
}

// BeginSignIn stores that a sign-in at the provider has begun.
func BeginSignIn(ctx context.Context, c db.Conn, hash []byte, s SignIn) error {
	p := gen.InsertSignInParams{Hash: hash, ReturnTo: s.ReturnTo, Replaces: s.Replaces}
	if s.StepUp != "" {
		p.SessionID = &s.StepUp
	}
	return db.MapError("sign-in", queries(c).InsertSignIn(ctx, p))
}

// TakeSignIn returns a sign-in that has begun and forgets it, so that it counts once. It returns
// db.ErrNotFound when there is none, or it is more than ten minutes old.
func TakeSignIn(ctx context.Context, c db.Conn, hash []byte) (SignIn, error) {
	row, err := queries(c).TakeSignIn(ctx, hash)
	if err != nil {
		return SignIn{}, db.MapError("sign-in", err)
	}
	if !row.IsLive {
		return SignIn{}, db.MapError("sign-in", db.ErrNotFound)
	}
	s := SignIn{ReturnTo: row.ReturnTo, Replaces: row.Replaces}
	if row.SessionID != nil {
		s.StepUp = *row.SessionID
	}
	return s, nil
}

// Prune deletes a batch of what has ended, and returns how many rows.
func Prune(ctx context.Context, c db.Conn) (int64, error) {
	q := queries(c)
	var all int64
	var failed []error
	for _, prune := range []func(context.Context, int32) (int64, error){q.PruneSessions, q.PruneSignIns, q.PruneLogouts} {
		n, err := prune(ctx, db.PruneBatch)
		all += n
		failed = append(failed, db.MapError("prune sessions of the portal", err))
	}
	return all, errors.Join(failed...)
}
