-- What the sweeper prunes of invitations; a pending one that is overdue has ended too.

-- +goose Up
CREATE INDEX project_invitations_ended ON project_invitations ((coalesce(ended_at, expires_at)));

-- +goose Down
DROP INDEX project_invitations_ended;
