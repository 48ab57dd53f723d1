package schema

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/fferr"
)

const (
	// lockTimeout is how long a migration waits for a table, in milliseconds. The waiting migration blocks all later
	// sessions.
	lockTimeout = "2000"
	// lockPause is the pause before the next try, which lets other sessions pass.
	lockPause = 500 * time.Millisecond

	// queueTimeout limits one transaction waiting for the migration lock, in milliseconds. queuePause is the pause
	// between two such transactions.
	queueTimeout = "500"
	queuePause   = 100 * time.Millisecond

	// citusPropagation makes Citus create objects on the other nodes as well. The tables are local. Without Citus the
	// setting has no effect, and every role may change it.
	citusPropagation = "citus.enable_ddl_propagation"
)

// session is one exclusive change of a schema, while the migration lock is held.
type session struct {
	schema string
	state  State
	log    *slog.Logger
	// conn is the connection to work on. Nothing of a session may stay on conn between transactions: conn belongs to the
	// caller, or is a transaction pooler's and changes with each transaction.
	conn *pgx.Conn
	// locker holds the lock in one long transaction, which conn cannot, since conn runs one transaction after another.
	locker *pgx.Conn
}

// change runs do while holding the migration lock of the database.
func change[D Database](ctx context.Context, database D, opts Options, do func(context.Context, *session) (Result, error)) (Result, error) {
	from, err := sourceOf(database, opts)
	if err != nil {
		return Result{}, err
	}
	if from.inTx {
		return Result{}, errors.New("schema: the connection is in a transaction, and each migration needs one of its own")
	}
	locker, err := from.another(ctx)
	if err != nil {
		return Result{}, err
	}
	// Closing the connection ends the transaction, which releases the lock.
	defer closeConn(ctx, locker)
	if err := supported(ctx, locker); err != nil {
		return Result{}, err
	}
	if err := lock(ctx, locker); err != nil {
		return Result{}, err
	}
	// Borrow only now, so callers sharing a pool of one connection don't hold the connection while waiting for the lock.
	conn, giveBack, err := from.borrow(ctx)
	if err != nil {
		return Result{}, err
	}
	defer giveBack()
	state, err := inspect(ctx, conn, opts.Schema)
	if err != nil {
		return Result{}, err
	}
	if err := state.excludes(ctx, conn); err != nil {
		return Result{}, err
	}
	s := &session{schema: opts.Schema, state: state, log: opts.log(), conn: conn, locker: locker}
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
	return do(ctx, s)
}

// excludes returns an error unless the server refuses the migration lock, held by another session.
func (s *State) excludes(ctx context.Context, conn *pgx.Conn) error {
	var free bool
	err := conn.QueryRow(ctx, fmt.Sprintf("SELECT pg_try_advisory_xact_lock(%d)", lockKey(s.Database))).Scan(&free)
	if err != nil {
		return classify("try the migration lock", err)
	}
	if free {
		return s.refuse(fferr.ErrUnsupportedServer, "two sessions hold one advisory lock")
	}
	return nil
}

// lock begins a transaction on conn and takes the migration lock, waiting until ctx ends, whatever timeouts the server
// sets.
//
// The lock is the one of FlowFabric's migrator, so starting servers of either kind wait for each other. The lock covers
// the whole database, so engines in different schemas are changed one after the other.
//
// FlowFabric holds the lock for its session, which a transaction's lock excludes as well. A transaction's lock also
// works behind a transaction pooler, where a session's lock would stay on a pooled connection after the end of the
// process. A waiting transaction occupies one of the pooler's few connections, which the holder of the lock may need,
// so lock waits in many short transactions.
func lock(ctx context.Context, conn *pgx.Conn) error {
	for {
		err := tryLock(ctx, conn)
		if sqlState(err) != "55P03" {
			return err
		}
		if _, err := conn.Exec(ctx, "ROLLBACK"); err != nil {
			return classify("wait for the migration lock", err)
		}
		select {
		case <-ctx.Done():
			return classify("wait for the migration lock", ctx.Err())
		case <-time.After(queuePause):
		}
	}
}

// tryLock leaves conn in a transaction, which holds the lock if there is no error.
func tryLock(ctx context.Context, conn *pgx.Conn) error {
	// Set only settings known to the server: transaction_timeout came with PostgreSQL 17. The transaction is idle during
	// the change.
	_, err := conn.Exec(ctx, `
		BEGIN;
		DO $$
		BEGIN
			PERFORM set_config(name, '0', true)
			FROM pg_settings
			WHERE name IN ('statement_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout');
		END
		$$;
		SET LOCAL lock_timeout = `+queueTimeout)
	if err != nil {
		return classify("begin", err)
	}
	var database string
	if err := conn.QueryRow(ctx, "SELECT current_database()").Scan(&database); err != nil {
		return classify("read the database's name", err)
	}
	if _, err := conn.Exec(ctx, fmt.Sprintf("SELECT pg_advisory_xact_lock(%d)", lockKey(database))); err != nil {
		return classify("wait for the migration lock", err)
	}
	return nil
}

