-- Seed 001 names the read model of onboarding jobs.
CREATE OR REPLACE VIEW node_onboardings AS
SELECT id, kind, node_id, site_id, profile_id, batch_id, status, stage, stage_ordinal, seq, attempt, failure_class,
    failed_stage, message, recommended_action, next_step, waiting_outside, frozen, adopted, observed,
    progress_percent, reached_percent, eta, input, checkpoint, workflow_id, run_id, created_by, created_at,
    started_at, finished_at, stage_deadline_at, updated_at, version
FROM jobs WHERE kind = 'onboarding';
