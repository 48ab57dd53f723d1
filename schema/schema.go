// Package schema makes, checks and takes down the tables this library works on, and converts those of FlowFabric.
//
// The migrations in migrations/ have dbmate's form; schema.sql is their committed sum. [Migrate] applies them
// to an empty database or to one an older version of this library made, on a pool, a connection or a URL:
//
//	if _, err := schema.Migrate(ctx, pool, schema.Options{}); err != nil { … }
//
// [SQL] gives them to other migrators. A database made by FlowFabric 0.15 is converted by [Adopt]. FlowFabric can work on
// either afterwards: its tables keep their names, columns and ledger, and what this library adds bears the prefix ffx_.
//
// Names are unqualified everywhere, so a search_path chooses the schema and one database may hold
// several engines. Which migrations a schema holds is recorded in its table ffx_schema_migrations.
package schema

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"log/slog"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migrations returns the migration files, for programs that apply them by dbmate's own command.
func Migrations() fs.FS {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return migrations // cannot be: the folder is part of this package
	}
	return files
}

const (
	// Version is the newest migration: the version of a database that this build works on.
	Version = "20261125000019"

	// baseline is the last migration that only makes what the reference has too, and baselineLedger is its file: it makes
	// FlowFabric's ledger.
	baseline       = "20261101000008"
	baselineLedger = "20261101000008_reference"

	// firstOwn is the first migration after them. Migrations with versions in between were never released.
	firstOwn = "20261125000001"

	ledgerTable = "ffx_schema_migrations"
)

// Options are common to the operations of this package. The zero value is usable.
type Options struct {
	// Schema is the schema to work in; Migrate creates it if it does not exist. It has no dot in its name. Empty: the
	// first existing one of the connection's search_path, which the URL, the pool, the role or the server sets.
	Schema string

	// Log receives progress and warnings. Nil: nothing is logged.
	Log *slog.Logger

	// AllowNewerReference accepts a database that a newer FlowFabric than 0.15 has migrated. Its
	// tables may then differ from what this library expects.
	AllowNewerReference bool
}

func (o Options) log() *slog.Logger {
	if o.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return o.Log
}

// Result tells what an operation did; it is empty after an error.
type Result struct {
	// From and To are the newest migration before and after; empty means none.
	From, To string
	// Applied are the migrations applied, oldest first, or taken back, newest first.
	Applied []string
}

// Migrate brings the database to [Version]: an empty one, or one an older version of this library
// made. Calling it again does nothing. One that a newer version migrated, and that this one may work on, it
// leaves alone; Result.To then tells that version.
//
// Calls from several processes, and a starting FlowFabric server, wait for each other, as long as ctx lets them,
// behind one advisory lock of the database. It is a transaction's, on a connection of its own, and so holds behind a
// transaction pooler too. A call whose lock is lost with that connection begins no further migration.
//
// Each migration is a transaction of its own; after a failure the next call goes on where this one
// stopped. A migration that finds a table locked for two seconds lets others pass and tries again.
// The end of ctx is noticed between tries; a migration that is being applied runs to its end.
//
// Errors: a [*StateError] when the database is not one to migrate: [ErrNoDatabase], [ErrReadOnly],
// [ErrNotAdopted], [ErrTooNew], [ErrTooOld], [ErrDirty], [ErrForeign], [ErrDistributed], [ErrEncoding] or [ErrUnreleased]; nothing
// is changed then. A statement that fails is named by file and line, and errors.As finds its *pgconn.PgError.
func Migrate[D Database](ctx context.Context, database D, opts Options) (Result, error) {
	return change(ctx, database, opts, func(ctx context.Context, s *session) (Result, error) {
		if s.state.unconverted() {
			return Result{}, s.state.notAdopted()
		}
		return s.migrate(ctx)
	})
}

// Plan tells what [Migrate] would do, and changes nothing: Result.Applied is what it would apply. It takes no lock, so
// another process may be about to do that.
//
// Errors: those by which Migrate refuses the database.
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

// Rollback takes back every migration newer than the version to, newest first; with to empty all of
// them, and the schema is left without a table of this library. The data in what is dropped is lost.
//
// What [Adopt] set aside is left.
//
// Errors: as Migrate, and [ErrTooNew] for every database that a newer version migrated.
func Rollback[D Database](ctx context.Context, database D, to string, opts Options) (Result, error) {
	return change(ctx, database, opts, func(ctx context.Context, s *session) (Result, error) {
		switch {
		case s.state.Origin == OriginNone:
			return Result{}, nil
		case s.state.unconverted():
			return Result{}, s.state.notAdopted()
		case s.state.newer():
			return Result{}, s.state.refuse(ErrTooNew, fmt.Sprintf("its version is %s, this build cannot take that back", s.state.Version))
		case to != "" && !s.state.knows(to):
			return Result{}, errUnknown(to)
		}
		return s.rollback(ctx, to)
	})
}

func errUnknown(version string) error { return fmt.Errorf("schema: there is no migration %q", version) }

// Status tells what the database holds and which migrations are pending; it changes nothing. A
// database that [Check] would refuse is not an error here: see [State.Err].
//
// Errors: [ErrNoDatabase] or [ErrDenied] in a [*StateError], or a failure to connect or read.
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

// Check tells whether an engine can work on the database: nil when its schema is at [Version], or at a newer one
// that lets this one work beside it, and writable. Of the latter opts.Log is warned. It takes a connection, a pool or
// a transaction, and only reads. It looks at opts.Schema; an engine at the first schema of the search_path.
//
// Errors: a [*StateError] around one of the sentinels of this package, which say what to do next.
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
