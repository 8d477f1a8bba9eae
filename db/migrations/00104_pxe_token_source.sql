-- Where the script was fetched that handed a boot token out. A node keeps tokens of each source, so that whoever fetches its script over and over
-- drops tokens of his own alone.

-- +goose Up
ALTER TABLE pxe_tokens ADD COLUMN source text NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE pxe_tokens DROP COLUMN source;
