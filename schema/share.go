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

// Share creates the three indexes with which FlowFabric 0.15 claims work, finds lost leases and dispatches completions.
// Its workers are slow on large tables without them, and this library's claims, renewals and completions are slower with
// them. [Unshare] drops them. docs/both-engines.md lists FlowFabric's other indexes, which are not needed here.
//
// The indexes are built concurrently, one after the other, so readers and writers don't wait. On a large table this takes
// minutes, longer if old transactions are open. Other migrations and starting FlowFabric servers wait meanwhile. After a
// failure, [State.Shared] is false and [Status] warns; the next call rebuilds unfinished indexes.
//
// Share lifts the time limits on a connection of its own. Don't use it through a transaction pooler if the role or the
// server sets a statement_timeout.
//
// Errors: as [Migrate], and [ErrTooOld] or [ErrNotMigrated] if the database is not at [Version]. If ctx ends, the build is
// interrupted.
func Share[D Database](ctx context.Context, database D, opts Options) (Result, error) {
	return changeShared(ctx, database, opts, (*session).share)
}

// Unshare drops the indexes that [Share] creates, in the same way.
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

// share creates the missing indexes and rebuilds the unfinished ones.
func (s *session) share(ctx context.Context, conn *pgx.Conn) ([]string, error) {
	var made []string
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
	return dropped, nil
}

func (s *session) dropShared(ctx context.Context, conn *pgx.Conn, name string) error {
	s.log.InfoContext(ctx, "dropping", "index", name, "schema", s.schema)
	if _, err := conn.Exec(ctx, "DROP INDEX CONCURRENTLY IF EXISTS "+pgx.Identifier{s.schema, name}.Sanitize()); err != nil {
		return classify("drop "+name, err)
	}
	return nil
}

// readShared fills in which of the indexes exist, and whether each is complete.
func (s *State) readShared(ctx context.Context, db Querier) error {
	names := make([]string, len(sharedIndexes))
	for i, index := range sharedIndexes {
		names[i] = index.name
	}
	rows, err := db.Query(ctx, `
		SELECT
			c.relname::text,
			i.indisvalid
		FROM pg_index AS i
		JOIN pg_class AS c ON c.oid = i.indexrelid
		WHERE
			c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1)
			AND c.relname = ANY ($2::text[])`,
		s.Schema, names)
	if err != nil {
		return classify("read the indexes", err)
	}
	s.shared = make(map[string]bool)
	var name string
	var whole bool
	if _, err := pgx.ForEachRow(rows, []any{&name, &whole}, func() error {
		s.shared[name] = whole
		return nil
	}); err != nil {
		return classify("read the indexes", err)
	}
	s.Shared = true
	for _, name := range names {
		s.Shared = s.Shared && s.shared[name]
	}
	return nil
}

// sharedWarning returns a warning if only some of the indexes exist.
func (s *State) sharedWarning() []string {
	if s.unconverted() || s.Shared || len(s.shared) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("some of the %d indexes for FlowFabric are missing or incomplete: run `ff migrate share` again, "+
		"or with --undo", len(sharedIndexes))}
}
