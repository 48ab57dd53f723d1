-- A cancel takes the queue entries of what it ends out by itself, all of them at once, and the trigger that keeps them is
-- not called for it. It is told by the time of the last mutation, which changes with the phase: no other program writes
-- that column, so whatever else ends a claimable execution as cancelled calls the trigger as before. Should the time be the
-- same, because the execution changed within the same millisecond, the trigger is called for nothing.
--
-- usable-from: 20261101000016

-- migrate:up

-- object: ffx_ff_exec_core_keep_ready_trg without cancels
CREATE OR REPLACE TRIGGER ffx_ff_exec_core_keep_ready_trg
AFTER UPDATE ON ff_exec_core
FOR EACH ROW
WHEN (
    NEW.eligibility_state = 'eligible_now'
    OR OLD.eligibility_state = 'eligible_now'
    AND (NEW.lifecycle_phase <> 'active' OR NEW.ffx_lease_epoch IS NOT DISTINCT FROM OLD.ffx_lease_epoch)
    AND (
        NEW.lifecycle_phase <> 'cancelled'
        OR NEW.ffx_last_mutation_at_ms IS NOT DISTINCT FROM OLD.ffx_last_mutation_at_ms
    )
)
EXECUTE FUNCTION ffx_keep_ready();

COMMENT ON TRIGGER ffx_ff_exec_core_keep_ready_trg ON ff_exec_core IS
    'Keeps the queue entry of an execution in step with it: in when it becomes claimable, out when it no longer is, moved when its lane, priority or age changes. A claim or cancel by this library takes its entry out itself and does not fire it.';

-- migrate:down

CREATE OR REPLACE TRIGGER ffx_ff_exec_core_keep_ready_trg
AFTER UPDATE ON ff_exec_core
FOR EACH ROW
WHEN (
    NEW.eligibility_state = 'eligible_now'
    OR OLD.eligibility_state = 'eligible_now'
    AND (NEW.lifecycle_phase <> 'active' OR NEW.ffx_lease_epoch IS NOT DISTINCT FROM OLD.ffx_lease_epoch)
)
EXECUTE FUNCTION ffx_keep_ready();

COMMENT ON TRIGGER ffx_ff_exec_core_keep_ready_trg ON ff_exec_core IS
    'Keeps the queue entry of an execution in step with it: in when it becomes claimable, out when it no longer is, moved when its lane, priority or age changes. A claim by this library takes its entry out itself and does not fire it.';
