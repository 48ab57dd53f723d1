-- Delayed executions and deadlines. Every claim and completion pays for an index on ff_exec_core whose columns it
-- changes. So each of these is partial, and has only the rows that its scan is after. They lead with a time, because
-- the scans cover all partitions. None is unique, so that no write of FlowFabric can violate one.
--
-- usable-from: 20261125000001

-- migrate:up

-- Delayed executions by the time they are due. A claim or promotion clears the column. In a row that is not delayed
-- the promotion clears it.
CREATE INDEX ffx_ff_exec_core_promotion_idx ON ff_exec_core (ffx_delay_until_ms)
WHERE ffx_delay_until_ms IS NOT NULL;

-- Deadlines of rows of this library. The end of an execution negates its deadline, so that the scan does not return it
-- again.
CREATE INDEX ffx_ff_exec_core_execution_deadline_idx ON ff_exec_core (ffx_execution_deadline_ms)
WHERE ffx_execution_deadline_ms > 0;

-- Deadlines of rows that only FlowFabric wrote. The scan gives an ended one a negated deadline of this library.
CREATE INDEX ffx_ff_exec_core_deadline_idx ON ff_exec_core (deadline_at_ms)
WHERE deadline_at_ms IS NOT NULL AND ffx_execution_deadline_ms IS NULL;

-- migrate:down

DROP INDEX ffx_ff_exec_core_deadline_idx;

DROP INDEX ffx_ff_exec_core_execution_deadline_idx;

DROP INDEX ffx_ff_exec_core_promotion_idx;
