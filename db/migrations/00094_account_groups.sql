-- A group of the identity provider belongs to one billing account. An operator says so: the owner of a project cannot, since nobody of the group consents.

-- +goose Up
CREATE TABLE billing_account_groups (
    group_name         text PRIMARY KEY CHECK (group_name <> '' AND char_length(group_name) <= 200),
    billing_account_id text NOT NULL REFERENCES billing_accounts (id) ON DELETE CASCADE,
    created_at         timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX billing_account_groups_by_account ON billing_account_groups (billing_account_id, group_name);

-- +goose Down
DROP TABLE billing_account_groups;
