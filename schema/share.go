package schema

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// sharedIndexes are the indexes that FlowFabric's server and workers need on tables with rows. This library omits them by
// default, because claims, renewals and completions change the indexed columns. FlowFabric's other omitted indexes are
// used only rarely, or a key here replaces them.
var sharedIndexes = []struct{ name, on string }{
	// For claims. The condition holds for every row, and restricts the index to statements that name a lane. Otherwise the
	// planner could prefer it to the primary key for any statement with a partition, until the tables have statistics.
	{"ff_exec_core_lane_phase_idx", "ff_exec_core (partition_key, lane_id, lifecycle_phase) WHERE lane_id IS NOT NULL"},
	// For both scans of leases.
	{"ff_attempt_lease_expiry_idx", "ff_attempt (partition_key, lease_expires_at_ms) WHERE lease_expires_at_ms IS NOT NULL"},
	// For the dispatch of completions, which looks up events by execution.
	{"ff_completion_event_lookup_idx", "ff_completion_event (partition_key, execution_id, occurred_at_ms)"},
}

// sharedTriggers serve only the writes of FlowFabric. A write of this library fires them at most if it changes a row again
// within the same millisecond, and then they change nothing. The function ffx_shared reports whether all of them exist:
// that is the switch.
var sharedTriggers = []struct{ name, timing, condition, call, comment string }{
	{
		"ffx_ff_exec_core_foreign_trg", "AFTER INSERT",
		// For each row, because the condition of a statement trigger cannot see the rows. Equal notifications of a
		// transaction are one.
		"NEW.ffx_retry_count IS NULL", "ffx_notify_channel('ffx_foreign')",
		"Notifies channel ffx_foreign of executions that another program creates, with an empty payload; creation by this library does not fire it.",
	},
	{
		"ffx_ff_exec_core_undone_trg", "BEFORE UPDATE OF lifecycle_phase",
		"OLD.lifecycle_phase IN ('terminal', 'cancelled') AND NEW.lifecycle_phase NOT IN ('terminal', 'cancelled') " +
			"AND NEW.ffx_last_mutation_at_ms IS NOT DISTINCT FROM OLD.ffx_last_mutation_at_ms",
		"ffx_forget_undone_deadline()",
		"Makes the deadline of an execution whose end another program undoes unknown; no write of this library fires it.",
	},
	{
		"ffx_ff_exec_core_document_insert_trg", "BEFORE INSERT", "NEW.ffx_retry_count IS NULL", "ffx_fill_from_document()",
		"Fills in the columns that repeat the document for an execution that another program creates.",
	},
	{
		"ffx_ff_exec_core_document_update_trg", "BEFORE UPDATE OF raw_fields",
		"NEW.ffx_last_mutation_at_ms IS NOT DISTINCT FROM OLD.ffx_last_mutation_at_ms", "ffx_fill_from_document()",
		"Fills in the columns that repeat the document if another program changes it.",
	},
}

// Share switches on the work that serves FlowFabric 0.15: call it before a FlowFabric server starts to work on the
// database. [Unshare] switches it off. The switch is stored in the database, and running processes of this library notice
// it within seconds. They then adopt the executions that FlowFabric creates, and complete the work that it leaves
// half-done.
//
// Share creates triggers on ff_exec_core for FlowFabric's writes, and three indexes with which FlowFabric claims work,
// finds lost leases and dispatches completions. Its workers are slow on large tables without them, and this library's
// claims, renewals and completions are slower with them. docs/both-engines.md lists FlowFabric's other indexes, which are
// not needed here.
//
// The triggers come first, in one transaction that waits for the table as a migration does. The indexes are built
// concurrently, one after the other, so readers and writers don't wait. On a large table this takes minutes, longer if old
// transactions are open. Other migrations and starting FlowFabric servers wait meanwhile. After a failure, [State.Shared]
// is false and [Status] warns; the next call rebuilds unfinished indexes.
//
// Share lifts the time limits on a connection of its own. Don't use it through a transaction pooler if the role or the
// server sets a statement_timeout.
//
// Errors: as [Migrate], and [ErrTooOld] or [ErrNotMigrated] if the database is not at [Version]. If ctx ends, the build is
// interrupted.
func Share[D Database](ctx context.Context, database D, opts Options) (Result, error) {
	return changeShared(ctx, database, opts, (*session).share)
}

