package executions

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/limit"
	"github.com/flowfabric/flowfabric-go/schema"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// newEngine returns an engine with the database's clock, which SQL has too.
func newEngine(t *testing.T, f *fixture.Fixture, cfg engine.Config) *engine.Engine {
	t.Helper()
	eng, err := engine.New(f.Pool, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(eng.Flush)
	return eng
}

// scalar returns the value that a statement selects.
func scalar[T any](t *testing.T, on fixture.Querier, sql string, args ...any) (value T) {
	t.Helper()
	rows, _ := on.Query(t.Context(), sql, args...)
	value, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func countRows(t *testing.T, f *fixture.Fixture, table string) int {
	t.Helper()
	return scalar[int](t, f.Pool, "SELECT count(*) FROM "+table)
}

// createSQL creates an execution by ffx_create with these arguments.
func createSQL(t *testing.T, f *fixture.Fixture, arguments string, args ...any) id.ExecutionID {
	t.Helper()
	x, err := id.ParseExecutionID(scalar[string](t, f.Pool, "SELECT ffx_create("+arguments+")", args...))
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// declareCalls declares the limit "calls", of two units, in the default namespace and others.
func declareCalls(t *testing.T, f *fixture.Fixture, namespaces ...id.Namespace) {
	t.Helper()
	for _, namespace := range append(namespaces, "") {
		if err := limit.Declare(t.Context(), f.Engine, limit.Spec{Name: "calls", Namespace: namespace, Units: 2}); err != nil {
			t.Fatal(err)
		}
	}
}

var expiry = regexp.MustCompile(`"expires_at_ms": \d+`)

// tracesOf returns every row of any table that names an execution, without the id, and with its instants relative to that
// of the creation.
func tracesOf(t *testing.T, f *fixture.Fixture, x id.ExecutionID) []string {
	t.Helper()
	var traces []string
	for _, table := range fixture.Texts(t, f.Pool, `SELECT c.relname::text FROM pg_class AS c
		WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' ORDER BY 1`) {
		rows := fixture.Texts(t, f.Pool, fmt.Sprintf(
			"SELECT to_jsonb(t)::text FROM %q AS t WHERE to_jsonb(t)::text LIKE '%%' || $1 || '%%' ORDER BY 1", table), x.UUID().String())
		created := scalar[int64](t, f.Pool, "SELECT created_at_ms FROM ff_exec_core WHERE execution_id = $1", x.UUID().String())
		for _, row := range rows {
			row = strings.ReplaceAll(strings.ReplaceAll(row, x.UUID().String(), "ID"), fmt.Sprint(created), "CREATED")
			// Go claims the key in a statement before the creation.
			row = expiry.ReplaceAllStringFunc(row, func(found string) string {
				var ms int64
				if _, err := fmt.Sscanf(found, `"expires_at_ms": %d`, &ms); err != nil {
					t.Fatal(err)
				}
				return fmt.Sprint((time.Duration(ms-created) * time.Millisecond).Round(time.Hour), " LATER")
			})
			traces = append(traces, table+" "+row)
		}
	}
	return traces
}

// An execution that SQL creates has the same rows in all tables as one that Go creates, with and without each option.
func TestCreationFromSQLWritesWhatGoWrites(t *testing.T) {
	f := fixture.NewCloned(t)
	eng := newEngine(t, f, engine.Config{})
	declareCalls(t, f, "n")
	later := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	for _, c := range []struct {
		name, arguments string
		args            []any
		spec            func(*engine.ExecutionSpec)
	}{
		{"nothing", "kind => 'test', lane => $1", nil, func(*engine.ExecutionSpec) {}},
		{"no lane", "'test'", nil, func(s *engine.ExecutionSpec) { s.Lane = "" }},
		{"a payload", `'test', $1, '{"a": [1, "ä"]}'`, nil, func(s *engine.ExecutionSpec) { s.Payload = []byte(`{"a": [1, "ä"]}`) }},
		{"a null payload", `'test', $1, 'null'`, nil, func(s *engine.ExecutionSpec) { s.Payload = []byte(`null`) }},
		{"a priority", `'test', $1, priority => 7`, nil, func(s *engine.ExecutionSpec) { s.Priority = 7 }},
		{"a high priority", `'test', $1, priority => 9001`, nil, func(s *engine.ExecutionSpec) { s.Priority = 9001 }},
		{"a low priority", `'test', $1, priority => -1`, nil, func(s *engine.ExecutionSpec) { s.Priority = -1 }},
		{"tags", `'test', $1, tags => '{"app.order": "4711", "cairn.instance_id": "i-1"}'`, nil, func(s *engine.ExecutionSpec) {
			s.Tags = map[string]string{"app.order": "4711", "cairn.instance_id": "i-1"}
		}},
		{"a delay", `'test', $1, delay_until => $2`, []any{later}, func(s *engine.ExecutionSpec) { s.DelayUntil = later }},
		{"a delay that is over", `'test', $1, delay_until => now() - interval '1 hour'`, nil, func(s *engine.ExecutionSpec) {
			s.DelayUntil = time.Now().Add(-time.Hour)
		}},
		{"a namespace", `'test', $1, namespace => 'mandant ä'`, nil, func(s *engine.ExecutionSpec) { s.Namespace = "mandant ä" }},
		{"a key", `'test', $1, '{}', idempotency_key => 'ä%s'`, nil, func(s *engine.ExecutionSpec) {
			s.Payload, s.IdempotencyKey = []byte("{}"), "ä%s"
		}},
		{"a limit", `'test', $1, limits => '[{"name": "calls", "key": "ä"}]'`, nil, func(s *engine.ExecutionSpec) {
			s.Limits = []engine.LimitKey{{Name: "calls", Key: "ä"}}
		}},
		{"limits", `'test', $1, limits => '[{"name": "calls", "units": 2.0}, {"name": "calls", "key": "a"}]'`, nil, func(s *engine.ExecutionSpec) {
			s.Limits = []engine.LimitKey{{Name: "calls", Units: 2}, {Name: "calls", Key: "a"}}
		}},
		{"no limits", `'test', $1, limits => '[]'`, nil, func(*engine.ExecutionSpec) {}},
		{"everything", `'test', $1, '[]', 9, '{"a.b": "c"}', $2, 'n', 'k', '[{"name": "calls"}]'`, []any{later}, func(s *engine.ExecutionSpec) {
			s.Payload, s.Priority, s.Tags, s.DelayUntil, s.Namespace, s.IdempotencyKey = []byte("[]"), 9, map[string]string{"a.b": "c"}, later, "n", "k"
			s.Limits = []engine.LimitKey{{Name: "calls"}}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec := engine.ExecutionSpec{Kind: "test", Lane: f.Lane}
			c.spec(&spec)
			args := append([]any{string(f.Lane)}, c.args...)
			if spec.Lane == "" {
				args = nil
			}
			bySQL := createSQL(t, f, c.arguments, args...)
			got := tracesOf(t, f, bySQL)
			if spec.IdempotencyKey != "" {
				f.Exec(t, "DELETE FROM ffx_create_dedup")
			}
			byGo, err := eng.CreateExecution(t.Context(), spec)
			if err != nil {
				t.Fatal(err)
			}
			if want := tracesOf(t, f, byGo.ID); !slices.Equal(got, want) {
				t.Errorf("by SQL\n%s\nby Go\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			if bySQL.Partition() != byGo.ID.Partition() || bySQL.UUID().String()[14] != '7' {
				t.Errorf("by SQL %s, by Go %s", bySQL, byGo.ID)
			}
			if described, err := eng.DescribeExecution(t.Context(), bySQL); err != nil || described.Kind != "test" {
				t.Errorf("%+v, %v", described, err)
			}
		})
	}
}

// A lane that SQL used first is registered as by Go.
func TestCreationFromSQLRegistersTheLane(t *testing.T) {
	f := fixture.NewCloned(t)
	eng := newEngine(t, f, engine.Config{})
	createSQL(t, f, "'test', 'by-sql'")
	createSQL(t, f, "'test', 'by-sql'")
	if _, err := eng.CreateExecution(t.Context(), engine.ExecutionSpec{Kind: "test", Lane: "by-go"}); err != nil {
		t.Fatal(err)
	}
	lanes := fixture.Texts(t, f.Pool, `SELECT lane_id || ' ' || registered_by FROM ff_lane_registry
		WHERE lane_id LIKE 'by-%' AND (lane_id = 'by-go' OR registered_at_ms = (SELECT min(created_at_ms) FROM ff_exec_core)) ORDER BY 1`)
	if want := []string{"by-go create_execution", "by-sql create_execution"}; !slices.Equal(lanes, want) {
		t.Errorf("%q, want %q", lanes, want)
	}
}

// SQL computes partitions and ids like package id.
func TestPartitionsAndIDsFromSQL(t *testing.T) {
	f := fixture.NewCloned(t)
	for _, lane := range []id.LaneID{"default", "a", "~", "images.thumbnails", id.LaneID(strings.Repeat("x y", 21))} {
		for _, count := range []uint16{256, 255, 64, 1} {
			want := id.Partitions{Flow: count}.LanePartition(lane)
			if got := scalar[int16](t, f.Pool, "SELECT ffx_lane_partition($1, $2)", string(lane), count); got != want {
				t.Errorf("lane %q of %d partitions: %d, want %d", lane, count, got, want)
			}
		}
	}
	before := id.NewExecutionUUID().String()
	ids := fixture.Texts(t, f.Pool, "SELECT ffx_new_id()::text FROM generate_series(1, 1000)")
	if !slices.IsSortedFunc(ids, func(a, b string) int { return strings.Compare(a[:18], b[:18]) }) {
		t.Errorf("the times of ids do not ascend: %q", ids[:10])
	}
	for _, x := range ids {
		if x[14] != '7' || !strings.Contains("89ab", x[19:20]) || x[:6] != before[:6] {
			t.Fatalf("%s is no UUIDv7 of this time: %s", x, before)
		}
	}
	if slices.Sort(ids); len(slices.Compact(ids)) != 1000 {
		t.Error("ids repeat")
	}
}

// Programs that configure fewer partitions set their number for SQL.
func TestCreationFromSQLWithFewerPartitions(t *testing.T) {
	f := fixture.NewCloned(t)
	eng := newEngine(t, f, engine.Config{Partitions: id.Partitions{Flow: 3}})
	tx := f.BeginTx(t)
	fixture.ExecIn(t, tx, "SET LOCAL ffx.flow_partitions = 3")
	var text string
	if err := tx.QueryRow(t.Context(), "SELECT ffx_create('test', 'images')").Scan(&text); err != nil {
		t.Fatal(err)
	}
	fixture.Commit(t, tx)
	x, err := id.ParseExecutionID(text)
	if err != nil || x.Partition() != (id.Partitions{Flow: 3}).LanePartition("images") {
		t.Errorf("%s, %v", x, err)
	}
	if _, err := eng.DescribeExecution(t.Context(), x); err != nil {
		t.Error(err)
	}
}

// A repeated key returns the first execution, from Go and from SQL. Other content is refused and names it, in the window and
// not after it.
func TestCreationFromSQLRepeatsByKey(t *testing.T) {
	f := fixture.NewCloned(t)
	eng := newEngine(t, f, engine.Config{})
	first := createSQL(t, f, `'test', 'a', '{"n": 1}', idempotency_key => 'k'`)
	if again := createSQL(t, f, `'test', 'a', '{ "n": 1 }', 9, idempotency_key => 'k'`); again != first {
		t.Errorf("again: %s, want %s", again, first)
	}
	spec := engine.ExecutionSpec{Kind: "test", Lane: "a", Payload: []byte(`{"n": 1}`), IdempotencyKey: "k"}
	if created, err := eng.CreateExecution(t.Context(), spec); err != nil || created.ID != first || !created.Duplicate {
		t.Errorf("by Go: %+v, %v", created, err)
	}
	spec.IdempotencyKey = "by go"
	byGo, err := eng.CreateExecution(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if again := createSQL(t, f, `'test', 'a', '{"n": 1}', idempotency_key => 'by go'`); again != byGo.ID {
		t.Errorf("of Go: %s, want %s", again, byGo.ID)
	}
	_, err = f.Pool.Exec(t.Context(), `SELECT ffx_create('test', 'a', '{"n": 2}', idempotency_key => 'k')`)
	refused, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || refused.Code != "23505" || !strings.Contains(refused.Message, "idempotency_key") || !strings.Contains(refused.Detail, first.String()) {
		t.Errorf("another payload: %v", err)
	}
	for name, arguments := range map[string]string{
		"kind": `'other', 'a', idempotency_key => 'k'`, "lane": `'test', 'b', idempotency_key => 'k'`,
		"namespace": `'test', 'a', namespace => 'n', idempotency_key => 'k'`,
	} {
		if other := createSQL(t, f, arguments); other == first {
			t.Errorf("another %s: the same execution", name)
		}
	}
	f.Exec(t, "UPDATE ffx_create_dedup SET expires_at_ms = 1")
	anew := createSQL(t, f, `'test', 'a', '{"n": 2}', idempotency_key => 'k'`)
	if anew == first {
		t.Error("after the window: the same execution")
	}
	if again := createSQL(t, f, `'test', 'a', '{"n": 2}', idempotency_key => 'k'`); again != anew {
		t.Errorf("after the window, again: %s, want %s", again, anew)
	}
	// A key of the former scope holds for any kind and lane.
	f.Exec(t, `INSERT INTO ffx_create_dedup SELECT partition_key, 'default', 'former', execution_id, 9000000000000
		FROM ff_exec_core WHERE execution_id = $1`, first.UUID().String())
	if again := createSQL(t, f, `'test', 'a', '{"n": 1}', idempotency_key => 'former'`); again != first {
		t.Errorf("a former key: %s, want %s", again, first)
	}
	if _, err := f.Pool.Exec(t.Context(), `SELECT ffx_create('other', 'a', '{"n": 1}', idempotency_key => 'former')`); err == nil {
		t.Error("a former key of another kind was accepted")
	}
}

// Two transactions that create by the same key make one execution: the later waits for the first.
func TestCreationFromSQLRacesItself(t *testing.T) {
	f := fixture.NewCloned(t)
	for _, commits := range []bool{true, false} {
		tx := f.BeginTx(t)
		key := fmt.Sprint("k", commits)
		var first string
		if err := tx.QueryRow(t.Context(), "SELECT ffx_create('test', idempotency_key => $1)", key).Scan(&first); err != nil {
			t.Fatal(err)
		}
		late := f.Rival(t)
		second := make(chan string, 1)
		go func() {
			var x string
			err := late.Pool.QueryRow(t.Context(), "SELECT ffx_create('test', idempotency_key => $1)", key).Scan(&x)
			second <- fmt.Sprint(x, err)
		}()
		late.AwaitBlocked(t, f)
		if commits {
			fixture.Commit(t, tx)
		} else if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := <-second; (got == first+"<nil>") != commits || !strings.HasSuffix(got, "<nil>") {
			t.Errorf("committed %t: the second creates %s, the first %s", commits, got, first)
		}
	}
}

// Bad input is refused with the argument's name and its limit.
func TestCreationFromSQLChecksItsInput(t *testing.T) {
	f := fixture.NewCloned(t)
	declareCalls(t, f)
	for _, c := range []struct{ arguments, says string }{
		{`NULL`, "kind must have 1 to 255 bytes"},
		{`''`, "kind must have 1 to 255 bytes"},
		{`repeat('ä', 128)`, "kind must have 1 to 255 bytes"},
		{`'test', ''`, "lane must have 1 to 64"},
		{`'test', 'ä'`, "lane must have 1 to 64"},
		{`'test', E'a\n'`, "lane must have 1 to 64"},
		{`'test', repeat('x', 65)`, "lane must have 1 to 64"},
		{`'test', namespace => ''`, "namespace must have 1 to 255 bytes"},
		{`'test', namespace => E'a\u0085'`, "no control characters"},
		{`'test', namespace => repeat('x', 256)`, "namespace must have 1 to 255 bytes"},
		{`'test', payload => to_jsonb(repeat('x', 1048575))`, "payload must have at most 1048576 bytes"},
		{`'test', idempotency_key => repeat('x', 1025)`, "idempotency_key must have at most 1024 bytes"},
		{`'test', idempotency_key => E'\x01a'`, "not begin with U+0001"},
		{`'test', tags => '[]'`, "tags must be an object of texts"},
		{`'test', tags => 'null'`, "tags must be an object of texts"},
		{`'test', tags => '{"a": 1}'`, "tags must be an object of texts"},
		{`'test', tags => '{"": "a"}'`, "keys of 1 to 256 bytes"},
		{`'test', tags => jsonb_build_object(repeat('x', 257), '')`, "keys of 1 to 256 bytes"},
		{`'test', tags => jsonb_build_object('a', repeat('x', 65537))`, "at most 65536 bytes"},
		{`'test', tags => jsonb_build_object('cairn.instance_id', repeat('x', 1025))`, "at most 1024"},
		{`'test', delay_until => 'infinity'`, "delay_until must be finite"},
		{`'test', delay_until => '1969-12-31'`, "delay_until must be finite and after 1970"},
		{`'test', limits => '{"name": "calls"}'`, "limits must be an array of objects"},
		{`'test', limits => 'null'`, "limits must be an array of objects"},
		{`'test', limits => '["calls"]'`, "limits must be an array of objects"},
		{`'test', limits => '[{"name": "a"}, {"name": "b"}, {"name": "c"}, {"name": "d"}, {"name": "e"}]'`, "limits must be at most 4"},
		{`'test', limits => '[{"key": "a"}]'`, "limits must have names of 1 to 512 bytes"},
		{`'test', limits => '[{"name": null}]'`, "limits must have names of 1 to 512 bytes"},
		{`'test', limits => '[{"name": ""}]'`, "limits must have names of 1 to 512 bytes"},
		{`'test', limits => jsonb_build_array(jsonb_build_object('name', repeat('x', 513)))`, "limits must have names of 1 to 512 bytes"},
		{`'test', limits => '[{"name": "calls", "unit": 2}]'`, `limits must have name, key and units, and not "unit"`},
		{`'test', limits => '[{"name": "calls", "key": null}]'`, `limit "calls" must have as its key a text of at most 512 bytes`},
		{`'test', limits => '[{"name": "calls", "key": 7}]'`, `limit "calls" must have as its key a text of at most 512 bytes`},
		{`'test', limits => jsonb_build_array(jsonb_build_object('name', 'calls', 'key', repeat('x', 513)))`, "a text of at most 512 bytes"},
		{`'test', limits => '[{"name": "calls", "units": 0}]'`, `limit "calls" must have units from 1 to 1000000000`},
		{`'test', limits => '[{"name": "calls", "units": 1.5}]'`, `limit "calls" must have units from 1 to 1000000000`},
		{`'test', limits => '[{"name": "calls", "units": 1e9999}]'`, `limit "calls" must have units from 1 to 1000000000`},
		{`'test', limits => '[{"name": "calls", "units": "2"}]'`, `limit "calls" must have units from 1 to 1000000000`},
		{`'test', limits => '[{"name": "calls", "units": null}]'`, `limit "calls" must have units from 1 to 1000000000`},
		{`'test', limits => '[{"name": "calls", "units": 3}]'`, `limit "calls" has 2 units, but the execution takes 3`},
		{`'test', limits => '[{"name": "calls"}, {"name": "call\u0073"}]'`, `limit "calls" is named twice with the same key`},
		{`'test', limits => '[{"name": "calls"}, {"name": "other"}]'`, `limit "other" does not exist in namespace "default"`},
		{`'test', namespace => 'elsewhere', limits => '[{"name": "calls"}]'`, `limit "calls" does not exist in namespace "elsewhere"`},
	} {
		_, err := f.Pool.Exec(t.Context(), "SELECT ffx_create("+c.arguments+")")
		refused, ok := errors.AsType[*pgconn.PgError](err)
		if !ok || refused.Code != "22023" || !strings.Contains(refused.Message, c.says) || !strings.HasPrefix(refused.Message, "ffx_create: ") {
			t.Errorf("ffx_create(%s): %v, want %s", c.arguments, err, c.says)
		}
	}
	if n := countRows(t, f, "ff_exec_core"); n != 0 {
		t.Errorf("%d executions were created", n)
	}
}

// A trigger creates an execution for each row of the caller's statement, in its transaction, and a worker is woken by the
// commit.
func TestCreationFromATrigger(t *testing.T) {
	f := fixture.NewCloned(t)
	f.Exec(t, `CREATE TABLE orders (id integer PRIMARY KEY)`)
	f.Exec(t, `CREATE FUNCTION fulfil() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			PERFORM ffx_create('fulfil', 'orders', jsonb_build_object('order', NEW.id), idempotency_key => 'order ' || NEW.id);
			RETURN NULL;
		END $$`)
	f.Exec(t, `CREATE TRIGGER fulfil AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION fulfil()`)
	listener, err := f.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Release()
	if _, err := listener.Exec(t.Context(), "LISTEN ffx_ready"); err != nil {
		t.Fatal(err)
	}
	tx := f.BeginTx(t)
	fixture.ExecIn(t, tx, "INSERT INTO orders SELECT generate_series(1, 1000)")
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := countRows(t, f, "ff_exec_core") + countRows(t, f, "ffx_ready") + countRows(t, f, "ffx_create_dedup"); n != 0 {
		t.Errorf("%d rows were left by a rollback", n)
	}
	f.Exec(t, "INSERT INTO orders SELECT generate_series(1, 1000)")
	woken, err := listener.Conn().WaitForNotification(t.Context())
	if err != nil || woken.Payload != "orders" {
		t.Errorf("%+v, %v", woken, err)
	}
	f.Exec(t, "SELECT ffx_create('fulfil', 'orders', jsonb_build_object('order', o.id), idempotency_key => 'order ' || o.id) FROM orders AS o")
	if n := countRows(t, f, "ff_exec_core"); n != 1000 {
		t.Errorf("%d executions, want one for each order", n)
	}
	claimed, err := f.Claim(t.Context(), engine.ClaimSpec{Lane: "orders", Worker: "w", Instance: "w-1", LeaseTTL: time.Minute}, 1000)
	if err != nil || len(claimed) != 1000 || string(claimed[0].Payload) != `{"order": 1}` {
		t.Errorf("claimed %d, %v", len(claimed), err)
	}
}

// A role with the rights of a creator may create from SQL, another one may not, whatever its search_path.
func TestCreationFromSQLNeedsTheRightsOfACreator(t *testing.T) {
	f := fixture.NewCloned(t)
	role := f.Stranger(t)
	t.Cleanup(func() {
		if _, err := f.Pool.Exec(context.WithoutCancel(t.Context()), fmt.Sprintf("DROP OWNED BY %q", role)); err != nil {
			t.Error(err)
		}
	})
	name := scalar[string](t, f.Pool, "SELECT current_schema()::text")
	create := func() error {
		tx := f.BeginTx(t)
		fixture.ExecIn(t, tx, fmt.Sprintf("SET LOCAL ROLE %q", role))
		fixture.ExecIn(t, tx, "SET LOCAL search_path = pg_temp")
		_, err := tx.Exec(t.Context(), fmt.Sprintf("SELECT %q.ffx_create('test', idempotency_key => 'k', delay_until => now())", name))
		if err == nil {
			_, err = tx.Exec(t.Context(), fmt.Sprintf("SELECT %q.ffx_create('test', idempotency_key => 'k')", name))
		}
		_ = tx.Rollback(t.Context())
		return err
	}
	if refused, ok := errors.AsType[*pgconn.PgError](create()); !ok || refused.Code != "42501" {
		t.Errorf("without rights: %v", refused)
	}
	f.Exec(t, "REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA "+name+" FROM PUBLIC")
	grants, err := schema.Grants(role, schema.GrantOptions{Creator: true, Schema: name})
	if err != nil {
		t.Fatal(err)
	}
	f.Exec(t, grants)
	if err := create(); err != nil {
		t.Errorf("with the rights of a creator: %v", err)
	}
}
