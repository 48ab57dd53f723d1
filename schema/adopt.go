package schema

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/id"
)

// A conversion is recorded in this library's ledger, a row for each step that is done.
const (
	// adopted is the last row: the database is like any other from then on.
	adopted = "adopted"

	stepCheck   = "adopt/check"
	stepAside   = "adopt/aside"
	stepCopy    = "adopt/copy/"    // and an old table or partition
	stepVerify  = "adopt/verify/"  // and a table
	stepRewrite = "adopt/rewrite/" // and a table

	// asidePrefix begins the names of the tables, indexes and sequences that FlowFabric made, once they are set aside.
	asidePrefix = "old_"
)

// referenceTables are the tables of FlowFabric, in the order in which they are converted.
var referenceTables = []string{
	"ff_partition_config", "ff_migration_annotation", "ff_lane_registry", "ff_waitpoint_hmac",
	"ff_flow_core", "ff_flow_summary", "ff_edge", "ff_edge_group", "ff_pending_cancel_groups", "ff_cancel_dispatch_outbox",
	"ff_cancel_backlog", "ff_cancel_backlog_member",
	"ff_exec_core", "ff_attempt", "ff_claim_grant",
	"ff_suspension_current", "ff_waitpoint_pending", "ff_suspend_dedup",
	"ff_stream_frame", "ff_stream_summary", "ff_stream_meta",
	"ff_completion_event", "ff_lease_event", "ff_signal_event", "ff_operator_event",
	"ff_budget_policy", "ff_budget_usage", "ff_budget_usage_dedup", "ff_budget_usage_by_exec",
	"ff_quota_policy", "ff_quota_window", "ff_quota_admitted",
	"ff_worker_registry", "ff_worker_registry_event",
}

// AdoptOptions choose what [Adopt] does. The zero value is for a server of FlowFabric with its default settings.
type AdoptOptions struct {
	Options

	// Partitions are the numbers of partitions that FlowFabric worked with: its FF_FLOW_PARTITIONS, FF_BUDGET_PARTITIONS and
	// FF_QUOTA_PARTITIONS. Zero: its defaults. They must be those that the engine gets.
	Partitions id.Partitions

	// WaitpointTokenGrace is how long the tokens that a replaced waitpoint key signed are still accepted, from its
	// replacement. Zero: a day.
	WaitpointTokenGrace time.Duration
}

// Converted tells what [Adopt] did to a table.
type Converted struct {
	Table string
	// Copied are the rows copied from the table that FlowFabric made, Rewritten those that were then brought into the form
	// of this library, in this call.
	Copied, Rewritten int64
}

// AdoptResult tells what [Adopt] did; it is empty after an error.
type AdoptResult struct {
	Result

	// Tables are the tables with rows that this call copied or rewrote.
	Tables []Converted
	// Unread describes what could not be decoded and was left as it was, a line each.
	Unread []string
}

// Adopt converts a database that FlowFabric 0.15 made, whatever its physical layout, into one like those that [Migrate]
// makes: it sets the tables of FlowFabric aside under names that begin with old_, makes this library's, copies the rows,
// compares counts and checksums, and rewrites what FlowFabric left in forms of its own. The old rows are never changed;
// [DropAdopted] drops them. Event ids and cursors stay valid. Grants on the old tables do not apply to the new ones. On a
// database of this library it does what Migrate does.
//
// Stop FlowFabric and all programs of this library first. The database needs free disk space for a second copy. Until
// the conversion is done every program of this library refuses the database, with [ErrNotAdopted]; a starting server of
// FlowFabric waits while a call is under way.
//
// Each step commits by itself and is recorded in ffx_schema_migrations. After an error, or the end of ctx, the next call
// continues where this one stopped. AdoptOptions.Log receives the progress of each table. On two busy cores a million rows
// in 256 partitions took 45 s.
//
// Errors: as Migrate; [ErrNotMigrated] for an empty database; [ErrPartitions] if Partitions does not fit the rows;
// [ErrForeign] if a table of FlowFabric is missing; [ErrDifferent] if a copy differs from its original.
func Adopt[D Database](ctx context.Context, database D, opts AdoptOptions) (AdoptResult, error) {
	var adopted AdoptResult
	if err := opts.Partitions.Validate(); err != nil {
		return adopted, fmt.Errorf("schema: %w", err)
	}
	if opts.WaitpointTokenGrace < 0 {
		return adopted, errors.New("schema: WaitpointTokenGrace is negative")
	}
	result, err := change(ctx, database, opts.Options, func(ctx context.Context, s *session) (Result, error) {
		switch s.state.Origin {
		case OriginNone:
			return Result{}, s.state.refuse(ErrNotMigrated, "there is nothing to adopt")
		case OriginOwn, OriginAdopted:
			return s.migrate(ctx)
		}
		c := &conversion{
			session: s, partitions: opts.Partitions.WithDefaults(),
			tokenGrace: cmp.Or(opts.WaitpointTokenGrace, defaultTokenGrace), counts: map[string]*Converted{},
		}
		result, err := c.convert(ctx)
		adopted.Tables, adopted.Unread = c.tables(), c.unread
		return result, err
	})
	if err != nil {
		return AdoptResult{}, err
	}
	adopted.Result = result
	return adopted, nil
}

// conversion is a call of [Adopt] on a database that FlowFabric made.
type conversion struct {
	*session
	partitions id.Partitions
	tokenGrace time.Duration
	counts     map[string]*Converted
	unread     []string
}

