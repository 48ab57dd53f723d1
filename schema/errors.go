package schema

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// What keeps a database from being used. Each comes in a [*StateError].
var (
	// ErrNoDatabase: the server has no database of that name. Create it.
	ErrNoDatabase = errors.New("the database does not exist")
	// ErrNotMigrated: the schema is empty. Call [Migrate].
	ErrNotMigrated = errors.New("the database is not migrated")
	// ErrNotAdopted: FlowFabric made the database, and it is not converted, or not to the end. Call [Adopt].
	ErrNotAdopted = errors.New("the database was made by FlowFabric and is not adopted")
	// ErrPartitions: rows stand in other partitions than the numbers of partitions give. Pass [Adopt] those that
	// FlowFabric worked with.
	ErrPartitions = errors.New("rows stand in other partitions")
	// ErrDifferent: a copy differs from its original, since another program wrote while [Adopt] worked. Stop it, drop this
	// library's tables, rename the old ones back, and adopt again, see docs/database.md.
	ErrDifferent = errors.New("a copied table differs from its original")
	// ErrTooOld: migrations are missing. Call [Migrate], or, when it is the reference's that are
	// missing, start a FlowFabric 0.15 server once.
	ErrTooOld = errors.New("the database is too old")
	// ErrTooNew: a newer version of this library, or of FlowFabric, migrated the database, and this one
	// cannot work on it. Use that version, or, in the second case, [Options.AllowNewerReference].
	ErrTooNew = errors.New("the database is too new")
	// ErrDirty: a migration of the reference is recorded as failed. Repair it by hand.
	ErrDirty = errors.New("the database is dirty")
	// ErrForeign: tables are there that neither this library nor FlowFabric 0.15 leaves behind. Look
	// at them, or choose another schema.
	ErrForeign = errors.New("the schema holds tables of unknown origin")
	// ErrDistributed: Citus manages tables of this library. Its statements do not work on such, and may
	// bring the server down. Make them local again by Citus's undistribute_table, or choose another schema.
	ErrDistributed = errors.New("tables are managed by Citus")
	// ErrEncoding: the database stores text in another encoding than UTF8, and cannot hold all text that callers give. Create
	// one with ENCODING 'UTF8' TEMPLATE template0.
	ErrEncoding = errors.New("the database's encoding is not UTF8")
	// ErrUnreleased: a version of this library that was never released migrated the database, by migrations that no
	// longer exist. Copy the data you need, drop the schema, and call [Migrate].
	ErrUnreleased = errors.New("the database was migrated by an unreleased version")
	// ErrMoved: the schema was renamed, or restored under another name, and functions still work in the old one. Call
	// [Repair], or run the statements that the error names.
	ErrMoved = errors.New("functions work in another schema")
	// ErrDenied: the server refused the user, its password or its rights. Correct the URL, or grant the
	// user what it lacks: Migrate and Adopt need the right to create in the schema, and own what they change.
	ErrDenied = errors.New("the database denies access")
	// ErrReadOnly: the server is a standby, or transactions are read-only. Connect to the primary.
	ErrReadOnly = errors.New("the database is read-only")
)

// A StateError tells why a database cannot be used, migrated or adopted. Except for [ErrDifferent], nothing was changed.
type StateError struct {
	// Err is one of the sentinels of this package; errors.Is finds it.
	Err error
	// Detail says what was found; it may be empty.
	Detail string
	// Database and Schema are empty where no connection came about.
	Database, Schema string

	cause error // the driver's, if it says more
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

// Unwrap returns e.Err and, where the driver's error says more, that one.
func (e *StateError) Unwrap() []error {
	if e.cause == nil {
		return []error{e.Err}
	}
	return []error{e.Err, e.cause}
}

// classify wraps a database error; those that tell the state of the database become a StateError.
func classify(doing string, err error) error {
	switch code := sqlState(err); {
	case code == "3D000":
		return &StateError{Err: ErrNoDatabase}
	case code == "25006":
		return &StateError{Err: ErrReadOnly}
	case code == "42501", strings.HasPrefix(code, "28"):
		pgErr, _ := errors.AsType[*pgconn.PgError](err)
		return &StateError{Err: ErrDenied, Detail: doing + ": " + pgErr.Message, cause: err}
	}
	return fmt.Errorf("schema: %s: %w", doing, err)
}

func sqlState(err error) string {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pgErr.Code
	}
	return ""
}
