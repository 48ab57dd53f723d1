-- Reservations hold amounts of budgets for the holders of leases. They count until they are settled, or until a look at the
-- lease finds it over: no renewal, completion or expiry of a lease touches them. Budgets that cancel at a breach have a row for
-- each execution that the gate has let in, so that a breach finds these without an index on the executions.
--
-- usable-from: 20261125000001

-- migrate:up

CREATE TABLE ffx_budget_reservation (
    partition_key smallint NOT NULL,
    budget_id text NOT NULL,
    execution_partition smallint NOT NULL,
    execution_id uuid NOT NULL,
    attempt_index integer NOT NULL,
    lease_epoch bigint NOT NULL,
    dimensions_key text NOT NULL,
    amount bigint NOT NULL,
    expires_at_ms bigint NOT NULL,
    PRIMARY KEY (partition_key, budget_id, execution_id, attempt_index, lease_epoch, dimensions_key)
)
WITH (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 500
);

CREATE INDEX ffx_budget_reservation_expiry_idx ON ffx_budget_reservation (expires_at_ms);

COMMENT ON TABLE ffx_budget_reservation IS
    'Amounts of budgets that the holders of leases have reserved and not settled. They count against hard limits.';
COMMENT ON COLUMN ffx_budget_reservation.partition_key IS
    'Logical shard of the budget, from 0: ff_budget_policy.partition_key.';
COMMENT ON COLUMN ffx_budget_reservation.budget_id IS
    'The budget: ff_budget_policy.budget_id. It need not exist.';
COMMENT ON COLUMN ffx_budget_reservation.execution_partition IS
    'Partition of the execution, 0 to 255.';
COMMENT ON COLUMN ffx_budget_reservation.execution_id IS
    'The execution whose holder has reserved, the uuid half of its id.';
COMMENT ON COLUMN ffx_budget_reservation.attempt_index IS
    'The attempt that the lease belongs to, from 0.';
COMMENT ON COLUMN ffx_budget_reservation.lease_epoch IS
    'The epoch of the lease.';
COMMENT ON COLUMN ffx_budget_reservation.dimensions_key IS
    'Name of the dimension, as in ff_budget_usage.';
COMMENT ON COLUMN ffx_budget_reservation.amount IS
    'Reserved amount, above 0, in the unit of the dimension.';
COMMENT ON COLUMN ffx_budget_reservation.expires_at_ms IS
    'Milliseconds since the Unix epoch: the end of the lease when the row was written or last looked at. From then on a job looks again.';

CREATE TABLE ffx_budget_admission (
    partition_key smallint NOT NULL,
    budget_id text NOT NULL,
    execution_id uuid NOT NULL,
    admitted_at_ms bigint NOT NULL,
    execution_partition smallint NOT NULL,
    due_at_ms bigint NOT NULL,
    PRIMARY KEY (partition_key, budget_id, execution_id, admitted_at_ms)
)
WITH (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 500
);

CREATE INDEX ffx_budget_admission_due_idx
ON ffx_budget_admission (due_at_ms, partition_key, budget_id, execution_id, admitted_at_ms);

COMMENT ON TABLE ffx_budget_admission IS
    'Executions that the gate has let in and that name a budget with ffx_cancel_on_breach. A row stays until a job finds that its execution is no longer admitted, or has cancelled it.';
COMMENT ON COLUMN ffx_budget_admission.partition_key IS
    'Logical shard of the budget, from 0: ff_budget_policy.partition_key.';
COMMENT ON COLUMN ffx_budget_admission.budget_id IS
    'The budget: ff_budget_policy.budget_id.';
COMMENT ON COLUMN ffx_budget_admission.execution_id IS
    'The execution, the uuid half of its id.';
COMMENT ON COLUMN ffx_budget_admission.admitted_at_ms IS
    'Milliseconds since the Unix epoch: when it was admitted.';
COMMENT ON COLUMN ffx_budget_admission.execution_partition IS
    'Partition of the execution, 0 to 255.';
COMMENT ON COLUMN ffx_budget_admission.due_at_ms IS
    'Milliseconds since the Unix epoch: when a job looks at it again. 0: a breach has come, and its execution is to be cancelled.';

-- migrate:down

DROP TABLE ffx_budget_admission;

DROP TABLE ffx_budget_reservation;
