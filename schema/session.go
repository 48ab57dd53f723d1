package schema

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// lockTimeout is how long a migration waits for a table, in milliseconds.
	lockTimeout = "2000"
	// lockPause is how long it then lets others pass.
	lockPause = 500 * time.Millisecond

	// citusPropagation is the setting by which Citus makes on its other nodes what is made on this one. The tables
	// are local. Without Citus the setting means nothing, and every role may make it.
	citusPropagation = "citus.enable_ddl_propagation"
)

// session is one exclusive change of a schema: it lives while the migration lock is held.
type session struct {
	url    string
	schema string
	state  State
	log    *slog.Logger
	// conn is not the one that holds the lock: what that one reads or writes stays locked till the end.
	conn *pgx.Conn
}

// change runs do while it holds the migration lock of the database.
func change(ctx context.Context, databaseURL string, opts Options, do func(context.Context, *session) (Result, error)) (Result, error) {
	locker, err := connect(ctx, databaseURL, opts.Schema)
	if err != nil {
		return Result{}, err
	}
	// Closing the connection ends the transaction and with it the lock.
	defer closeConn(ctx, locker)
	if err := lock(ctx, locker); err != nil {
		return Result{}, err
	}
	conn, err := connect(ctx, databaseURL, opts.Schema)
	if err != nil {
		return Result{}, err
	}
	defer closeConn(ctx, conn)
	state, err := inspect(ctx, conn)
	if err != nil {
		return Result{}, err
	}
	s := &session{url: databaseURL, schema: opts.Schema, state: state, log: opts.log(), conn: conn}
	if s.schema == "" {
		s.schema = state.Schema
	}
	if s.schema == "" {
		return Result{}, errors.New("schema: no schema of the search_path exists, and Options.Schema names none")
	}
	for _, warning := range state.Warnings {
		s.log.WarnContext(ctx, warning, "database", state.Database, "schema", s.schema)
	}
	if err := state.obstacle(opts); err != nil {
		return Result{}, err
	}
	// From here on unqualified names mean this schema and no other.
	err = s.exec(ctx, fmt.Sprintf("SET search_path = %s; SET lock_timeout = %s; SET statement_timeout = 0; SET %s = off",
		pgx.Identifier{s.schema}.Sanitize(), lockTimeout, citusPropagation))
	if err != nil {
		return Result{}, err
	}
	return do(ctx, s)
}

func connect(ctx context.Context, databaseURL, schema string) (*pgx.Conn, error) {
	config, err := connConfig(databaseURL, schema)
	if err != nil {
		return nil, err
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, classify("connect", err)
	}
	return conn, nil
}

// lock begins a transaction on conn and takes the migration lock in it, waiting as long as ctx allows,
// whatever timeouts the server sets.
//
// The lock is the one that FlowFabric's migrator holds, so starting servers of either kind wait for
// each other. It knows the database only: engines in different schemas are changed one after the other.
func lock(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, `
		BEGIN;
		SET LOCAL lock_timeout = 0;
		SET LOCAL statement_timeout = 0;
		-- The transaction idles while the change is made.
		SET LOCAL idle_in_transaction_session_timeout = 0`)
	if err != nil {
		return classify("begin", err)
	}
	var database string
	if err := conn.QueryRow(ctx, "SELECT current_database()").Scan(&database); err != nil {
		return classify("read the database's name", err)
	}
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", lockKey(database)); err != nil {
		return classify("wait for the migration lock", err)
	}
	return nil
}

// lockKey is the advisory lock of FlowFabric's migrator for a database; data-model section 9.1 of the
// specification derives it.
func lockKey(database string) int64 {
	return 0x3d32ad9e * int64(crc32.ChecksumIEEE([]byte(database)))
}

// migrate applies the pending migrations.
func (s *session) migrate(ctx context.Context) (Result, error) {
	if s.state.Schema == "" {
		if err := s.exec(ctx, "CREATE SCHEMA IF NOT EXISTS "+pgx.Identifier{s.schema}.Sanitize()); err != nil {
			return Result{}, err
		}
	}
	if s.state.Origin == OriginAdopted {
		return s.applyParts(ctx)
	}
	result := Result{From: s.state.Version, To: s.state.Version, Applied: s.state.pending()}
	if len(result.Applied) == 0 {
		return result, nil
	}
	progress := &progress{log: s.log, doing: "migrate"}
	db, err := newDBMate(s.url, s.schema, progress)
	if err != nil {
		return Result{}, err
	}
	if err := s.retryLocked(ctx, db.Migrate); err != nil {
		return Result{}, classify(progress.doing, err)
	}
	result.To = Version
	s.log.InfoContext(ctx, "migrated", "database", s.state.Database, "schema", s.schema, "from", result.From, "to", result.To)
	return result, nil
}

// rollback takes back the migrations newer than to.
func (s *session) rollback(ctx context.Context, to string) (Result, error) {
	result := Result{From: s.state.Version, To: to}
	progress := &progress{log: s.log, doing: "roll back"}
	db, err := newDBMate(s.url, s.schema, progress)
	if err != nil {
		return Result{}, err
	}
	for _, m := range slices.Backward(s.state.Migrations) {
		if !m.Applied || m.Version <= to {
			continue
		}
		if err := s.retryLocked(ctx, db.Rollback); err != nil {
			return Result{}, classify(progress.doing, err)
		}
		result.Applied = append(result.Applied, m.Name)
	}
	if to == "" {
		err := s.retryLocked(ctx, func() error { return s.exec(ctx, "DROP TABLE "+ledgerTable) })
		if err != nil {
			return Result{}, err
		}
	}
	s.log.InfoContext(ctx, "rolled back", "database", s.state.Database, "schema", s.schema, "from", result.From, "to", result.To)
	return result, nil
}

func (s *session) exec(ctx context.Context, statements string) error {
	if _, err := s.conn.Exec(ctx, statements); err != nil {
		return classify("run "+statements, err)
	}
	return nil
}

// retryLocked repeats try for as long as it ends because a table stayed locked, or in a deadlock.
func (s *session) retryLocked(ctx context.Context, try func() error) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := try()
		if state := sqlState(err); state != "55P03" && state != "40P01" {
			return err
		}
		s.log.WarnContext(ctx, "a table to be changed is locked; trying again", "schema", s.schema, "error", err)
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; last try: %w", ctx.Err(), err)
		case <-time.After(lockPause):
		}
	}
}

// closeConn closes conn even when ctx has ended; a polite goodbye may take a second.
func closeConn(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}
