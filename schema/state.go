package schema

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/postgres"
)

// Origin is the program behind the tables of a schema.
type Origin string

// Origins of a schema's tables.
const (
	// OriginNone: the schema has no tables of the library or of FlowFabric.
	OriginNone Origin = "none"
	// OriginOwn: the library made the tables.
	OriginOwn Origin = "own"
	// OriginReference: FlowFabric made the tables.
	OriginReference Origin = "reference"
	// OriginConverting: FlowFabric made the tables and [Adopt] has begun the conversion.
	OriginConverting Origin = "converting"
	// OriginAdopted: FlowFabric made the tables and [Adopt] has completed the conversion.
	OriginAdopted Origin = "adopted"
)

// Migration is a migration of the library. Name is the file's name without extension.
type Migration struct {
	Version, Name string
	Applied       bool
}

// State is the state of a database.
type State struct {
	Database string
	// Schema is empty if the schema in [Options] does not exist, or no schema of the search_path does.
	Schema string
	Origin Origin
	// Version is the newest applied migration of the library, even if unknown to this build. Empty: none.
	Version string
	// UsableFrom is the oldest version of the library allowed to use the database, as declared by the migrations. Empty:
	// there is no declaration. If Version is newer than this build's, the build may use the database unless UsableFrom is
	// newer too.
	UsableFrom string
	// Migrations lists the migrations known to this build, oldest first.
	Migrations []Migration
	// Warnings lists remarks without an effect on the use of the database.
	Warnings []string
	// Err is the error from [Check]. Only [Status] sets Err.
	Err error

	readOnly bool
	encoding string
	// partitioned is set if the tables are FlowFabric's.
	partitioned bool
	// steps are the ledger's rows of an unfinished conversion.
	steps map[string]bool
	// adopted is set if a conversion is done.
	adopted bool
	// moved lists the functions with another schema, with their arguments.
	moved []string
	// citus is a table of the library managed by Citus, if any.
	citus string
	// unreleased is the newest migration in the ledger without a released version, or empty.
	unreleased string
	// foreign describes the problem with tables not explained by a ledger.
	foreign   string
	reference referenceLedger
}

