// Package postgres recognises servers that speak PostgreSQL's protocol and lack parts on which the library relies.
package postgres

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Querier is a connection, a pool or a transaction.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// others are servers by a part of their version's text.
var others = []struct{ part, problem string }{
	{"CockroachDB", "its advisory locks exclude nobody, and it has no ctid"},
	{"-YB-", "it is YugabyteDB, whose pg_locks lacks the rows that readers of events wait for"},
	{"Redshift", "it is Amazon Redshift, which has no row locks"},
	{"Greenplum", "it distributes tables over segments"},
	{"Materialize", "it has no row locks"},
	{"RisingWave", "it has no row locks"},
	{"CrateDB", "it has no transactions"},
}

// probe takes one shared advisory lock for its transaction, and looks for it and for the lock of its own read in pg_locks.
// Its names are unqualified, as in other statements: the search_path decides.
const probe = `
	SELECT
		(SELECT count(*) FROM (SELECT c.ctid FROM pg_class AS c LIMIT 1) AS one)::int,
		(SELECT count(*) FROM pg_locks AS l WHERE held.taken AND l.pid = pg_backend_pid() AND l.granted
			AND l.locktype = 'advisory' AND l.classid = 1717986918 AND l.objid = 0)::int,
		(SELECT count(*) FROM pg_locks AS l WHERE held.taken AND l.pid = pg_backend_pid() AND l.granted
			AND l.locktype = 'relation' AND l.mode = 'AccessShareLock' AND l.relation = 'pg_catalog.pg_class'::regclass)::int
	FROM (SELECT pg_try_advisory_xact_lock_shared(1717986918, 0) AS taken OFFSET 0) AS held`

// Unfit returns the server's name and the reason why the library can't work on it, or "". It changes nothing and waits
// for nothing. Inside a transaction of the caller one shared advisory lock lasts as long as that.
//
// It needs one session and no right to write: Check is for logins that only read, for standbys, for pools of one connection
// and for transactions. The lock of its own read comes from the same table of locks as the lock of an insert. Only Migrate, which
// has a pool of its own, also tries whether a second session gets its lock.
func Unfit(ctx context.Context, q Querier) (string, error) {
	var version string
	if err := q.QueryRow(ctx, "SELECT version()").Scan(&version); err != nil {
		return "", err
	}
	name, _, _ := strings.Cut(version, " on ")
	name, _, _ = strings.Cut(name, " (")
	for _, o := range others {
		if strings.Contains(version, o.part) {
			return name + ": " + o.problem, nil
		}
	}
	if !strings.HasPrefix(version, "PostgreSQL ") {
		return name + ": it isn't PostgreSQL", nil
	}
	var rows, advisory, read int
	err := q.QueryRow(ctx, probe).Scan(&rows, &advisory, &read)
	refused, is := errors.AsType[*pgconn.PgError](err)
	switch {
	case is && refused.Code == "42501": // the login may not read a catalog: Prepare and Check name missing rights later
		return "", nil
	case is && (strings.HasPrefix(refused.Code, "42") || strings.HasPrefix(refused.Code, "0A")):
		return name + ": it lacks ctid, advisory locks or pg_locks: " + refused.Message, nil
	case err != nil:
		return "", err
	case rows != 1:
		return name + ": its rows have no ctid", nil
	case advisory != 1:
		return name + ": pg_locks does not have an advisory lock that the session holds", nil
	case read == 0:
		return name + ": pg_locks does not have the lock of the session's own statement on a table, on which readers of events rely", nil
	}
	return "", nil
}
