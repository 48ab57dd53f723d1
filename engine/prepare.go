package engine

import (
	"context"
	"fmt"
	"strings"

	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/postgres"
)

// SchemaVersion is the newest migration known to this version of the engine.
const SchemaVersion = "20261125000037"

// Migrations with versions between these two were never released.
const (
	lastShared = "20261101000008" // the last migration of tables shared with FlowFabric
	firstOwn   = "20261125000001"
)

// Prepare checks that the database is ready for this engine and the program has its rights. It changes nothing; call it
// once at the start. Without roles it checks the rights of a creator and a worker; operators and smaller programs name
// their roles. A database migrated by a newer, compatible version is accepted, with a warning to [Config].Log.
//
// Errors, each with the next step: [fferr.ErrUnavailable] without a connection; [fferr.ErrDenied] for a failed login,
// or in a [*fferr.DeniedError] for missing rights, with the GRANT statements; [fferr.ErrInvalidInput] for an unknown
// role; [fferr.ErrNotMigrated] for missing or older tables; [fferr.ErrTooNew] for tables of a newer, incompatible
// version; [fferr.ErrCorruption] if [Config].Partitions does not fit the stored flows or budgets, naming the number
// that fits; [fferr.ErrDistributed] if Citus manages the tables; [fferr.ErrEncoding] for another encoding than UTF8;
// [fferr.ErrUnsupportedServer] for another product; [fferr.ErrReadOnly] on a standby or a read-only server;
// [fferr.ErrUnsupported] in an [*fferr.UnsupportedError] if another schema of the search_path shadows a function or
// table.
func (e *Engine) Prepare(ctx context.Context, roles ...Role) error {
	const op = "prepare"
	unfit, err := postgres.Unfit(ctx, e.c.Reader())
	if err != nil {
		return core.Wrap(op, err)
	}
	if unfit != "" {
		return fmt.Errorf("%s: %w: %s", op, fferr.ErrUnsupportedServer, unfit)
	}
	found, err := e.c.Q.GetSchemaState(ctx, e.c.Reader())
	if err != nil {
		return core.Wrap(op, err)
	}
	switch {
	case found.Encoding != "UTF8":
		return fmt.Errorf("%s: %w: it is %s: create a database with ENCODING 'UTF8' TEMPLATE template0", op, fferr.ErrEncoding, found.Encoding)
	case !found.Migrated && found.ReferenceMade, found.Partitioned:
		return fmt.Errorf("%s: %w: made by FlowFabric and not adopted yet: run schema.Adopt", op, fferr.ErrNotMigrated)
	case !found.Migrated && found.DeniedSchema != "":
		return core.Wrap(op, &fferr.DeniedError{User: found.RoleName, Grants: []string{"GRANT USAGE ON SCHEMA " + found.DeniedSchema + " TO " + found.RoleName}})
	case !found.Migrated:
		return fmt.Errorf("%s: %w: run `ff migrate up` or schema.Migrate", op, fferr.ErrNotMigrated)
	case found.ReadOnly:
		return fmt.Errorf("%s: %w: connect to the primary", op, fferr.ErrReadOnly)
	}
	if err := e.checkRights(ctx, roles); err != nil {
		return core.Wrap(op, err)
	}
	if err := e.checkVersion(ctx, op, found.Declared); err != nil {
		return err
	}
	if err := e.checkPath(ctx); err != nil {
		return core.Wrap(op, err)
	}
	if err := e.checkPartitions(ctx); err != nil {
		return core.Wrap(op, err)
	}
	if found.HasCitus {
		return e.checkCitus(ctx, op)
	}
	return nil
}

// checkVersion compares the version of the library with the version of the database, and with the oldest version
// declared compatible by the database, if any.
func (e *Engine) checkVersion(ctx context.Context, op string, declared bool) error {
	ledger, err := e.c.Q.GetSchemaVersion(ctx, e.c.Reader())
	if err != nil {
		return core.Wrap(op, err)
	}
	if ledger.Converting {
		return fmt.Errorf("%s: %w: made by FlowFabric and only partly converted: run schema.Adopt again", op, fferr.ErrNotMigrated)
	}
	version := ledger.Version
	newer := version > SchemaVersion
	switch {
	case declared:
		from, err := e.c.Q.GetUsableFrom(ctx, e.c.Reader())
		switch {
		case err != nil:
			return core.Wrap(op, err)
		case !isVersion(from) || from > SchemaVersion:
			return fmt.Errorf("%s: %w: it is at %s, for versions from %q on, and this library is %s: upgrade the library",
				op, fferr.ErrTooNew, version, from, SchemaVersion)
		}
	case newer:
		return fmt.Errorf("%s: %w: it is at %s, this library knows %s: upgrade the library", op, fferr.ErrTooNew, version, SchemaVersion)
	}
	switch {
	case version > lastShared && version < firstOwn:
		return fmt.Errorf("%s: %w: it is at %s, of a version of the library that was never released: "+
			"copy the data you need, drop the schema and run `ff migrate up`", op, fferr.ErrNotMigrated, version)
	case version < SchemaVersion:
		return fmt.Errorf("%s: %w: it is at %q, this library needs %s: run `ff migrate up`", op, fferr.ErrNotMigrated, version, SchemaVersion)
	case newer:
		e.cfg.Log.WarnContext(ctx, "a newer version of the library migrated the database; this one may work on it: upgrade this process",
			"database_version", version, "version", SchemaVersion)
	}
	return nil
}

// checkPath refuses a search_path with functions or tables in several schemas.
func (e *Engine) checkPath(ctx context.Context) error {
	found, err := e.c.Q.ListShadowing(ctx, e.c.Reader(), 1)
	if err != nil || len(found) == 0 {
		return err
	}
	f := found[0]
	return &fferr.UnsupportedError{Reason: fmt.Sprintf(
		"%s of schema %q would be used instead of that of schema %q, which has the tables: drop it, or let the search_path begin with %q",
		f.Object, f.SchemaName, f.HomeName, f.HomeName)}
}

// isVersion reports whether text can be compared with [SchemaVersion].
func isVersion(text string) bool {
	return len(text) == len(SchemaVersion) && strings.Trim(text, "0123456789") == ""
}

func (e *Engine) checkCitus(ctx context.Context, op string) error {
	managed, err := e.c.Q.ListCitusTables(ctx, e.c.Reader(), 1)
	switch {
	case err != nil:
		return core.Wrap(op, err)
	case len(managed) > 0:
		return fmt.Errorf("%s: %w: %s is one of its tables: make all tables of the schema local by undistribute_table", op, fferr.ErrDistributed, managed[0])
	}
	return nil
}
