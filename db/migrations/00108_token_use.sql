-- When a token was last used. It is written at most once in some minutes, behind the requests.

-- +goose Up
ALTER TABLE api_tokens ADD COLUMN last_used_at timestamptz;
ALTER TABLE project_tokens ADD COLUMN last_used_at timestamptz;

-- +goose Down
ALTER TABLE project_tokens DROP COLUMN last_used_at;
ALTER TABLE api_tokens DROP COLUMN last_used_at;