// Unshare drops the indexes and the triggers that [Share] creates, in the reverse order. Stop FlowFabric's servers and
// workers first.
func Unshare[D Database](ctx context.Context, database D, opts Options) (Result, error) {
	return changeShared(ctx, database, opts, (*session).unshare)
}

func changeShared[D Database](
	ctx context.Context, database D, opts Options, do func(*session, context.Context, *pgx.Conn) ([]string, error),
) (Result, error) {
	from, err := sourceOf(database, opts)
	if err != nil {
		return Result{}, err
	}
	return change(ctx, database, opts, func(ctx context.Context, s *session) (Result, error) {
		if err := s.state.refusal(opts); err != nil {
			return Result{}, err
		}
		result := Result{From: s.state.Version, To: s.state.Version}
		conn, err := from.another(ctx)
		if err != nil {
			return Result{}, err
		}
		defer closeConn(ctx, conn)
		for _, limit := range []string{"statement_timeout", "lock_timeout"} {
			if _, err := conn.Exec(ctx, "SET "+limit+" = 0"); err != nil {
				return Result{}, classify("lift the "+limit, err)
			}
		}
		result.Applied, err = do(s, ctx, conn)
		if err != nil {
			return Result{}, err
		}
		return result, nil
	})
}

// share creates the missing triggers, then the missing indexes, and rebuilds the unfinished ones.
func (s *session) share(ctx context.Context, conn *pgx.Conn) ([]string, error) {
	made, err := s.shareTriggers(ctx)
	if err != nil {
		return nil, err
	}
	for _, index := range sharedIndexes {
		if s.state.shared[index.name] {
			continue
		}
		if _, begun := s.state.shared[index.name]; begun {
			if err := s.dropShared(ctx, conn, index.name); err != nil {
				return nil, err
			}
		}
		table, rest, _ := strings.Cut(index.on, " ")
		s.log.InfoContext(ctx, "making", "index", index.name, "schema", s.schema)
		sql := "CREATE INDEX CONCURRENTLY " + index.name + " ON " + pgx.Identifier{s.schema, table}.Sanitize() + " " + rest
		if _, err := conn.Exec(ctx, sql); err != nil {
			return nil, classify("make "+index.name, err)
		}
		made = append(made, index.name)
	}
	return made, nil
}

// shareTriggers creates the missing triggers in one transaction.
func (s *session) shareTriggers(ctx context.Context) ([]string, error) {
	var made, statements []string
	for _, trigger := range sharedTriggers {
		if s.state.shared[trigger.name] {
			continue
		}
		s.log.InfoContext(ctx, "making", "trigger", trigger.name, "schema", s.schema)
		statements = append(statements,
			"CREATE TRIGGER "+trigger.name+" "+trigger.timing+" ON ff_exec_core FOR EACH ROW WHEN ("+trigger.condition+") EXECUTE FUNCTION "+trigger.call,
			"COMMENT ON TRIGGER "+trigger.name+" ON ff_exec_core IS "+literal(trigger.comment))
		made = append(made, trigger.name)
	}
	if err := s.changeShared(ctx, statements); err != nil || len(made) == 0 {
		return made, classifyNil("make the triggers", err)
	}
	return made, classifyNil("fill in columns", s.changeShared(ctx, []string{fillForeign}))
}

// fillForeign makes a trigger fill in the columns of executions that FlowFabric created before the triggers existed.
const fillForeign = "UPDATE ff_exec_core SET raw_fields = raw_fields WHERE ffx_retry_count IS NULL AND ffx_namespace IS NULL"

