-- Sessions of the portal keep the groups that the identity provider named, which may have roles in projects. A sign-in at the provider
-- keeps the session that it replaces.

-- +goose Up
ALTER TABLE portal_sessions ADD COLUMN groups text[] NOT NULL DEFAULT '{}'
    CHECK (cardinality(groups) <= 200 AND char_length(array_to_string(groups, '')) <= 200 * 200);

-- It names no row: the session may end before the sign-in does, and ids are never used twice.
ALTER TABLE portal_sign_ins ADD COLUMN replaces text NOT NULL DEFAULT '' CHECK (char_length(replaces) <= 100);

-- +goose Down
ALTER TABLE portal_sign_ins DROP COLUMN replaces;
ALTER TABLE portal_sessions DROP COLUMN groups;
