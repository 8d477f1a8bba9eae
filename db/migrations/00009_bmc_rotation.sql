-- One way in to a BMC (who logs in now, what the tries came to) and the two slots of a login that is being rotated. References only, never values.

-- +goose Up
ALTER TABLE bmcs
    ADD COLUMN login_by          text NOT NULL DEFAULT '',  -- the job that logs in now; only it may
    ADD COLUMN login_until       timestamptz,               -- a job that died holds the way in no longer than this
    ADD COLUMN login_try_at      timestamptz,
    ADD COLUMN wrong_logins      integer NOT NULL DEFAULT 0 CHECK (wrong_logins >= 0), -- rejected by the BMC
    ADD COLUMN open_logins       integer NOT NULL DEFAULT 0 CHECK (open_logins >= 0),  -- begun, and nobody knows how they ended
    ADD COLUMN lockout_threshold integer,                   -- as the BMC tells; NULL is unknown, 0 is no lockout
    ADD COLUMN lockout_window_s  integer,
    ADD COLUMN candidate_ref     text NOT NULL DEFAULT '',  -- the login that is being rotated to
    ADD COLUMN rotation_state    text NOT NULL DEFAULT ''
        CHECK (rotation_state IN ('', 'prepared', 'applying', 'applied', 'verified')),
    ADD COLUMN previous_ref      text NOT NULL DEFAULT '',  -- kept one generation
    ADD COLUMN rotated_at        timestamptz,
    ADD CONSTRAINT bmcs_slots CHECK ((candidate_ref = '') = (rotation_state = ''));

CREATE TABLE bmc_rotations (
    id          text PRIMARY KEY CHECK (id LIKE 'rot\_%'),
    bmc_id      text NOT NULL REFERENCES bmcs (id),
    job_id      text NOT NULL,
    started_at  timestamptz NOT NULL DEFAULT now(),
    finished_at timestamptz,
    outcome     text NOT NULL DEFAULT '' CHECK (outcome IN ('', 'rotated', 'undone')),
    from_ref    text NOT NULL,
    to_ref      text NOT NULL DEFAULT '',
    message     text NOT NULL DEFAULT '',
    purged_at   timestamptz, -- the secret that this rotation made is deleted
    CHECK ((finished_at IS NULL) = (outcome = ''))
);
CREATE UNIQUE INDEX bmc_rotations_one_open ON bmc_rotations (bmc_id) WHERE finished_at IS NULL;
CREATE INDEX bmc_rotations_by_bmc ON bmc_rotations (bmc_id, id DESC);

-- +goose Down
DROP TABLE bmc_rotations;
ALTER TABLE bmcs
    DROP COLUMN login_by, DROP COLUMN login_until, DROP COLUMN login_try_at, DROP COLUMN wrong_logins, DROP COLUMN open_logins,
    DROP COLUMN lockout_threshold, DROP COLUMN lockout_window_s, DROP COLUMN candidate_ref, DROP COLUMN rotation_state,
    DROP COLUMN previous_ref, DROP COLUMN rotated_at;
