-- Steps: the parts of a handler that have finished, with their results. A handler that runs again skips them.
--
-- usable-from: 20261125000020

-- migrate:up

CREATE TABLE ffx_step (
    partition_key smallint NOT NULL,
    execution_id uuid NOT NULL,
    name text NOT NULL,
    seq integer NOT NULL,
    attempt_index integer NOT NULL,
    outcome text NOT NULL,
    result bytea,
    error text,
    tries integer NOT NULL,
    started_at_ms bigint NOT NULL,
    ended_at_ms bigint NOT NULL,
    PRIMARY KEY (partition_key, execution_id, name)
);

COMMENT ON TABLE ffx_step IS
    'Finished steps of executions. Written by the holder of the newest lease alone, or by the transaction that ends a wait; never changed.';
COMMENT ON COLUMN ffx_step.partition_key IS
    'Partition of the execution, 0 to 255.';
COMMENT ON COLUMN ffx_step.execution_id IS
    'The execution that the step belongs to.';
COMMENT ON COLUMN ffx_step.name IS
    'Name of the step, unique within its execution; 1 to 256 bytes.';
COMMENT ON COLUMN ffx_step.seq IS
    'Place of the step in the order in which the steps and waits began, from 0. A replay from a step deletes it and later ones.';
COMMENT ON COLUMN ffx_step.attempt_index IS
    'Attempt in which the step finished.';
COMMENT ON COLUMN ffx_step.outcome IS
    'success; slept: a pause; signal, timeout: the end of a wait.';
COMMENT ON COLUMN ffx_step.result IS
    'Result, encoded by the codec of the kind; NULL: none. Of a pause: until when, in milliseconds since the Unix epoch. Of a wait: its signals by waitpoint key, as in ff_suspension_current.member_map.';
COMMENT ON COLUMN ffx_step.error IS
    'Text of the error of its last failed try, cut at 16 KiB; NULL: the first try succeeded.';
COMMENT ON COLUMN ffx_step.tries IS
    'Number of tries in the attempt in which it finished.';
COMMENT ON COLUMN ffx_step.started_at_ms IS
    'Milliseconds since the Unix epoch: start of its first try, or of the wait.';
COMMENT ON COLUMN ffx_step.ended_at_ms IS
    'Milliseconds since the Unix epoch: when it was stored.';

-- migrate:down

DROP TABLE ffx_step;