// convert takes the steps that are not recorded yet.
func (c *conversion) convert(ctx context.Context) (Result, error) {
	result := Result{From: c.state.Version}
	c.log.InfoContext(ctx, "adopting", "database", c.state.Database, "schema", c.schema)
	for _, step := range []struct {
		row  string // empty: the step records its parts
		take func(context.Context) error
	}{
		{stepCheck, c.check},
		{stepAside, c.setAside},
		{"", func(ctx context.Context) error {
			applied, err := c.makeTables(ctx)
			result.Applied = applied
			return err
		}},
		{"", c.copyTables},
		{"", c.verifyTables},
		{"", c.rewriteTables},
	} {
		if step.row != "" && c.state.steps[step.row] {
			continue
		}
		if err := step.take(ctx); err != nil {
			return Result{}, err
		}
	}
	if err := c.finish(ctx); err != nil {
		return Result{}, err
	}
	result.To = Version
	c.log.InfoContext(ctx, "adopted", "database", c.state.Database, "schema", c.schema)
	return result, nil
}

// finish makes the planner know the new tables, and the database usable.
func (c *conversion) finish(ctx context.Context) error {
	if err := c.exec(ctx, "ANALYZE "+strings.Join(c.qualified(referenceTables), ", ")); err != nil {
		return classify("analyse the new tables", err)
	}
	return classifyNil("record the conversion", c.once(ctx, adopted, nameNotNulls))
}

// nameNotNulls gives the NOT NULL constraints of the new tables the names that they have in other databases. PostgreSQL has
// such constraints since 18. It numbered their names, because tables that are set aside keep theirs.
const nameNotNulls = `
DO $names$
DECLARE
    made record;
BEGIN
    FOR made IN
        SELECT t.relname, c.conname, regexp_replace(c.conname, '_not_null[0-9]+$', '_not_null') AS plain
        FROM pg_constraint AS c
        JOIN pg_class AS t ON t.oid = c.conrelid
        WHERE
            t.relnamespace = current_schema()::regnamespace
            AND t.relname LIKE 'ff\_%'
            AND c.contype = 'n'
            AND c.conname ~ '_not_null[0-9]+$'
    LOOP
        EXECUTE format('ALTER TABLE %I RENAME CONSTRAINT %I TO %I', made.relname, made.conname, made.plain);
    END LOOP;
END;
$names$`

// once runs statements and records them as a step, in one transaction.
func (c *conversion) once(ctx context.Context, row string, statements ...string) error {
	return c.retryLocked(ctx, func() error {
		if err := c.lockStands(ctx); err != nil {
			return err
		}
		return c.exec(ctx, append(statements, record(row))...)
	})
}

// count returns the numbers of a table.
func (c *conversion) count(table string) *Converted {
	if c.counts[table] == nil {
		c.counts[table] = &Converted{Table: table}
	}
	return c.counts[table]
}

// tables returns the numbers of the tables with any, in order.
func (c *conversion) tables() []Converted {
	var tables []Converted
	for _, table := range referenceTables {
		if n := c.counts[table]; n != nil && n.Copied+n.Rewritten > 0 {
			tables = append(tables, *n)
		}
	}
	return tables
}

// qualified returns the names of tables as they stand in SQL.
func (c *conversion) qualified(tables []string) []string {
	names := make([]string, len(tables))
	for i, table := range tables {
		names[i] = c.name(table)
	}
	return names
}

// name returns the name of an object of the schema as it stands in SQL.
func (c *conversion) name(object string) string { return pgx.Identifier{c.schema, object}.Sanitize() }

// classifyNil is [classify] of an error that may be nil.
func classifyNil(doing string, err error) error {
	if err == nil {
		return nil
	}
	return classify(doing, err)
}

// DropAdopted drops the tables of FlowFabric that [Adopt] set aside, one in a transaction, and returns their names in
// Result.Applied. What is dropped is lost, so make sure that the converted database works. Without any it does nothing.
//
// Dropping a table of 256 partitions needs up to 1,300 locks at once; a server with max_connections and
// max_locks_per_transaction at their defaults has 6,400.
//
// Errors: as [Migrate], and [ErrNotAdopted] while the conversion is not done.
func DropAdopted[D Database](ctx context.Context, database D, opts Options) (Result, error) {
	return change(ctx, database, opts, func(ctx context.Context, s *session) (Result, error) {
		if err := s.state.refusal(opts); err != nil {
			return Result{}, err
		}
		result := Result{From: s.state.Version, To: s.state.Version}
		if s.state.Origin != OriginAdopted {
			return result, nil
		}
		for _, table := range referenceTables {
			name := pgx.Identifier{s.schema, asidePrefix + table}.Sanitize()
			var there bool
			if err := s.conn.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", name).Scan(&there); err != nil {
				return Result{}, classify("look for "+asidePrefix+table, err)
			}
			if !there {
				continue
			}
			if err := s.retryLocked(ctx, func() error { return s.exec(ctx, "DROP TABLE "+name) }); err != nil {
				return Result{}, classify("drop "+asidePrefix+table, err)
			}
			result.Applied = append(result.Applied, asidePrefix+table)
			s.log.InfoContext(ctx, "dropped", "table", asidePrefix+table, "schema", s.schema)
		}
		return result, nil
	})
}