// lockKey returns the advisory lock key of FlowFabric's migrator for a database, derived as in data-model section 9.1 of
// the specification.
func lockKey(database string) int64 {
	return 0x3d32ad9e * int64(crc32.ChecksumIEEE([]byte(database)))
}

// migrate applies the pending migrations.
func (s *session) migrate(ctx context.Context) (Result, error) {
	if s.state.Schema == "" {
		if err := s.exec(ctx, "CREATE SCHEMA IF NOT EXISTS "+pgx.Identifier{s.schema}.Sanitize()); err != nil {
			return Result{}, classify("create the schema", err)
		}
	}
	result := Result{From: s.state.Version, To: s.state.Version}
	for _, m := range s.state.Migrations {
		if m.Applied {
			continue
		}
		if err := s.apply(ctx, m); err != nil {
			return Result{}, classify("apply "+m.Name+".sql", err)
		}
		result.Applied = append(result.Applied, m.Name)
		result.To = Version
	}
	if len(result.Applied) > 0 {
		s.log.InfoContext(ctx, "migrated", "database", s.state.Database, "schema", s.schema, "from", result.From, "to", result.To)
	}
	return result, nil
}

// apply applies and records a migration.
func (s *session) apply(ctx context.Context, m Migration) error {
	script, err := readScript(m)
	if err != nil {
		return err
	}
	s.log.DebugContext(ctx, "applying", "migration", m.Name, "schema", s.schema)
	ledger := record(m.Version)
	if m == s.state.Migrations[0] {
		ledger = makeLedger + ";" + ledger
	}
	return s.run(ctx, script.up, ledger)
}

// run executes half a migration and the ledger statement in one transaction. Once begun, the transaction does not end
// with ctx.
func (s *session) run(ctx context.Context, half block, ledger string) error {
	return s.retryLocked(ctx, func() error {
		if err := s.lockStands(ctx); err != nil {
			return err
		}
		return half.locate(s.exec(context.WithoutCancel(ctx), half.sql, ledger))
	})
}

// lockStands returns an error if the connection holding the lock is lost, since another process may then hold the lock.
func (s *session) lockStands(ctx context.Context) error {
	if err := s.locker.Ping(ctx); err != nil {
		return fmt.Errorf("the connection that held the migration lock is lost: %w", err)
	}
	return nil
}

// rollback reverts the migrations newer than to.
func (s *session) rollback(ctx context.Context, to string) (Result, error) {
	result := Result{From: s.state.Version, To: to}
	for _, m := range slices.Backward(s.state.Migrations) {
		if !m.Applied || m.Version <= to {
			continue
		}
		script, err := readScript(m)
		if err != nil {
			return Result{}, err
		}
		s.log.DebugContext(ctx, "rolling back", "migration", m.Name, "schema", s.schema)
		if err := s.run(ctx, script.down, unrecord(m.Version)); err != nil {
			return Result{}, classify("roll back "+m.Name+".sql", err)
		}
		result.Applied = append(result.Applied, m.Name)
	}
	if to == "" {
		if err := s.retryLocked(ctx, func() error { return s.exec(ctx, dropLedger) }); err != nil {
			return Result{}, classify("drop the ledger", err)
		}
	}
	s.log.InfoContext(ctx, "rolled back", "database", s.state.Database, "schema", s.schema, "from", result.From, "to", result.To)
	return result, nil
}

// exec runs statements in a transaction where unqualified names mean one schema only. The settings end with the
// transaction.
func (s *session) exec(ctx context.Context, statements ...string) error {
	return s.inTx(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, strings.Join(statements, ";\n"))
		return err
	})
}

// inTx runs do in a transaction with the settings of exec.
func (s *session) inTx(ctx context.Context, do func(pgx.Tx) error) error {
	begin := []string{
		"BEGIN ISOLATION LEVEL READ COMMITTED",
		"SET LOCAL search_path = " + pgx.Identifier{s.schema}.Sanitize(),
		"SET LOCAL lock_timeout = " + lockTimeout,
		"SET LOCAL statement_timeout = 0",
		"SET LOCAL " + citusPropagation + " = off",
	}
	return pgx.BeginTxFunc(ctx, s.conn, pgx.TxOptions{BeginQuery: strings.Join(begin, ";")}, do)
}

// retryLocked repeats try after a failure because of a locked table or a deadlock.
func (s *session) retryLocked(ctx context.Context, try func() error) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := try()
		if state := sqlState(err); state != "55P03" && state != "40P01" {
			return err
		}
		s.log.WarnContext(ctx, "a table is locked; retrying", "schema", s.schema, "error", err)
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; last try: %w", ctx.Err(), err)
		case <-time.After(lockPause):
		}
	}
}
