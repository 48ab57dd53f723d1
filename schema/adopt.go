package schema

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
)

// Rows of this library's ledger for the steps of a conversion.
const (
	// adopted is the last row, which makes the database like any other.
	adopted = "adopted"

	stepCheck   = "adopt/check"
	stepRename  = "adopt/aside"
	stepCopy    = "adopt/copy/"    // followed by the name of an old table or partition
	stepVerify  = "adopt/verify/"  // followed by the name of a table
	stepRewrite = "adopt/rewrite/" // followed by the name of a table

	// oldPrefix is the new prefix of FlowFabric's renamed tables, indexes and sequences.
	oldPrefix = "old_"
)

// referenceTables lists FlowFabric's tables in the order of their conversion.
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

// AdoptOptions configures [Adopt]. The zero value is for a FlowFabric server with its default settings.
type AdoptOptions struct {
	Options

	// Partitions has FlowFabric's FF_FLOW_PARTITIONS, FF_BUDGET_PARTITIONS and FF_QUOTA_PARTITIONS. Zero: FlowFabric's
	// defaults. Pass the same values to the engine.
	Partitions id.Partitions

	// WaitpointTokenGrace is how long tokens signed with a replaced waitpoint key remain valid after the replacement.
	// Zero: a day.
	WaitpointTokenGrace time.Duration
}

// Converted reports the conversion of one table by a call of [Adopt].
type Converted struct {
	Table string
	// Copied is the number of rows copied from FlowFabric's table, Rewritten how many were then converted to the library's
	// form.
	Copied, Rewritten int64
}

// AdoptResult is the result of [Adopt], empty after an error.
type AdoptResult struct {
	Result

	// Tables lists the tables with rows copied or rewritten by this call.
	Tables []Converted
	// Unread describes undecodable data left unchanged, one line each.
	Unread []string
}

// Adopt converts a database made by FlowFabric 0.15, in any physical layout, to the library's tables. Adopt renames
// FlowFabric's tables to names with the prefix old_, creates the library's, copies the rows, compares counts and
// checksums, and rewrites forms that only FlowFabric uses. The old rows never change; [DropAdopted] drops them. Event
// ids and cursors stay valid; grants on the old tables don't carry over. On a database of the library, Adopt is
// [Migrate].
//
// Stop FlowFabric and all programs of the library first, and have free disk space for a second copy. Until the
// conversion is complete, the library refuses the database with [ErrNotAdopted], and a starting FlowFabric server waits
// for a call in progress.
//
// Each step commits by itself and is recorded in ffx_schema_migrations, so a call after an error continues where the last
// one stopped. A million rows in 256 partitions took 45 s on two busy cores.
//
// Errors: as Migrate; [fferr.ErrNotMigrated] for an empty database; [ErrPartitions] if Partitions does not fit the rows;
// [ErrForeign] if a table of FlowFabric is missing; [ErrDifferent] if a copy differs from the original.
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
			return Result{}, s.state.refuse(fferr.ErrNotMigrated, "there is nothing to adopt")
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

// conversion is one call of [Adopt] on a database made by FlowFabric.
type conversion struct {
	*session
	partitions id.Partitions
	tokenGrace time.Duration
	counts     map[string]*Converted
	unread     []string
}

// convert runs the steps not recorded yet.
func (c *conversion) convert(ctx context.Context) (Result, error) {
	result := Result{From: c.state.Version}
	c.log.InfoContext(ctx, "adopting", "database", c.state.Database, "schema", c.schema)
	for _, step := range []struct {
		row  string // empty if the step records the parts
		take func(context.Context) error
	}{
		{stepCheck, c.check},
		{stepRename, c.renameTables},
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

// finish analyzes the new tables and records the conversion, after which the database is usable.
func (c *conversion) finish(ctx context.Context) error {
	if err := c.exec(ctx, "ANALYZE "+strings.Join(c.qualified(referenceTables), ", ")); err != nil {
		return classify("analyse the new tables", err)
	}
	return classifyNil("record the conversion", c.once(ctx, adopted, nameNotNulls))
}

// nameNotNulls gives the NOT NULL constraints of the new tables their usual names. PostgreSQL has such constraints
// since 18, and numbered their names because the renamed tables keep the usual ones.
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

// once runs statements and records a step, in one transaction.
func (c *conversion) once(ctx context.Context, row string, statements ...string) error {
	return c.retryLocked(ctx, func() error {
		if err := c.lockStands(ctx); err != nil {
			return err
		}
		return c.exec(ctx, append(statements, record(row))...)
	})
}

// count returns the counters of a table.
func (c *conversion) count(table string) *Converted {
	if c.counts[table] == nil {
		c.counts[table] = &Converted{Table: table}
	}
	return c.counts[table]
}

// tables returns the counters of all tables with one, in order.
func (c *conversion) tables() []Converted {
	var tables []Converted
	for _, table := range referenceTables {
		if n := c.counts[table]; n != nil && n.Copied+n.Rewritten > 0 {
			tables = append(tables, *n)
		}
	}
	return tables
}

// qualified returns the quoted, qualified names of tables.
func (c *conversion) qualified(tables []string) []string {
	names := make([]string, len(tables))
	for i, table := range tables {
		names[i] = c.name(table)
	}
	return names
}

// name returns the quoted, qualified name of an object of the schema.
func (c *conversion) name(object string) string { return pgx.Identifier{c.schema, object}.Sanitize() }

// classifyNil is [classify] for a possibly nil error.
func classifyNil(doing string, err error) error {
	if err == nil {
		return nil
	}
	return classify(doing, err)
}

// DropAdopted drops the FlowFabric tables renamed by [Adopt], and returns their names in Result.Applied. Each table is
// dropped in its own transaction. The data is lost, so make sure first that the converted database works. Safe to
// repeat.
//
// Dropping a table of 256 partitions needs up to 1,300 locks at once. A server with the default max_connections and
// max_locks_per_transaction has 6,400.
//
// Errors: as [Migrate], and [ErrNotAdopted] until the conversion is done.
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
			name := pgx.Identifier{s.schema, oldPrefix + table}.Sanitize()
			var there bool
			if err := s.conn.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", name).Scan(&there); err != nil {
				return Result{}, classify("look for "+oldPrefix+table, err)
			}
			if !there {
				continue
			}
			if err := s.retryLocked(ctx, func() error { return s.exec(ctx, "DROP TABLE "+name) }); err != nil {
				return Result{}, classify("drop "+oldPrefix+table, err)
			}
			result.Applied = append(result.Applied, oldPrefix+table)
			s.log.InfoContext(ctx, "dropped", "table", oldPrefix+table, "schema", s.schema)
		}
		return result, nil
	})
}
