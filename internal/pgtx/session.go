package pgtx

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// The settings of a transaction are a statement of their own, some 0.04 ms. A connection used only by this library may
// have the settings for the session instead, if every statement reaches the same server process. A transaction pooler
// spreads statements over many processes, and its other clients would get the settings.
//
// At the start of a connection a server names its process, as part of the key for cancelling a statement. A pooler
// names processes of its own. So a connection is direct if the process named at the start answers.

// sessionKey marks a connection with settings for the session, in the driver's data for applications.
const sessionKey = "ffx.session"

// inSession makes the settings of a transaction settings of the session. A transaction on a server without a limit on
// transactions still sets the limits between its statements.
var inSession = strings.NewReplacer("', true)", "', false)", "'transaction_isolation'", "'default_transaction_isolation'")

var (
	recentSession = inSession.Replace(normalSettings.recent)
	olderSession  = inSession.Replace(normalSettings.atOnce)

	shortLocks = atMost("lock_timeout", shortLockWait)
)

// SetForSession gives a new connection, used only by this library, the settings of transactions for the session. Behind
// a pooler SetForSession has no effect.
func SetForSession(ctx context.Context, conn *pgx.Conn) error {
	settings := olderSession
	if limitsTransactions(conn) {
		settings = recentSession
	}
	// The simple protocol leaves no prepared statement behind. The server tests the condition before setting anything.
	sql := fmt.Sprintf("%s where pg_backend_pid() = %d", settings, conn.PgConn().PID())
	results, err := conn.PgConn().Exec(ctx, sql).ReadAll()
	if err != nil {
		return err
	}
	if len(results) == 1 && len(results[0].Rows) == 1 {
		conn.PgConn().CustomData()[sessionKey] = true
	}
	return nil
}

// hasSession reports whether conn has the settings of transactions for the session.
func hasSession(conn *pgx.Conn) bool { return conn.PgConn().CustomData()[sessionKey] != nil }

// settingsInSession is [Runner.settings] on a connection with settings for the session.
func (r *Runner) settingsInSession(conn *pgx.Conn, atOnce bool) string {
	var left string
	if r.shortWait {
		left += "," + shortLocks
	}
	if !atOnce && !limitsTransactions(conn) {
		left += betweenStatements
	}
	if left == "" {
		return ""
	}
	return "select " + left[1:]
}
