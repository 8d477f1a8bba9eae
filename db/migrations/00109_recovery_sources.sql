-- A restore has one login to try for a BMC from each place that has one. The copy on one worker may be older than what MAAS holds, and must not use up the
-- login of MAAS.

-- +goose Up
ALTER TABLE bmc_recoveries DROP CONSTRAINT bmc_recoveries_pkey, ADD PRIMARY KEY (bmc_id, restore_id, source);

-- +goose Down
DELETE FROM bmc_recoveries t USING bmc_recoveries o
WHERE o.bmc_id = t.bmc_id AND o.restore_id = t.restore_id AND (o.adopted_ref <> '' AND t.adopted_ref = '' OR o.adopted_ref = t.adopted_ref AND o.source < t.source);
ALTER TABLE bmc_recoveries DROP CONSTRAINT bmc_recoveries_pkey, ADD PRIMARY KEY (bmc_id, restore_id);
