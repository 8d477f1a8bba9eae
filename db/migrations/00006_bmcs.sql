-- BMCs: who logs in to a BMC now, the outcome of earlier logins, and the two slots of a login that
-- is being rotated. Logins are references, never values. After a restore the stored logins may be
-- older than their last rotation; docs/operations.md says what follows.

-- +goose Up
CREATE TABLE bmcs (
    id                  text PRIMARY KEY CHECK (id LIKE 'bmc\_%'),
    node_id             text CONSTRAINT bmcs_node_unique UNIQUE REFERENCES nodes (id),
    address             text NOT NULL CHECK (address <> ''),
    protocol            text NOT NULL CHECK (protocol IN ('redfish', 'ipmi')),
    credential_ref      text NOT NULL CHECK (credential_ref <> ''),
    pin_sha256          text NOT NULL DEFAULT '',
    pin_pending         text NOT NULL DEFAULT '', -- seen on the wire, waits for approval
    vendor              text NOT NULL DEFAULT '',
    system_id           text NOT NULL DEFAULT '',
    auth_blocked_at     timestamptz,
    auth_blocked_reason text NOT NULL DEFAULT '',
    version             bigint NOT NULL DEFAULT 1,
    created_at          timestamptz NOT NULL DEFAULT now(),
    updated_at          timestamptz NOT NULL DEFAULT now(),
    login_by            text NOT NULL DEFAULT '', -- the job that logs in now; only it may
    login_until         timestamptz, -- a job that died holds the way in no longer than this
    login_try_at        timestamptz,
    wrong_logins        integer NOT NULL DEFAULT 0 CHECK (wrong_logins >= 0), -- rejected by the BMC
    -- begun, and nobody knows how they ended
    open_logins         integer NOT NULL DEFAULT 0 CHECK (open_logins >= 0),
    lockout_threshold   integer, -- as the BMC tells; NULL is unknown, 0 is no lockout
    lockout_window_s    integer,
    candidate_ref       text NOT NULL DEFAULT '', -- the login that is being rotated to
    rotation_state      text NOT NULL DEFAULT '' CHECK (rotation_state IN ('', 'prepared', 'applying', 'applied', 'verified')),
    previous_ref        text NOT NULL DEFAULT '', -- kept one generation
    rotated_at          timestamptz,
    -- Which cipher suite a BMC is spoken to with over IPMI. 3 is for a device that has nothing
    -- better; there is no automatic choice.
    ipmi_cipher_suite   integer NOT NULL DEFAULT 17 CHECK (ipmi_cipher_suite IN (3, 17)),
    CHECK ((auth_blocked_at IS NULL) = (auth_blocked_reason = '')),
    CONSTRAINT bmcs_slots CHECK ((candidate_ref = '') = (rotation_state = ''))
);
CREATE INDEX bmcs_by_address ON bmcs (address);
CREATE INDEX bmcs_login_blocked ON bmcs (id) WHERE auth_blocked_at IS NOT NULL;
CREATE INDEX bmcs_pin_pending ON bmcs (id) WHERE pin_pending <> '';
CREATE TRIGGER bmcs_rotation_insert BEFORE INSERT ON bmcs FOR EACH ROW WHEN (NEW.rotation_state <> '') EXECUTE FUNCTION guard_rotation_state();
CREATE TRIGGER bmcs_rotation_update BEFORE UPDATE ON bmcs FOR EACH ROW
    WHEN (OLD.rotation_state IS DISTINCT FROM NEW.rotation_state) EXECUTE FUNCTION guard_rotation_state();
CREATE TRIGGER bmc_of_rack_device_has_no_node BEFORE UPDATE OF node_id ON bmcs FOR EACH ROW EXECUTE FUNCTION rack_device_has_no_node();

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
    -- The candidates that a rotation has sent: a BMC may have taken one although it said otherwise,
    -- so the login before is proven before the rotation is dropped.
    sent_refs   text[] NOT NULL DEFAULT '{}',
    CHECK ((finished_at IS NULL) = (outcome = ''))
);
CREATE UNIQUE INDEX bmc_rotations_one_open ON bmc_rotations (bmc_id) WHERE finished_at IS NULL;
CREATE INDEX bmc_rotations_by_bmc ON bmc_rotations (bmc_id, id DESC);

-- When a BMC last took its stored login.
CREATE TABLE bmc_accepted_logins (
    bmc_id      text PRIMARY KEY REFERENCES bmcs (id) ON DELETE CASCADE,
    accepted_at timestamptz NOT NULL
);

-- The logins beside the stored one that are tried after a restore, one from each source: the copy on
-- one worker may be older than the login that MAAS has, and must not use up the try of that.
-- adopted_ref is where the login is stored, '' when the BMC did not take it.
CREATE TABLE bmc_recoveries (
    bmc_id      text NOT NULL REFERENCES bmcs (id) ON DELETE CASCADE,
    restore_id  bigint NOT NULL REFERENCES restores (id),
    source      text NOT NULL CHECK (source IN ('copy', 'maas')),
    adopted_ref text NOT NULL DEFAULT '',
    tried_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (bmc_id, restore_id, source)
);
