package pgtx

import (
	"context"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/db"
)

// Every transaction begins with settings local to the transaction. They also work behind a transaction pooler, and
// other users of the pool never see them.
//
// Planner: one generic plan per statement, index order, nested loops from arrays into primary keys; anything else was
// slower or flipped with the statistics. ffx.defer_notify: the process that runs the transaction notifies after the
// commit, and the schema's triggers do not. A stricter synchronous_commit stays, and so does every limit smaller than
// the one here.
//
// Setting the isolation level to its present value always works. For another level, the server answers with
// [sqlActiveTransaction], since a statement has begun. This happens if the connection defaults to another level and the
// transaction has not set one.
const everywhere = `select
	set_config('transaction_isolation', 'read committed', true),
	set_config('ffx.defer_notify', 'on', true),
	set_config('plan_cache_mode', 'force_generic_plan', true),
	set_config('jit', 'off', true),
	set_config('enable_hashjoin', 'off', true),
	set_config('enable_mergejoin', 'off', true),
	set_config('enable_seqscan', 'off', true),
	set_config('enable_bitmapscan', 'off', true),
	case when current_setting('synchronous_commit') = 'off' then set_config('synchronous_commit', 'on', true) end`

// How long a transaction waits for a lock, and how long a transaction with a silent client keeps its locks. The second
// is the time a worker waits for a call, and the default of leases. No working call takes longer, and when others need
// the locks of the silent client, they are gone.
const (
	lockWait      = "2s"
	shortLockWait = "50ms"
	silence       = "30s"
)

// A client that falls silent in the middle of a transaction (stopped, cut off, its host gone):
//
//   - From PostgreSQL 17 on a limit on the whole transaction ends it at any point.
//   - Before, a limit on the time between two statements ends it there, and during the first message after a pause;
//     [InOneTrip] makes sure that a message that may be cut is such a message. In the middle of a round trip only the
//     network can detect that the host itself is gone: in 20 s, by settings that only Linux has all of.
var (
	recentServer = "," + atMost("transaction_timeout", silence)
	olderServer  = `,
	case when version() like '%linux%' then concat(
		set_config('tcp_keepalives_idle', '10', true),
		set_config('tcp_keepalives_interval', '5', true),
		set_config('tcp_user_timeout', '20000', true)) end`
	betweenStatements = "," + atMost("statement_timeout", silence) + "," + atMost("idle_in_transaction_session_timeout", silence)
)

// atMost sets a time limit if the present one is longer, or 0, none.
func atMost(name, limit string) string {
	return strings.NewReplacer("NAME", name, "LIMIT", limit).Replace(`
	case when current_setting('NAME') = '0' or current_setting('NAME')::interval > 'LIMIT'
		then set_config('NAME', 'LIMIT', true) end`)
}

// settingsOf are the settings of transactions with the same limit for waiting for locks.
type settingsOf struct {
	recent string // of a server with a limit on a transaction
	older  string // of a server without; several round trips
	atOnce string // the same; in one
}

func newSettings(lockTimeout string) settingsOf {
	first := everywhere + "," + atMost("lock_timeout", lockTimeout)
	return settingsOf{
		recent: first + recentServer,
		older:  first + olderServer + betweenStatements,
		atOnce: first + olderServer,
	}
}

var normalSettings, shortWaitSettings = newSettings(lockWait), newSettings(shortLockWait)

// settings returns a statement with the settings for beginning a transaction on conn, or "" if none is needed. atOnce:
// the transaction is sent in one round trip.
func (r *Runner) settings(conn *pgx.Conn, atOnce bool) string {
	if hasSession(conn) {
		return r.settingsInSession(conn, atOnce)
	}
	all := &normalSettings
	if r.shortWait {
		all = &shortWaitSettings
	}
	switch {
	case limitsTransactions(conn):
		return all.recent
	case atOnce:
		return all.atOnce
	}
	return all.older
}

// ReplaceLockTimeout sets how long the later statements of a transaction wait for locks, and returns the former value.
func ReplaceLockTimeout(ctx context.Context, conn db.DBTX, limit string) (former string, err error) {
	err = conn.QueryRow(ctx, "select former, set_config('lock_timeout', $1, true) from (select current_setting('lock_timeout') as former offset 0) as s", limit).
		Scan(&former, nil)
	return former, err
}

// SetLockTimeout sets how long the later statements of a transaction wait for locks.
func SetLockTimeout(ctx context.Context, conn db.DBTX, limit string) error {
	_, err := conn.Exec(ctx, "select set_config('lock_timeout', $1, true)", limit)
	return err
}

// limitsTransactions reports whether the server can limit the time of a transaction.
func limitsTransactions(conn *pgx.Conn) bool {
	version := conn.PgConn().ParameterStatus("server_version")
	if end := strings.IndexFunc(version, func(r rune) bool { return r < '0' || r > '9' }); end > 0 {
		version = version[:end]
	}
	major, err := strconv.Atoi(version)
	return err == nil && major >= 17
}
