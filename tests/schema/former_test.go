package schema_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/schema"
)

// formerVersions are the migrations that made the schema before they became one file per subject. None of those after
// 08 was released. testdata/former_schema.sql is the dump of their result.
const formerVersions = "01 02 03 04 05 06 07 08 09 10 11 12 13 14 15 16 17 18 19 20 23 26 27 28 29 30 31 32 33 34 35 36 37 38 39"

// formerDatabase returns a database as the former migrations left it, with their ledger.
func formerDatabase(t *testing.T) string {
	t.Helper()
	dump, err := os.ReadFile("testdata/former_schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	databaseURL := pgtest.EmptyDatabase(t)
	conn := connect(t, databaseURL)
	exec(t, conn, string(dump))
	exec(t, conn, "INSERT INTO ffx_schema_migrations SELECT '202611010000' || v FROM unnest($1::text[]) AS v", strings.Fields(formerVersions))
	return databaseURL
}

// physical describes the facts that catalog and described leave out: the order of columns, how values are stored, the
// options of columns and functions, and types.
func physical(t *testing.T, db schema.Querier) []string {
	t.Helper()
	rows, err := db.Query(t.Context(), `
		WITH namespace AS (
			SELECT oid FROM pg_namespace WHERE nspname = current_schema()
		),
		attribute AS (
			SELECT a.*, c.relname
			FROM pg_attribute AS a
			JOIN pg_class AS c ON c.oid = a.attrelid
			JOIN namespace AS n ON n.oid = c.relnamespace
			WHERE c.relkind IN ('r', 'p', 'v') AND a.attnum > 0 AND NOT a.attisdropped
		)
		SELECT format('order %s (%s)', relname, string_agg(attname, ', ' ORDER BY attnum)) FROM attribute GROUP BY relname
		UNION ALL
		SELECT format('stored %s.%s %s %s', relname, attname, attstorage, attoptions) FROM attribute
		UNION ALL
		SELECT format('options of function %s %s %s %s %s %s', proname, lanname, proconfig, prosecdef, proleakproof, procost)
		FROM pg_proc
		JOIN namespace ON namespace.oid = pronamespace
		JOIN pg_language ON pg_language.oid = prolang
		UNION ALL
		SELECT format('fires %s %s', tgname, tgenabled)
		FROM pg_trigger
		JOIN pg_class ON pg_class.oid = tgrelid
		JOIN namespace ON namespace.oid = relnamespace
		WHERE NOT tgisinternal
		UNION ALL
		SELECT format('type %s', typname)
		FROM pg_type
		JOIN namespace ON namespace.oid = typnamespace
		WHERE typtype IN ('e', 'd', 'r', 'm')`)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

// renamed has the names of the former schema that changed, in an order in which the replacements do not disturb each
// other.
var renamed = strings.NewReplacer(
	"ffx_lease_watch", "ffx_lease_timer",
	"ffx_ff_attempt_watch", "ffx_ff_attempt_lease_timer",
	"ffx_watch_lease", "ffx_set_lease_timer",
	"watch_id", "timer_id",
)

// gone are columns and indexes that no query, no trigger and no Go code used, and what only a second writer needed.
var gone = []string{
	"ff_attempt.ffx_stream_ts_ms", "ff_attempt.ffx_stream_seq", "ff_attempt.ffx_stream_frames",
	"ff_suspension_current.ffx_resume_delay_ms", "ff_suspension_current.ffx_requested_by", "ff_suspension_current.ffx_continuation_pointer",
	"ffx_ff_budget_policy_reset_idx", "ffx_ff_budget_usage_dedup_expiry_idx", "ffx_ff_exec_core_gate_idx",
	"ffx_ff_operator_event_execution_idx", "ffx_ff_signal_event_execution_idx", "ffx_ff_quota_window_sweep_idx",
	"ffx_ff_suspend_dedup_age_idx", "ffx_ff_suspension_current_timeout_idx", "ffx_ff_waitpoint_pending_expiry_idx",
	"ffx_ff_exec_core_foreign_trg", "ffx_ff_exec_core_foreign_idx",
}

// changed are pieces of text in the former lines, and their present forms.
var changed = []struct{ in, former, now string }{
	{"column ff_exec_core.policy:", "multiplier, jitter}, retryable", "multiplier, jitter} or {type patient}, retryable"},
	{"column ff_budget_policy.next_reset_at_ms:", "goes back to 0; NULL", "goes back to 0, or with ffx_retention_ms when a job looks whether it is unused; NULL"},
	{"column ffx_ready 7 kind ", "not null f", "not null t"},
	{"order ffx_pause ", "reason)", "reason, until_ms)"},
	{"order ffx_outbox_floor ", "updated_at_ms)", "updated_at_ms, kept)"},
	{
		"column ffx_outbox_floor.floor_event_id:", "event_id that was deleted.",
		"event_id that was deleted, or an unused one before which events were not kept.",
	},
	{"column ffx_outbox_floor.updated_at_ms:", "when it rose.", "when it rose, or what is kept was set."},
	{"order ffx_job ", "held_until_ms)", "held_until_ms, succeeded_at_ms, failed_at_ms, error)"},
	{"column ff_suspension_current.satisfied_set:", "ids of the signals that", "ids of the signals in member_map that"},
	{"column ff_suspension_current.member_map:", "Signals delivered: an", "Signals delivered that no earlier wait has used: an"},
	{"column ff_suspension_current.member_map:", "payload_hex}. ", "payload_hex}; with ffx_place, their order among all of them. "},
	{
		"column ff_attempt.raw_fields:", "failure_reason and failure_category of a failure that was retried;",
		"failure_reason, failure_category and failure_class of a failure that was retried, failure_detail of any;",
	},
	{"column ffx_ready.kind:", "empty: it has none; NULL: not noted, the execution's row says it.", "empty: it has none."},
	{"column ffx_create_dedup.namespace:", "Namespace of the key; a key is unique within (partition_key, namespace).", "Namespace of the execution."},
	{
		"column ffx_create_dedup.idempotency_key:", "The caller's key.",
		"Lane, or flow of a member, kind and the caller's key in one text that begins with U+0001. " +
			"Rows of older versions hold the caller's key alone, which then holds whatever the lane, flow and kind.",
	},
	{"function ffx_fill_ready(", "BEGIN\n    IF EXISTS (SELECT FROM inserted OFFSET 50)", fillsWaiting},
	{"function ffx_fill_ready():", "into ffx_ready.", "into ffx_ready, and those that wait for a budget or limit into ffx_waiting."},
	{"function ffx_keep_waiting(", "\nBEGIN\n", keepsWaiting},
	{"function ffx_keep_waiting():", "of ffx_ready and ffx_blocked", "of ffx_ready, ffx_waiting and ffx_blocked"},
	{"trigger ffx_ff_exec_core_drop_waiting_trg ", "in the list of what is blocked", "in the lists of what waits and what is blocked"},
	{"trigger ffx_ff_exec_core_keep_waiting_trg ", "in the list of what is blocked, in step with it: in when it becomes", "in the lists of what waits and what is blocked, in step with it: in when it becomes"},
	{"trigger ffx_ff_exec_core_fill_ready_trg ", "into the queue, ffx_ready, a", "into the queue, ffx_ready, and those that wait for a budget or limit into ffx_waiting, a"},
	{"function ffx_keep_waiting(", "r.kind IS DISTINCT FROM excluded.kind", "r.kind <> excluded.kind"},
	{"function ffx_usable_from(", "20261101000016", "20261125000001"},
	{
		"relation ffx_schema_migrations:", "a row adopted, and a row <version>/<part> for each part of a migration.",
		"the steps of the conversion, and a row adopted once that is done.",
	},
	{
		"column ff_stream_frame.mode:", "durable, summary or best_effort; only the last is trimmed.",
		"durable (kept as long as the execution, unless the engine keeps only the newest), summary (a patch of the document; the newest 64 are kept) or best_effort (trimmed after a while).",
	},
	{"column ff_stream_meta.maxlen_applied_last:", "Frames kept at the last trimming.", "How many frames of mode best_effort the last append wanted to keep."},
	{"order ff_attempt (", ", ffx_stream_ts_ms, ffx_stream_seq, ffx_stream_frames", ", ffx_resumed_at_ms"},
	{
		"column ff_attempt.started_at_ms:", "start of the last lease; some claims of FlowFabric keep the first one.",
		"start of the first lease; some claims of FlowFabric write that of the last one.",
	},
	{
		"column ff_cancel_backlog.cancellation_policy:", "cancel_flow_only, cancel_all or cancel_pending.",
		"cancel_flow_only, cancel_pending, cancel_all or cancel_everything.",
	},
	{
		"column ffx_flow.cancellation_policy:", "cancel_flow_only, cancel_all or cancel_pending;",
		"cancel_flow_only, cancel_pending, cancel_all or cancel_everything;",
	},
	{
		"column ff_flow_core.raw_fields:", "cancel_reason. A top-level key",
		"cancel_reason. Only this library: ffx_retention_ms, how long it is kept once all members have ended (negative: for ever), and " +
			"ffx_prune_members_after_ms, after which ended members are deleted while the flow lives on. A top-level key",
	},
	{"column ffx_retention.source:", ", flows.", ", flows, members (which go with their flows)."},
	{"relation ffx_lane_retention:", "goes first.", "goes first; members are kept with their flow."},
	{"relation ffx_retention_timer:", "at flows whose members went:", "at flows of which members have ended:"},
	{"column ff_exec_core  ffx_namespace ", "default " + limited("(raw_fields ->> 'namespace'::text)") + " identity  generated s", "default  identity  generated "},
	{
		"column ff_exec_core  ffx_instance_tag ", "default " + limited("((raw_fields -> 'tags'::text) ->> 'cairn.instance_id'::text)") + " identity  generated s",
		"default  identity  generated ",
	},
	{
		"column ff_exec_core.ffx_namespace:", "Generated from raw_fields.namespace, its first 1024 bytes; events carry it.",
		"raw_fields.namespace, its first 1024 bytes; events carry it.",
	},
	{
		"column ff_exec_core.ffx_instance_tag:", "Generated from the tag cairn.instance_id, its first 1024 bytes; events carry it.",
		"The tag cairn.instance_id, its first 1024 bytes; events carry it.",
	},
	{
		"column ff_exec_core.ffx_admitted:", "Whether the budgets and the quota have let it in; NULL",
		"Whether its budgets and limits have let it in, until it ends or has to ask again; NULL",
	},
	{"column ff_exec_core.ffx_gate_id:", "Budget or quota policy that it waits for", "Budget or limit that it waits for"},
	{"column ff_exec_core.ffx_quota_policy_id:", "Quota policy that has to admit it;", "Quota policy that it names, one of its limits;"},
	{"order ff_exec_core (", "ffx_execution_deadline_ms, ", "ffx_execution_deadline_ms, ffx_created_at_ms, "},
	{"order ff_exec_core (", "ffx_quota_partition, ", "ffx_quota_partition, ffx_limit_ids, ffx_limit_units, "},
	{"order ff_exec_core (", "ffx_created_at_ms, ffx_namespace", "ffx_created_at_ms, ffx_trace, ffx_namespace"},
	{"view ffx_execution ", "ffx_read_instant(e.created_at_ms) AS", "ffx_read_instant(COALESCE(e.ffx_created_at_ms, e.created_at_ms)) AS"},
	{"view ffx_execution ", "(0)::bigint), 0), e.created_at_ms)) AS", "(0)::bigint), 0), e.ffx_created_at_ms, e.created_at_ms)) AS"},
	{"column ff_operator_event.execution_id:", "of flow_cancel_requested the flow.", "of flow_cancel_requested the flow; NULL: an action that is not about one execution."},
	{"column ff_operator_event.event_type:", "replayed or flow_cancel_requested.", "replayed, flow_cancel_requested or action: one recorded by a console, with the name of the person."},
	{"column ff_operator_event.details:", "member_count.", "member_count. action: by, action, object, detail; the last two are left out when empty."},
	{"column ff_operator_event.partition_key:", "or flow. integer", "or flow; 0 without one. integer"},
	{"column ff_operator_event.namespace:", "when it has none. Readers", "when it has none, or the event has no execution. Readers"},
	{"column ff_operator_event.instance_tag:", "when it has none. Readers", "when it has none, or the event has no execution. Readers"},
	{"order ff_suspension_current (", ", ffx_resume_delay_ms, ffx_requested_by, ffx_continuation_pointer", ""},
}

// fillsWaiting and keepsWaiting are the parts of the queue's functions that know executions at budgets and limits.
const (
	fillsWaiting = `BEGIN
    IF EXISTS (SELECT FROM inserted AS i WHERE i.ffx_gate_id IS NOT NULL) THEN
        INSERT INTO ffx_waiting (gate_id, rank, created_at_ms, execution_id, partition_key, is_budget)
        SELECT
            i.ffx_gate_id,
            - i.priority::bigint,
            i.created_at_ms,
            i.execution_id,
            i.partition_key,
            i.eligibility_state = 'blocked_by_budget'
        FROM inserted AS i
        WHERE i.ffx_gate_id IS NOT NULL
        ON CONFLICT (gate_id, rank, created_at_ms, execution_id, partition_key) DO NOTHING;
    END IF;
    IF EXISTS (SELECT FROM inserted OFFSET 50)`
	keepsWaiting = `
    waiting boolean := TG_OP = 'UPDATE'
        AND (NEW.ffx_gate_id IS NOT NULL);
BEGIN
    IF
        OLD.ffx_gate_id IS NOT NULL
        AND (
            NOT waiting
            OR (OLD.ffx_gate_id, OLD.priority, OLD.created_at_ms) <> (NEW.ffx_gate_id, NEW.priority, NEW.created_at_ms)
        )
    THEN
        DELETE FROM ffx_waiting AS w
        WHERE
            w.gate_id = OLD.ffx_gate_id
            AND w.rank = - OLD.priority::bigint
            AND w.created_at_ms = OLD.created_at_ms
            AND w.execution_id = OLD.execution_id
            AND w.partition_key = OLD.partition_key;
    END IF;
    IF waiting THEN
        INSERT INTO ffx_waiting (gate_id, rank, created_at_ms, execution_id, partition_key, is_budget)
        VALUES (
            NEW.ffx_gate_id, - NEW.priority::bigint, NEW.created_at_ms, NEW.execution_id, NEW.partition_key,
            NEW.eligibility_state = 'blocked_by_budget'
        )
        ON CONFLICT (gate_id, rank, created_at_ms, execution_id, partition_key) DO NOTHING;
    END IF;
`
)

// limited is the expression by which two columns were generated, as the server writes it.
func limited(value string) string {
	return fmt.Sprintf("\nCASE\n    WHEN (octet_length(%[1]s) > 1024) THEN ffx_first_kilobyte(%[1]s)\n    ELSE %[1]s\nEND", value)
}

// added are columns, tables and functions that the former schema had not.
var added = []string{
	"ff_attempt.ffx_resumed_at_ms", "ff_exec_core.ffx_created_at_ms", "ff_exec_core.ffx_trace", "ff_exec_core.ffx_limit_ids", "ff_exec_core.ffx_limit_units",
	"ff_worker_registry.ffx_started", "ff_worker_registry.ffx_full_kinds", "ff_worker_registry.ffx_stuck",
	"ffx_pruned_member", "ffx_waiting", "ffx_pause.until_ms", "ffx_job.succeeded_at_ms", "ffx_job.failed_at_ms", "ffx_job.error", "ffx_outbox_floor.kept", "ffx_outbox_floor_kept_check",
	"ffx_past_ms()", "ffx_now_locked_ms()", "ffx_attempt_type()", "ffx_attempt_policy()", "ffx_ff_flow_summary_dependent_idx",
}

// isAdded reports whether a line is about a column, table or function in added.
func isAdded(line string) bool {
	return slices.ContainsFunc(added, func(name string) bool {
		table, column, isColumn := strings.Cut(name, ".")
		if function, isFunction := strings.CutSuffix(name, "()"); isFunction {
			return strings.HasPrefix(line, "function "+function+"(") || strings.HasPrefix(line, "options of function "+function+" ")
		}
		if !isColumn {
			return !strings.HasPrefix(line, "function ") &&
				(strings.Contains(line, " "+name+" ") || strings.Contains(line, " "+name+".") || strings.Contains(line, " "+name+":"))
		}
		return strings.HasPrefix(line, "column "+name+":") || strings.HasPrefix(line, "stored "+name+" ") ||
			strings.HasPrefix(line, "column "+table+" ") && strings.Contains(line, " "+column+" ")
	})
}

// isGone reports whether a line is about a column, index or trigger in gone.
func isGone(line string) bool {
	return slices.ContainsFunc(gone, func(name string) bool {
		table, column, isColumn := strings.Cut(name, ".")
		if !isColumn {
			return strings.HasPrefix(line, "index CREATE INDEX "+name+" ") || strings.HasPrefix(line, "trigger CREATE TRIGGER "+name+" ") ||
				strings.HasPrefix(line, "trigger "+name+" ") || strings.HasPrefix(line, "fires "+name+" ")
		}
		return strings.HasPrefix(line, "column "+name+":") || strings.HasPrefix(line, "stored "+name+" ") ||
			strings.HasPrefix(line, "column "+table+"  "+column+" ")
	})
}

// The schema is the one of the former migrations, but for the differences above.
func TestSchemaIsThatOfTheFormerMigrations(t *testing.T) {
	t.Parallel()
	facts := func(databaseURL string) []string {
		conn := connect(t, databaseURL)
		return slices.Concat(catalog(t, conn), described(t, conn), physical(t, conn))
	}
	var want []string
	missing, used := make(map[string]bool), make([]bool, len(changed))
	for _, name := range gone {
		missing[name] = true
	}
	for _, line := range facts(formerDatabase(t)) {
		if isGone(line) {
			for _, name := range gone {
				if _, column, isColumn := strings.Cut(name, "."); isColumn && strings.Contains(line, column) || strings.Contains(line, name) {
					delete(missing, name)
				}
			}
			continue
		}
		line = renamed.Replace(line)
		for i, c := range changed {
			if strings.HasPrefix(line, c.in) && strings.Contains(line, c.former) {
				line, used[i] = strings.Replace(line, c.former, c.now, 1), true
			}
		}
		want = append(want, withActions(line))
	}
	want = append(want, actionConstraint)
	for name := range missing {
		t.Errorf("the former schema had no %s", name)
	}
	for i, c := range changed {
		if !used[i] {
			t.Errorf("the former schema had no %q in %q", c.former, c.in)
		}
	}
	databaseURL := pgtest.EmptyDatabase(t)
	migrate(t, databaseURL, schema.Options{})
	// The former schema knew no suspensions.
	if _, err := schema.Rollback(t.Context(), databaseURL, "20261125000019", schema.Options{}); err != nil {
		t.Fatal(err)
	}
	now := facts(databaseURL)
	got := slices.DeleteFunc(slices.Clone(now), isAdded)
	if len(got) == len(now) {
		t.Errorf("the schema has none of %q", added)
	}
	requireSameLines(t, got, want)
}

// A database of the former migrations is refused by every operation, and left as it is.
func TestUnreleasedDatabaseIsRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, change string }{
		{"migrated", ""},
		{"half migrated", "DELETE FROM ffx_schema_migrations WHERE version > '20261101000013'"},
		{"adopted", "INSERT INTO ffx_schema_migrations VALUES ('adopted'), ('20261101000039/ffx_claimable_now')"},
		{"half adopted", `DELETE FROM ffx_schema_migrations WHERE version > '20261101000008';
			INSERT INTO ffx_schema_migrations VALUES ('adopted'), ('20261101000009/ff_exec_core columns')`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			databaseURL := formerDatabase(t)
			conn := connect(t, databaseURL)
			exec(t, conn, test.change)
			before := catalog(t, conn)

			state, err := schema.Status(t.Context(), databaseURL, schema.Options{})
			if err != nil {
				t.Fatal(err)
			}
			call := func(operation func() (schema.Result, error)) error {
				_, err := operation()
				return err
			}
			ctx, opts := t.Context(), schema.Options{}
			for name, err := range map[string]error{
				"Status":   state.Err,
				"Check":    schema.Check(ctx, conn, opts),
				"Migrate":  call(func() (schema.Result, error) { return schema.Migrate(ctx, databaseURL, opts) }),
				"Plan":     call(func() (schema.Result, error) { return schema.Plan(ctx, databaseURL, opts) }),
				"Adopt":    call(func() (schema.Result, error) { return adoptAs(ctx, databaseURL, opts) }),
				"Rollback": call(func() (schema.Result, error) { return schema.Rollback(ctx, databaseURL, "", opts) }),
			} {
				if _, ok := errors.AsType[*schema.StateError](err); !ok || !errors.Is(err, schema.ErrUnreleased) ||
					!strings.Contains(err.Error(), "drop the schema") {
					t.Errorf("%s: %v, want ErrUnreleased and what to do", name, err)
				}
			}
			requireSameLines(t, catalog(t, conn), before)
		})
	}
}

func TestPrepareRefusesAnUnreleasedDatabase(t *testing.T) {
	t.Parallel()
	eng, err := engine.New(lazyPool(t, formerDatabase(t)), engine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := eng.Prepare(t.Context()); !errors.Is(err, fferr.ErrNotMigrated) || !strings.Contains(err.Error(), "drop the schema") {
		t.Errorf("%v, want ErrNotMigrated and what to do", err)
	}
}

// The documented way: drop the schema and migrate anew.
func TestUnreleasedDatabaseIsMadeAnew(t *testing.T) {
	t.Parallel()
	databaseURL := formerDatabase(t)
	exec(t, connect(t, databaseURL), "DROP SCHEMA public CASCADE")
	migrate(t, databaseURL, schema.Options{Schema: "public"})
	if err := schema.Check(t.Context(), connect(t, databaseURL), schema.Options{}); err != nil {
		t.Error(err)
	}
}
