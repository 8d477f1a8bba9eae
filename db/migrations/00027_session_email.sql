-- A session of the portal knows the verified email address of its user, as a bearer token does: an
-- invitation names the address.

-- +goose Up
ALTER TABLE portal_sessions ADD COLUMN email text NOT NULL DEFAULT '' CHECK (char_length(email) <= 254);
