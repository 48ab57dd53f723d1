-- How the tables with the most updates and deletions are stored.
--
-- Every life ends in a deletion, so vacuum has to keep up. With the server's limits it handles some 5,000 pages a
-- second, as many as 30,000 deletions leave. Vacuum does not truncate the files: claims would wait for its lock, and
-- free space is used again.
--
-- usable-from: 20261125000001

-- migrate:up

-- A row is updated twice in its life, by neighbours of the same batch: each page keeps room for both versions.
ALTER TABLE ff_exec_core SET (fillfactor = 45, vacuum_truncate = false, autovacuum_vacuum_cost_limit = 1000);

-- Most rows are updated once, with the others of their batch.
ALTER TABLE ff_attempt SET (fillfactor = 50, vacuum_truncate = false, autovacuum_vacuum_cost_limit = 1000);

ALTER TABLE ff_completion_event SET (vacuum_truncate = false, autovacuum_vacuum_cost_limit = 1000);

ALTER TABLE ff_lease_event SET (vacuum_truncate = false, autovacuum_vacuum_cost_limit = 1000);

-- migrate:down

ALTER TABLE ff_lease_event RESET (vacuum_truncate, autovacuum_vacuum_cost_limit);

ALTER TABLE ff_completion_event RESET (vacuum_truncate, autovacuum_vacuum_cost_limit);

ALTER TABLE ff_attempt RESET (vacuum_truncate, autovacuum_vacuum_cost_limit);

ALTER TABLE ff_attempt SET (fillfactor = 80);

ALTER TABLE ff_exec_core RESET (vacuum_truncate, autovacuum_vacuum_cost_limit);

ALTER TABLE ff_exec_core SET (fillfactor = 80);
