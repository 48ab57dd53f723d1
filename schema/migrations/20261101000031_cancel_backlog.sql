-- Requests to cancel a flow, in the order in which their grace is over: a job looks for those that are due, and many may
-- wait for theirs. A request is written and deleted once, and no execution changes it.
--
-- usable-from: 20261101000016

-- migrate:up

-- object: ffx_cancel_backlog_due_idx
CREATE INDEX ffx_cancel_backlog_due_idx ON ff_cancel_backlog
((coalesce(grace_until_ms, requested_at_ms)), partition_key, flow_id);

-- migrate:down

DROP INDEX ffx_cancel_backlog_due_idx;
