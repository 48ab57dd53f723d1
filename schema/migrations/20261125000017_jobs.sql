-- Which process does which background job, so that not every process of a fleet does it at once. This only saves work:
-- a job is safe in any number of processes, and one that works past its hold continues beside the next.
--
-- usable-from: 20261125000001

-- migrate:up

-- A row for each job, written every second or two by the process that does it. A process that finds the hold expired
-- takes the job.
CREATE TABLE ffx_job (
    name text PRIMARY KEY,
    holder text NOT NULL,
    held_until_ms bigint NOT NULL,
    succeeded_at_ms bigint,
    failed_at_ms bigint,
    error text
)
WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 500
);

COMMENT ON TABLE ffx_job IS
    'Which process does which background job, for how long. Without its row a job is taken by whoever asks first.';
COMMENT ON COLUMN ffx_job.name IS
    'The job.';
COMMENT ON COLUMN ffx_job.holder IS
    'The process: the instance of its worker.';
COMMENT ON COLUMN ffx_job.held_until_ms IS
    'When others may take the job, in milliseconds since the Unix epoch. The holder moves it on as long as it lives, and sets 0 when it stops.';
COMMENT ON COLUMN ffx_job.succeeded_at_ms IS
    'Milliseconds since the Unix epoch: the end of the last call without an error; NULL: none was reported. A job without work is not called.';
COMMENT ON COLUMN ffx_job.failed_at_ms IS
    'Milliseconds since the Unix epoch: the end of the last failed call; NULL: none was reported.';
COMMENT ON COLUMN ffx_job.error IS
    'The error of the last failed call, at most 1,024 bytes; NULL: none was reported.';

-- migrate:down

DROP TABLE ffx_job;