// Querier is a pgx connection, pool or transaction, from which [Check] reads.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// inspect reads the state of the named schema or, without a name, of the first one of the search_path. inspect follows
// the recognition procedure of the specification (data model, section 9.3).
func inspect(ctx context.Context, db Querier, schema string) (State, error) {
	var (
		state                         State
		hasLedger, hasReferenceLedger bool
		hasCore, hasAnything          bool
		declares, hasCitus            bool
	)
	if err := supported(ctx, db); err != nil {
		return State{}, err
	}
	err := db.QueryRow(ctx, `
		WITH namespace AS (
			SELECT
				oid,
				nspname
			FROM pg_namespace
			-- current_schema() is NULL when nothing of the search_path exists.
			WHERE nspname = coalesce(nullif($1, ''), current_schema())
		)
		SELECT
			current_database(),
			coalesce((SELECT nspname FROM namespace), ''),
			current_setting('transaction_read_only') = 'on',
			current_setting('server_encoding'),
			coalesce(bool_or(relname = 'ffx_schema_migrations'), false),
			coalesce(bool_or(relname = '_sqlx_migrations'), false),
			coalesce(bool_or(relname IN ('ff_exec_core', 'ff_migration_annotation')), false),
			coalesce(bool_or(relname = 'ff_exec_core'), false),
			coalesce(bool_or(relname = 'ff_exec_core' AND relkind = 'p'), false),
			EXISTS (
				SELECT FROM pg_proc
				WHERE
					pronamespace = (SELECT oid FROM namespace)
					AND proname = 'ffx_usable_from'
					AND pronargs = 0
			),
			to_regclass('pg_dist_partition') IS NOT NULL
		FROM pg_class
		WHERE
			relnamespace = (SELECT oid FROM namespace)
			AND relname IN ('ffx_schema_migrations', '_sqlx_migrations', 'ff_exec_core', 'ff_migration_annotation')`,
		schema,
	).Scan(
		&state.Database, &state.Schema, &state.readOnly, &state.encoding,
		&hasLedger, &hasReferenceLedger, &hasAnything, &hasCore, &state.partitioned,
		&declares, &hasCitus,
	)
	if err != nil {
		return State{}, classify("inspect the database", err)
	}
	if state.Migrations, err = knownMigrations(); err != nil {
		return State{}, err
	}
	if hasLedger {
		if err := state.readLedger(ctx, db); err != nil {
			return State{}, err
		}
	}
	if declares {
		if err := state.readDeclaration(ctx, db); err != nil {
			return State{}, err
		}
	}
	if hasCitus {
		if state.citus, err = citusTable(ctx, db, state.Schema); err != nil {
			return State{}, err
		}
	}
	if hasReferenceLedger {
		if state.reference, err = readReferenceLedger(ctx, db, state.Schema); err != nil {
			return State{}, err
		}
		state.Warnings = state.reference.warnings()
	}
	if state.newer() && state.newerRefusal() == nil {
		state.Warnings = append(state.Warnings, fmt.Sprintf(
			"a newer version of this library migrated it to %s; this build knows %s and may use it", state.Version, Version))
	}

	switch {
	case len(state.steps) > 0:
		state.Origin = OriginConverting
	case state.Version != "" && state.adopted:
		state.Origin = OriginAdopted
	case state.Version != "":
		state.Origin = OriginOwn
	case hasLedger && hasAnything:
		state.Origin = OriginOwn
		state.foreign = ledgerTable + " records nothing, but tables exist"
	case len(state.reference) > 0:
		state.Origin = OriginReference
	case hasAnything:
		state.Origin = OriginReference
		if state.foreign, err = missingStructure(ctx, db, state.Schema); err != nil {
			return State{}, err
		}
	default:
		state.Origin = OriginNone
	}
	if state.Version != "" && hasCore {
		if err := state.readMoved(ctx, db); err != nil {
			return State{}, err
		}
	}
	if state.Version != "" && !hasCore && state.Origin != OriginConverting {
		state.foreign = ledgerTable + " records migrations, but ff_exec_core does not exist"
	}
	return state, nil
}

// supported returns an error if the server is not PostgreSQL, or does not behave as one.
func supported(ctx context.Context, db Querier) error {
	unfit, err := postgres.Unfit(ctx, db)
	if err != nil {
		return classify("ask the server what it is", err)
	}
	if unfit != "" {
		return &StateError{Err: fferr.ErrUnsupportedServer, Detail: unfit}
	}
	return nil
}

// readLedger fills in the applied migrations and the steps of a conversion.
func (s *State) readLedger(ctx context.Context, db Querier) error {
	ledger := pgx.Identifier{s.Schema, ledgerTable}.Sanitize()
	// A conversion leaves thousands of rows.
	rows, err := db.Query(ctx, "SELECT version FROM "+ledger+" WHERE version NOT LIKE 'adopt/%' OR NOT EXISTS (SELECT FROM "+
		ledger+" WHERE version = $1) ORDER BY version", adopted)
	if err != nil {
		return classify("read the ledger", err)
	}
	versions, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return classify("read the ledger", err)
	}
	s.steps = map[string]bool{}
	for _, version := range versions {
		if made, _, _ := strings.Cut(version, "/"); made > baseline && made < firstOwn {
			s.unreleased = made
		}
		switch {
		case version == adopted:
			s.adopted = true
		case strings.HasPrefix(version, "adopt/"):
			s.steps[version] = true
		case strings.Contains(version, "/"): // a part of a migration, of an unreleased version
		default:
			s.Version = max(s.Version, version)
			if i := s.index(version); i >= 0 {
				s.Migrations[i].Applied = true
			}
		}
	}
	return nil
}

