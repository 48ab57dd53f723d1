// Package observe runs the statements of new migrations on a copy of the base that holds rows, each in a transaction of
// its own, and tells what it saw: locks, rewritten files, tables read whole, bytes of WAL, and the queries that cannot
// run meanwhile. What a statement looks like decides nothing; what it did does.
//
//	rule                    severity  what was seen
//	lock-blocks-readers     blocking  ACCESS EXCLUSIVE was held while rows were read, written or copied: everybody waits
//	lock-blocks-writers     blocking  SHARE or stronger was held so: writers wait
//	lock-held-while-slow    blocking  so, but the lock is from an earlier statement of the transaction
//	writes-every-row        blocking  one statement changed most rows of a table: their writers wait until it commits
//	trigger-waits           blocking  two writers of different rows wait for each other, by a new trigger
//	lock-without-timeout    risk      a short ACCESS EXCLUSIVE for which queries wait, and the migration sets no lock_timeout;
//	                                  advice where no query of the project waits, or the lock is weaker
//	fails-on-rows           risk      the rows of the seed refuse the statement; blocking where any row would, as a new
//	                                  column that is NOT NULL without a default
//
// Slow is what takes a time that grows with the rows of a table that existed before the change and is not known to
// stay small. Tables that the change makes, and their indexes, are empty until it is deployed: nothing about them counts.
//
// # How it is measured
//
// Each statement sees those before it committed. Locks are read from pg_locks by another session before the commit.
// A table has been rewritten when its file is another one afterwards, TRUNCATE excepted; it has been read whole when
// the session's own counters (pg_stat_xact_user_tables) say that at least half of its rows were. WAL is what the server
// wrote meanwhile, so other sessions' is in it. A migration that makes a table for its transaction only
// (ON COMMIT DROP) runs in one transaction, as do cursors. Timeouts that migrations set are noted, not obeyed.
//
// PostgreSQL refuses some statements in a transaction (CREATE INDEX CONCURRENTLY, VACUUM). These run outside, while
// another session holds SHARE UPDATE EXCLUSIVE on the tables that they name: what they then wait for is the lock
// that is reported. Stronger locks that they take at their end for a moment, as DETACH PARTITION CONCURRENTLY does, are not seen.
//
// The locks that several statements of a migration leave held add up until its end: dbmate sends a migration as one
// text, which is one transaction also under "transaction:false", unless it has BEGIN and COMMIT of its own.
//
// # Who would wait
//
// Each query of base is tried while the statement's transaction is open, under a short lock_timeout: the server
// analyses it, which takes the locks that a run takes on the tables and views that the query names. A query that met
// none of the locked ones on the untouched base is not tried. What queries need of other tables, by functions and
// triggers, is found by running them once on the untouched base with arguments from its rows (internal/arguments) and
// rolling back; those are then run, not only analysed. What such a run does not reach, as where the key that it
// inserts is taken, is not seen. But what a query that inserts or deletes locks by foreign keys is known from the
// catalog: where nothing else of it would wait, the key's own lock is tried in its place.
package observe
