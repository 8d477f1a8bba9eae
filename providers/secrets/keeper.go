package secrets

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"os"

	"gocloud.dev/gcerrors"
	gcsecrets "gocloud.dev/secrets"
	"gocloud.dev/secrets/localsecrets"

	"github.com/slipway-cloud/slipway/providers"
)

// Keeper says what seals secrets.
//
// URL "base64key://" (or none) is the local keeper, whose key is in KeyFile and
// never in the URL. "hashivault://KEY", "awskms://KEY?region=R" and
// "gcpkms://projects/.../cryptoKeys/KEY" need package cloudkeepers to be linked
// in; they take their credentials from their usual environment.
type Keeper struct {
	URL     string
	KeyFile string
}

// sealer is an opened keeper and the name under which rows refer to it.
type sealer struct {
	keeper *gcsecrets.Keeper
	url    string // holds no secret
	local  bool
}

// openKeeper opens k. For the local keeper the name carries an id of the key, so
// that a wrong key file is told apart from a damaged row.
func openKeeper(ctx context.Context, k Keeper) (*sealer, error) {
	if k.URL == "" {
		k.URL = localsecrets.Scheme + "://"
	}
	u, err := url.Parse(k.URL)
	if err != nil || u.Scheme == "" || u.User != nil {
		return nil, failure(providers.KindInvalid, opOpen, nil,
			"the keeper's URL cannot be read; it must look like base64key://, hashivault://KEY, awskms://KEY or gcpkms://KEY and hold no password")
	}
	if u.Scheme == localsecrets.Scheme {
		if u.Host != "" || u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "" {
			return nil, failure(providers.KindInvalid, opOpen, nil,
				"the local keeper's URL is just base64key://; put the key into the file that secrets.key_file names")
		}
		return openLocal(k.KeyFile)
	}
	if !gcsecrets.DefaultURLMux().ValidKeeperScheme(u.Scheme) {
		return nil, failure(providers.KindInvalid, opOpen, nil,
			"this program knows no keeper of kind %q; use base64key, hashivault, awskms or gcpkms", u.Scheme)
	}
	keeper, err := gcsecrets.OpenKeeper(ctx, k.URL)
	if err != nil {
		return nil, failure(providers.KindUnavailable, opOpen, err,
			"the %s keeper cannot be opened; check its URL and the credentials in this process's environment", u.Scheme)
	}
	return &sealer{keeper: keeper, url: k.URL}, nil
}

// openPrevious opens a keeper that must exist already.
func openPrevious(ctx context.Context, k Keeper) (*sealer, error) {
	if k.KeyFile != "" {
		if _, err := os.Stat(k.KeyFile); err != nil {
			return nil, failure(providers.KindInvalid, opOpen, err,
				"cannot find the key file %s of a previous keeper; restore it or take that keeper out of the configuration", k.KeyFile)
		}
	}
	return openKeeper(ctx, k)
}

func openLocal(keyFile string) (*sealer, error) {
	key, err := loadKeyFile(keyFile)
	if err != nil {
		return nil, err
	}
	id := sha256.Sum256(append([]byte("slipway local key id\x00"), key[:]...))
	return &sealer{
		keeper: localsecrets.NewKeeper(key),
		url:    localsecrets.Scheme + "://?id=" + hex.EncodeToString(id[:8]),
		local:  true,
	}, nil
}

// keeperFailure translates an error of the keeper's service.
func keeperFailure(op string, s *sealer, err error) error {
	if s.local {
		return failure(providers.KindProtocol, op, err, "the stored secret was altered or damaged: it does not open with its own key")
	}
	switch gcerrors.Code(err) {
	case gcerrors.PermissionDenied:
		return failure(providers.KindForbidden, op, err, "the keeper does not let this process use its key; check its credentials and policy")
	case gcerrors.NotFound:
		return failure(providers.KindInvalid, op, err, "the keeper has no such key; check secrets.keeper")
	case gcerrors.InvalidArgument:
		return failure(providers.KindProtocol, op, err, "the keeper says the stored secret was altered or damaged")
	default:
		return failure(providers.KindUnavailable, op, err, "the keeper did not do its work")
	}
}