// citusTable returns a table of the library in the schema managed by Citus, or "". For Citus a table may be
// distributed, a reference table, the only shard of a distributed schema, or local but planned by Citus. The last kind
// is refused like the others, since untested.
func citusTable(ctx context.Context, db Querier, schema string) (string, error) {
	var name string
	err := db.QueryRow(ctx, `
		SELECT coalesce(min(relname), '')
		FROM pg_dist_partition
		JOIN pg_class ON pg_class.oid = logicalrelid
		WHERE
			relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1)
			AND relname ~ '^ffx?_'`,
		schema,
	).Scan(&name)
	if err != nil {
		return "", classify("read the tables of Citus", err)
	}
	return name, nil
}

func (s *State) index(version string) int {
	return slices.IndexFunc(s.Migrations, func(m Migration) bool { return m.Version == version })
}

func (s *State) knows(version string) bool { return s.index(version) >= 0 }

// pending returns the migrations still to apply.
func (s *State) pending() []string {
	var names []string
	for _, m := range s.Migrations {
		if !m.Applied {
			names = append(names, m.Name)
		}
	}
	return names
}

// refusal returns why an engine cannot work on the database, or nil.
func (s *State) refusal(opts Options) error {
	if err := s.unfit(opts); err != nil {
		return err
	}
	switch pending := s.pending(); {
	case s.Origin == OriginNone:
		return s.refuse(fferr.ErrNotMigrated, "")
	case s.unconverted():
		return s.notAdopted()
	case len(pending) > 0:
		return s.refuse(ErrTooOld, "pending: "+strings.Join(pending, ", "))
	case len(s.moved) > 0:
		return s.movedRefusal()
	case s.readOnly:
		// Check this last: readers ignore ErrReadOnly, so all other errors must come first.
		return s.refuse(fferr.ErrReadOnly, "")
	}
	return nil
}

// unconverted reports whether FlowFabric made the tables and no conversion is done.
func (s *State) unconverted() bool {
	return s.Origin == OriginReference || s.Origin == OriginConverting
}

func (s *State) notAdopted() error {
	if s.Origin == OriginConverting {
		return s.refuse(ErrNotAdopted, "its conversion is not finished")
	}
	return s.refuse(ErrNotAdopted, "")
}

// obstacle returns why the database cannot be migrated or adopted, or nil.
func (s *State) obstacle(opts Options) error {
	if s.readOnly {
		return s.refuse(fferr.ErrReadOnly, "")
	}
	return s.unfit(opts)
}

// unfit returns a problem not solved by any migration of this build, or nil.
func (s *State) unfit(opts Options) error {
	switch {
	case s.encoding != "UTF8":
		return s.refuse(fferr.ErrEncoding, "it is "+s.encoding)
	case s.unreleased != "":
		return s.refuse(ErrUnreleased, "its ledger has migration "+s.unreleased+
			": copy the data you need, drop the schema and migrate anew, see docs/database.md")
	case s.foreign != "":
		return s.refuse(ErrForeign, s.foreign)
	case s.partitioned && s.Version != "" && s.Origin != OriginConverting:
		return s.refuse(ErrNotAdopted, "an unreleased version adopted it without converting it: restore a backup from before that")
	case s.citus != "":
		return s.refuse(fferr.ErrDistributed, s.citus+" is one of its tables")
	case s.newerRefusal() != nil:
		return s.newerRefusal()
	case len(s.reference) > 0:
		// Check databases of the library too: a FlowFabric server may have migrated the database since.
		if detail, sentinel := s.reference.refusal(opts.AllowNewerReference); sentinel != nil {
			return s.refuse(sentinel, detail)
		}
	}
	return nil
}

func (s *State) refuse(sentinel error, detail string) error {
	return &StateError{Err: sentinel, Detail: detail, Database: s.Database, Schema: s.Schema}
}

// knownMigrations lists the embedded migrations, oldest first.
func knownMigrations() ([]Migration, error) {
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return nil, fmt.Errorf("schema: list migrations: %w", err)
	}
	known := make([]Migration, 0, len(files))
	for _, file := range files {
		name := migrationName(strings.TrimPrefix(file, "migrations/"))
		version, _, _ := strings.Cut(name, "_")
		known = append(known, Migration{Version: version, Name: name})
	}
	return known, nil
}

func migrationName(file string) string { return strings.TrimSuffix(file, ".sql") }
