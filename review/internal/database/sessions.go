package database

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// The project's SQL may take for ever, such as pg_sleep(1e9), or wait for rows a review never sends. The server ends a
// statement after longestStatement, unless the SQL itself changes the setting. A session ends after longestSession.
const (
	longestStatement = "10min"
	longestSession   = 30 * time.Minute
)

// Connect opens a session of at most half an hour, so no statement of a project lasts for ever.
func (d *Database) Connect(ctx context.Context) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(d.URL)
	if err != nil {
		return nil, errors.New("the database's URL is not one")
	}
	config.RuntimeParams["application_name"] = "schema-review"
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	go closeAfter(conn.PgConn(), d.server.longest)
	return conn, nil
}

// closeAfter closes a session from below. The server may wait for rows, and then answers no request to cancel.
func closeAfter(conn *pgconn.PgConn, longest time.Duration) {
	timer := time.NewTimer(longest)
	defer timer.Stop()
	select {
	case <-conn.CleanupDone():
	case <-timer.C:
		_ = conn.Conn().Close()
	}
}

// limit ends the other sessions on the database when ctx ends, or after the longest time of one, until stop is called.
func (d *Database) limit(ctx context.Context) (stop func()) {
	limited, cancel := context.WithTimeout(ctx, d.server.longest)
	running := context.AfterFunc(limited, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		conn, err := pgx.Connect(ctx, d.URL)
		if err != nil {
			return // the sessions end with the database
		}
		defer func() { _ = conn.Close(ctx) }()
		_, _ = conn.Exec(ctx, "SET ROLE NONE; SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
	})
	return func() {
		running()
		cancel()
	}
}

// rollBackPrepared ends the prepared transactions of a database, as far as the tool's role may.
func (s *Server) rollBackPrepared(ctx context.Context, name string) error {
	conn, err := pgx.Connect(ctx, s.url(name))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	rows, err := conn.Query(ctx, "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()")
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, gid := range names {
		_, refused := conn.Exec(ctx, "ROLLBACK PREPARED '"+strings.ReplaceAll(gid, "'", "''")+"'")
		err = errors.Join(err, refused)
	}
	return err
}
