-- A signing key for the actions that the API passes on to jobs. The audit row of an action that was proven holds its nonce, so that a copy is known as one.

-- +goose Up
ALTER TABLE signing_keys DROP CONSTRAINT signing_keys_purpose_check;
ALTER TABLE signing_keys ADD CONSTRAINT signing_keys_purpose_check CHECK (purpose IN ('task', 'certificate', 'action'));

-- +goose Down
DELETE FROM signing_keys WHERE purpose = 'action';
ALTER TABLE signing_keys DROP CONSTRAINT signing_keys_purpose_check;
ALTER TABLE signing_keys ADD CONSTRAINT signing_keys_purpose_check CHECK (purpose IN ('task', 'certificate'));
