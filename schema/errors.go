package schema

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flowfabric/flowfabric-go/fferr"
)

// Errors that make a database unusable, beside the sentinels of package fferr. Each is wrapped in a [*StateError].
var (
	// ErrNoDatabase reports that the server has no database of the name. Create the database.
	ErrNoDatabase = errors.New("the database does not exist")
	// ErrNotAdopted reports that FlowFabric made the database and [Adopt] has not converted all of it. Call [Adopt].
	ErrNotAdopted = errors.New("the database was made by FlowFabric and is not adopted")
	// ErrPartitions reports that rows are in other partitions than the configured numbers of partitions give. Pass
	// [Adopt] FlowFabric's numbers.
	ErrPartitions = errors.New("rows are in other partitions")
	// ErrDifferent reports that a copy differs from the original, because another program wrote during [Adopt]. Stop the
	// program, drop the library's tables, rename the old ones back, and adopt again; see docs/database.md.
	ErrDifferent = errors.New("a copied table differs from its original")
	// ErrTooOld reports missing migrations. Call [Migrate] or, if FlowFabric's are missing, start a FlowFabric 0.15 server
	// once.
	ErrTooOld = errors.New("the database is too old")
	// ErrDirty reports a migration of FlowFabric recorded as failed. Repair the database by hand.
	ErrDirty = errors.New("the database is dirty")
	// ErrForeign reports tables left behind by neither the library nor FlowFabric 0.15. Inspect them, or choose another
	// schema.
	ErrForeign = errors.New("the schema holds tables of unknown origin")
	// ErrUnreleased reports that an unreleased version of the library migrated the database, with migrations removed
	// since. Copy the data you need, drop the schema, and call [Migrate].
	ErrUnreleased = errors.New("the database was migrated by an unreleased version")
	// ErrMoved reports that the schema was renamed, or restored under another name, and functions still use the old one. Call
	// [Repair], or run the statements in the error.
	ErrMoved = errors.New("functions use another schema")
)

// StateError says why a database cannot be used, migrated or adopted. Except with [ErrDifferent], nothing was changed.
type StateError struct {
	// Err is a sentinel of this package or of package fferr, for errors.Is.
	Err error
	// Detail describes the problem, or is empty.
	Detail string
	// Database and Schema are empty if no connection was made.
	Database, Schema string

	cause error // the driver's error, or nil
}

func (e *StateError) Error() string {
	text := "schema: " + e.Err.Error()
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	if e.Database != "" {
		text += fmt.Sprintf(" (database %q, schema %q)", e.Database, e.Schema)
	}
	return text
}

// Unwrap returns e.Err and the driver's error, if any.
func (e *StateError) Unwrap() []error {
	if e.cause == nil {
		return []error{e.Err}
	}
	return []error{e.Err, e.cause}
}

// classify wraps a database error. Errors about the database's state become a StateError.
func classify(doing string, err error) error {
	switch code := sqlState(err); {
	case code == "3D000":
		return &StateError{Err: ErrNoDatabase}
	case code == "25006":
		return &StateError{Err: fferr.ErrReadOnly}
	case code == "42501", strings.HasPrefix(code, "28"):
		pgErr, _ := errors.AsType[*pgconn.PgError](err)
		return &StateError{Err: fferr.ErrDenied, Detail: doing + ": " + pgErr.Message, cause: err}
	}
	return fmt.Errorf("schema: %s: %w", doing, err)
}

func sqlState(err error) string {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pgErr.Code
	}
	return ""
}
