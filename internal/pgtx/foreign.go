package pgtx

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// BeginForeign begins a transaction for statements of others: at READ COMMITTED, with none of this library's planner
// settings, and with triggers notifying at the commit. The server ends the transaction if the client is silent for
// limit, or one statement takes longer; from PostgreSQL 17 on, limit also applies to the whole transaction. Smaller
// limits of the pool, the role or the server stay.
func (r *Runner) BeginForeign(ctx context.Context, limit time.Duration) (pgx.Tx, error) {
	conn, err := r.acquire(ctx)
	if err != nil {
		return nil, err
	}
	settings := foreignSettings(limit, limitsTransactions(conn.Conn()))
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: beginReadCommitted + ";" + settings})
	if err != nil {
		conn.Release()
		return nil, err
	}
	return pooledTx{tx, conn}, nil
}

// foreignSettings are the settings of [Runner.BeginForeign]. If the client disconnects in the middle of a long
// statement, the server notices within a second, on some platforms.
func foreignSettings(limit time.Duration, recent bool) string {
	text := fmt.Sprintf("%dms", limit.Milliseconds())
	settings := []string{
		"case when current_setting('synchronous_commit') = 'off' then set_config('synchronous_commit', 'on', true) end",
		`case when version() like '%linux%' and current_setting('client_connection_check_interval') = '0'
			then set_config('client_connection_check_interval', '1s', true) end`,
		atMost("statement_timeout", text),
		atMost("idle_in_transaction_session_timeout", text),
	}
	if recent {
		settings = append(settings, atMost("transaction_timeout", text))
	} else {
		settings = append(settings, strings.TrimPrefix(olderServer, ","))
	}
	return "select " + strings.Join(settings, ",")
}