// unshareTriggers drops the triggers in one transaction.
func (s *session) unshareTriggers(ctx context.Context) ([]string, error) {
	var dropped, statements []string
	for _, trigger := range slices.Backward(sharedTriggers) {
		if !s.state.shared[trigger.name] {
			continue
		}
		s.log.InfoContext(ctx, "dropping", "trigger", trigger.name, "schema", s.schema)
		statements = append(statements, "DROP TRIGGER IF EXISTS "+trigger.name+" ON ff_exec_core")
		dropped = append(dropped, trigger.name)
	}
	return dropped, classifyNil("drop the triggers", s.changeShared(ctx, statements))
}

func (s *session) changeShared(ctx context.Context, statements []string) error {
	if len(statements) == 0 {
		return nil
	}
	return s.retryLocked(ctx, func() error {
		if err := s.lockStands(ctx); err != nil {
			return err
		}
		return s.exec(ctx, statements...)
	})
}

// unshare drops the triggers last, so that nothing of FlowFabric is missed while the indexes are dropped.
func (s *session) unshare(ctx context.Context, conn *pgx.Conn) ([]string, error) {
	var dropped []string
	for _, index := range slices.Backward(sharedIndexes) {
		if _, there := s.state.shared[index.name]; !there {
			continue
		}
		if err := s.dropShared(ctx, conn, index.name); err != nil {
			return nil, err
		}
		dropped = append(dropped, index.name)
	}
	triggers, err := s.unshareTriggers(ctx)
	if err != nil {
		return nil, err
	}
	return append(dropped, triggers...), nil
}

func (s *session) dropShared(ctx context.Context, conn *pgx.Conn, name string) error {
	s.log.InfoContext(ctx, "dropping", "index", name, "schema", s.schema)
	if _, err := conn.Exec(ctx, "DROP INDEX CONCURRENTLY IF EXISTS "+pgx.Identifier{s.schema, name}.Sanitize()); err != nil {
		return classify("drop "+name, err)
	}
	return nil
}

// readShared fills in which of the triggers and indexes exist, and whether each is complete.
func (s *State) readShared(ctx context.Context, db Querier) error {
	names := make([]string, 0, len(sharedTriggers)+len(sharedIndexes))
	for _, trigger := range sharedTriggers {
		names = append(names, trigger.name)
	}
	for _, index := range sharedIndexes {
		names = append(names, index.name)
	}
	rows, err := db.Query(ctx, `
		SELECT
			c.relname::text,
			i.indisvalid
		FROM pg_index AS i
		JOIN pg_class AS c ON c.oid = i.indexrelid
		WHERE
			c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1)
			AND c.relname = ANY ($2::text[])
		UNION ALL
		SELECT
			t.tgname::text,
			true
		FROM pg_trigger AS t
		JOIN pg_class AS c ON c.oid = t.tgrelid
		WHERE
			c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1)
			AND c.relname = 'ff_exec_core'
			AND t.tgname = ANY ($2::text[])`,
		s.Schema, names)
	if err != nil {
		return classify("read the indexes and triggers", err)
	}
	s.shared = make(map[string]bool)
	var name string
	var whole bool
	if _, err := pgx.ForEachRow(rows, []any{&name, &whole}, func() error {
		s.shared[name] = whole
		return nil
	}); err != nil {
		return classify("read the indexes and triggers", err)
	}
	s.Shared = true
	for _, name := range names {
		s.Shared = s.Shared && s.shared[name]
	}
	return nil
}

// sharedWarning returns a warning if only some of the triggers and indexes exist. A database that is still to be migrated
// may have some of older versions.
func (s *State) sharedWarning() []string {
	if s.unconverted() || s.Shared || len(s.shared) == 0 || len(s.pending()) > 0 {
		return nil
	}
	return []string{fmt.Sprintf("some of the %d triggers and %d indexes for FlowFabric are missing or incomplete: run `ff migrate share` again, "+
		"or with --undo", len(sharedTriggers), len(sharedIndexes))}
}
