// Package observe runs the statements of new migrations on a copy of the base with rows, each in a transaction of its
// own. The package observes locks, rewritten files, tables read in full, bytes of WAL, and queries blocked in the
// meantime. Findings follow from these effects only, not from the text of a statement.
//
// Work is slow if its time grows with the rows of an older table not known to stay small. Tables created by the change,
// and their indexes, are empty until the deployment, so they do not count.
//
// # How it is measured
//
// Each statement runs after the commits of earlier ones. Another session reads its locks from pg_locks before the
// commit. A table with another file afterwards was rewritten, except by TRUNCATE. A table was read in full if the
// session's own counters (pg_stat_xact_user_tables) count at least half of its rows. WAL is the server's whole output
// in the meantime, including other sessions'. A migration creating a table for its transaction only (ON COMMIT DROP)
// runs in one transaction, and so do cursors. Timeouts set by migrations are noted, not obeyed.
//
// PostgreSQL refuses some statements in a transaction (CREATE INDEX CONCURRENTLY, VACUUM). These run outside, while
// another session holds SHARE UPDATE EXCLUSIVE on the named tables. The report has the lock each statement then waits
// for. Stronger locks taken briefly at the end, as by DETACH PARTITION CONCURRENTLY, are not seen.
//
// The locks held after several statements of a migration add up until its end: dbmate sends a migration as one text. The
// text is one transaction, also under "transaction:false", unless it has BEGIN and COMMIT of its own.
//
// # Waiting queries
//
// Each query of base is tried while the statement's transaction is open, under a short lock_timeout: the server
// analyses the query, with the locks of a run on the named tables and views. A query that met none of the locked ones
// on the untouched base is not tried. Locks on other tables, by functions and triggers, are found by running the
// queries once on the untouched base with arguments from its rows (internal/arguments) and rolling back. Such queries
// are then run, not only analysed. Code not reached by such a run is not seen, for example if the inserted key is
// taken. But the foreign-key locks of inserts and deletes are known from the catalog: if nothing else of a query would
// wait, the key's own lock is tried in its place.
package observe
