package schema

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// sharedIndexes are those of the reference that its server and its workers cannot do without on tables with rows, and
// that this library leaves out, because claims, renewals and completions change what they index. The others that it leaves
// out serve nothing that a FlowFabric server does all the time, or are served by a key here.
var sharedIndexes = []struct{ name, on string }{
	// Claims. The condition holds for every row, and lets only statements that name a lane use the index. The planner could
	// prefer it to the primary key for any other that names a partition, as long as the tables have no statistics.
	{"ff_exec_core_lane_phase_idx", "ff_exec_core (partition_key, lane_id, lifecycle_phase) WHERE lane_id IS NOT NULL"},
	// Both scans of leases.
	{"ff_attempt_lease_expiry_idx", "ff_attempt (partition_key, lease_expires_at_ms) WHERE lease_expires_at_ms IS NOT NULL"},
	// The dispatch of completions, which looks its events up by execution.
	{"ff_completion_event_lookup_idx", "ff_completion_event (partition_key, execution_id, occurred_at_ms)"},
}

// Share makes the three indexes by which FlowFabric 0.15 claims work, finds lost leases and dispatches completions: without
// them its workers are slow on tables with many rows. They cost this library's own claims, renewals and completions.
// [Unshare] takes them back. The other indexes of FlowFabric's own databases are left out: nothing that its server and
// workers do needs them, or a key here serves the same reads. docs/both-engines.md lists them.
//
// Nobody who reads or writes is held up, and running programs need not know of it: the indexes are made concurrently,
// one after the other, which on a large table takes minutes, and longer while old transactions run. What a failed or
// interrupted call leaves half-made, the next one drops and makes anew; [State.Shared] and a warning of [Status] tell.
// Meanwhile other migrations and starting FlowFabric servers wait. It works on a connection of its own, whose time limits
// it lifts: do not lead it through a transaction pooler where the role or the server sets a statement_timeout.
//
// Errors: as [Migrate], and [ErrTooOld] or [ErrNotMigrated] for a database that is not at [Version]. The end of ctx
// interrupts it.
func Share[D Database](ctx context.Context, database D, opts Options) (Result, error) {
	return changeShared(ctx, database, opts, (*session).share)
}

// Unshare takes back what [Share] made, in the same manner.
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

// share makes the indexes that are missing, and those anew that were not finished.
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

// readShared fills in which of the indexes there are, and whether each is whole.
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

// sharedWarning says that the indexes are there in part.
func (s *State) sharedWarning() []string {
	if s.unconverted() || s.Shared || len(s.shared) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("of the %d indexes for FlowFabric it has some, or some half-made: run `ff migrate share` again, "+
		"or with --undo", len(sharedIndexes))}
}
