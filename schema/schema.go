// Package schema creates, checks and drops the tables of the library, and converts FlowFabric's tables.
//
// The migrations in migrations/ have dbmate's form; schema.sql is their committed sum. [Migrate] applies the migrations
// to an empty database, or to a database of an older version of the library, on a pool, a connection or a URL:
//
//	if _, err := schema.Migrate(ctx, pool, schema.Options{}); err != nil { … }
//
// [SQL] returns the migrations for other migrators. [Adopt] converts a database made by FlowFabric 0.15. FlowFabric can
// work on either afterwards: FlowFabric's tables keep the names, columns and ledger, and the library's additions have
// the prefix ffx_.
//
// Names are unqualified, so the search_path selects the schema, and one database may hold several engines. The table
// ffx_schema_migrations records the migrations of the schema.
package schema

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/flowfabric/flowfabric-go/fferr"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migrations returns the migration files, for programs applying them with dbmate itself.
func Migrations() fs.FS {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return migrations // unreachable: the folder is part of the package
	}
	return files
}

const (
	// Version is the newest migration, and so the version of databases for this build.
	Version = "20261125000037"

	// baseline is the last migration with only objects of FlowFabric. baselineLedger is the file, which creates
	// FlowFabric's ledger.
	baseline       = "20261101000008"
	baselineLedger = "20261101000008_reference"

	// firstOwn is the first migration after the baseline. Migrations with versions in between were never released.
	firstOwn = "20261125000001"

	ledgerTable = "ffx_schema_migrations"
)

// Options are common to the operations of the package. The zero value is usable.
type Options struct {
	// Schema is the schema to work in, without a dot in the name. Migrate creates a missing schema. Empty: the first
	// existing schema of the connection's search_path, set by the URL, the pool, the role or the server.
	Schema string

	// Log receives progress and warnings. Default: [slog.Default]. slog.New(slog.DiscardHandler) logs nothing.
	Log *slog.Logger

	// AllowNewerReference accepts a database migrated by a FlowFabric newer than 0.15. The tables may then differ from the
	// expected ones.
	AllowNewerReference bool
}

func (o Options) log() *slog.Logger {
	if o.Log == nil {
		return slog.Default()
	}
	return o.Log
}

// Result is the result of an operation. It is empty after an error.
type Result struct {
	// From and To are the newest migrations before and after. Empty means none.
	From, To string
	// Applied lists the applied migrations, oldest first, or the reverted ones, newest first.
	Applied []string
}

// Migrate migrates the database to [Version]. The database may be empty or made by an older version of the library. If
// a newer version migrated the database and this build may use it, nothing changes and Result.To is the newer version.
// Safe to repeat.
//
// Concurrent calls, and a starting FlowFabric server, wait for one advisory lock of the database until ctx ends. The
// lock also works behind a transaction pooler, and a call that loses the lock begins no further migration.
//
// Each migration is one transaction; after a failure the next call continues from there. If a table stays locked for two
// seconds, the migration rolls back, pauses and tries again. Migrate checks ctx between tries; a running migration is not
// interrupted.
//
// Errors: [*StateError] with [ErrNoDatabase], [fferr.ErrDenied], [fferr.ErrReadOnly], [ErrNotAdopted], [fferr.ErrTooNew],
// [ErrTooOld], [ErrDirty], [ErrForeign], [fferr.ErrDistributed], [fferr.ErrEncoding], [fferr.ErrUnsupportedServer] or
// [ErrUnreleased]; nothing was changed. An error of a statement has the file and line, and wraps a *pgconn.PgError.
func Migrate[D Database](ctx context.Context, database D, opts Options) (Result, error) {
	return change(ctx, database, opts, func(ctx context.Context, s *session) (Result, error) {
		if s.state.unconverted() {
			return Result{}, s.state.notAdopted()
		}
		return s.migrate(ctx)
	})
}

// Plan returns the result of [Migrate] without changing anything: Result.Applied lists the migrations to apply. Plan
// takes no lock, so another process may be about to apply them.
//
// Errors: the refusals of Migrate.
func Plan[D Database](ctx context.Context, database D, opts Options) (Result, error) {
	state, err := Status(ctx, database, opts)
	if err != nil {
		return Result{}, err
	}
	if err := state.obstacle(opts); err != nil {
		return Result{}, err
	}
	if state.unconverted() {
		return Result{}, state.notAdopted()
	}
	return Result{From: state.Version, To: max(state.Version, Version), Applied: state.pending()}, nil
}

// Rollback reverts every migration newer than to, newest first. If to is empty, Rollback reverts all, and no table of
// the library remains. Data in dropped objects is lost. Tables renamed by [Adopt] stay.
//
// Errors: as Migrate, and [fferr.ErrTooNew] for any database migrated by a newer version.
func Rollback[D Database](ctx context.Context, database D, to string, opts Options) (Result, error) {
	return change(ctx, database, opts, func(ctx context.Context, s *session) (Result, error) {
		switch {
		case s.state.Origin == OriginNone:
			return Result{}, nil
		case s.state.unconverted():
			return Result{}, s.state.notAdopted()
		case s.state.newer():
			return Result{}, s.state.refuse(fferr.ErrTooNew, fmt.Sprintf("its version is %s, this build cannot revert it", s.state.Version))
		case to != "" && !s.state.knows(to):
			return Result{}, errUnknown(to)
		}
		return s.rollback(ctx, to)
	})
}

func errUnknown(version string) error { return fmt.Errorf("schema: there is no migration %q", version) }

// Status returns the state of the database and the pending migrations, without changing anything. For a database
// refused by [Check], Status returns no error but sets [State.Err].
//
// Errors: [*StateError] with [ErrNoDatabase], [fferr.ErrDenied] or [fferr.ErrUnsupportedServer], or a failure to connect or
// read.
func Status[D Database](ctx context.Context, database D, opts Options) (State, error) {
	from, err := sourceOf(database, opts)
	if err != nil {
		return State{}, err
	}
	conn, giveBack, err := from.borrow(ctx)
	if err != nil {
		return State{}, err
	}
	defer giveBack()
	state, err := inspect(ctx, conn, opts.Schema)
	if err != nil {
		return State{}, err
	}
	state.Err = state.refusal(opts)
	return state, nil
}

// Check reports whether an engine can work on the database. It returns nil if the schema is writable and at [Version],
// or at a newer version usable by this build, which it logs as a warning to opts.Log. Check only reads, from
// opts.Schema or, like an engine, from the first schema of the search_path. db may be a connection, a pool or a
// transaction.
//
// Errors: [*StateError] with a sentinel of this package, whose comment names the remedy.
func Check(ctx context.Context, db Querier, opts Options) error {
	state, err := inspect(ctx, db, opts.Schema)
	if err != nil {
		return err
	}
	for _, warning := range state.Warnings {
		opts.log().WarnContext(ctx, warning, "database", state.Database, "schema", state.Schema)
	}
	return state.refusal(opts)
}
