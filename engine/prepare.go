package engine

import (
	"context"
	"fmt"
	"strings"
)

// SchemaVersion is the migration that this version of the engine was written for: the newest file of the
// schema's migrations.
const SchemaVersion = "20261101000014"

// Prepare tells whether the database is fit for this engine; a program calls it once at its start. It
// changes nothing.
//
// Errors, each saying what to do next: [ErrUnavailable], no connection; [ErrNotMigrated], no tables or
// older ones; [ErrTooNew], migrated by a newer version; [ErrReadOnly], a standby or set to read only.
func (e *Engine) Prepare(ctx context.Context) error {
	const op = "prepare"
	found, err := e.q.GetSchemaState(ctx, e.reader())
	if err != nil {
		return wrap(op, err)
	}
	switch {
	case !found.Migrated && found.ReferenceMade:
		return fmt.Errorf("%s: %w: made by FlowFabric and not adopted yet: run schema.Adopt", op, ErrNotMigrated)
	case !found.Migrated:
		return fmt.Errorf("%s: %w: run `ff migrate up` or schema.Migrate", op, ErrNotMigrated)
	case found.ReadOnly:
		return fmt.Errorf("%s: %w: connect to the primary", op, ErrReadOnly)
	}
	version, err := e.q.GetSchemaVersion(ctx, e.reader())
	switch {
	case err != nil:
		return wrap(op, err)
	case strings.Compare(version, SchemaVersion) < 0:
		return fmt.Errorf("%s: %w: it is at %q, this library needs %s: run `ff migrate up`", op, ErrNotMigrated, version, SchemaVersion)
	case strings.Compare(version, SchemaVersion) > 0:
		return fmt.Errorf("%s: %w: it is at %s, this library knows %s: upgrade the library", op, ErrTooNew, version, SchemaVersion)
	}
	return nil
}
