package statements

import (
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/stream"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// Claims, renewals, appends to streams and completions of neighbours stay on the pages of their rows and touch no index.
func TestHeapOnlyClaimsRenewalsAndCompletions(t *testing.T) {
	f := fixture.NewCloned(t)
	const total, batch = 600, 120
	for range total / 200 {
		if _, err := f.CreateExecutions(t.Context(), slices.Repeat([]engine.ExecutionSpec{{Kind: "test", Lane: f.Lane}}, 200)); err != nil {
			t.Fatal(err)
		}
		f.Advance(time.Millisecond)
	}
	type updates struct{ All, HeapOnly int }
	counted := make(map[string]updates)
	count := func(what string, work func(e *engine.Engine)) {
		tx := f.BeginTx(t)
		read := func() updates { // since the connection reported its counts last
			return fixture.One[updates](t, tx, `SELECT sum(n_tup_upd)::integer AS all, sum(n_tup_hot_upd)::integer AS heap_only
				FROM pg_stat_xact_user_tables WHERE relid IN ('ff_exec_core'::regclass, 'ff_attempt'::regclass)`)
		}
		before := read()
		work(f.WithTx(tx))
		after := read()
		xid := fixture.Texts(t, tx, "SELECT pg_current_xact_id()::text")[0]
		fixture.Commit(t, tx)
		// A page is cleared of versions that no snapshot of the server needs any more, including those of other
		// tests.
		fixture.Await(t, "older transactions to end", func() bool {
			return fixture.Texts(t, f.Pool, "SELECT (pg_snapshot_xmin(pg_current_snapshot()) > $1::text::xid8)::text", xid)[0] == "true"
		})
		counted[what] = updates{counted[what].All + after.All - before.All, counted[what].HeapOnly + after.HeapOnly - before.HeapOnly}
	}
	for range total / batch {
		var completions []engine.Completion
		var renewals []engine.Renewal
		count("claims", func(e *engine.Engine) {
			claimed, err := e.Claim(t.Context(), f.Worker(), batch)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range claimed {
				renewals = append(renewals, engine.Renewal{Lease: c.Lease})
				completions = append(completions, engine.Completion{Lease: c.Lease, Result: []byte("out")})
			}
		})
		f.Advance(time.Second)
		count("renewals", func(e *engine.Engine) {
			if _, err := e.RenewLeases(t.Context(), renewals); err != nil {
				t.Fatal(err)
			}
		})
		count("appends", func(e *engine.Engine) {
			batches := make([]stream.Batch, len(renewals))
			for i := range renewals {
				batches[i] = stream.Batch{Lease: renewals[i].Lease, Frames: fixture.Frames[:1]}
			}
			if _, err := stream.AppendEach(t.Context(), e, batches); err != nil {
				t.Fatal(err)
			}
		})
		count("completions", func(e *engine.Engine) {
			if _, err := e.CompleteExecutions(t.Context(), completions); err != nil {
				t.Fatal(err)
			}
		})
	}
	for what, want := range map[string]int{"claims": total, "renewals": total, "appends": total, "completions": 2 * total} {
		// With a column in an index none would be, of one table at least: half. Of a renewed attempt the third version finds
		// room only once its page has been cleared of the first.
		if n := counted[what]; n.All != want || n.HeapOnly < want*60/100 {
			t.Errorf("%s: %d of %d updates are heap-only, want 60 %% of %d", what, n.HeapOnly, n.All, want)
		} else {
			t.Logf("%s: %d of %d updates are heap-only", what, n.HeapOnly, n.All)
		}
	}
}

// One column of theirs in an index, and every claim, renewal, append or completion writes to every index.
func TestHeapOnlyIndexesHoldNoHotColumn(t *testing.T) {
	f := fixture.New(t)
	queries := fixture.Queries(t)
	for _, c := range []struct {
		table string
		// These columns do not change if an execution has no delay, deadline, gate or timeout.
		kept       []string
		statements []string
	}{
		{
			"ff_exec_core",
			[]string{"ffx_delay_until_ms", "deadline_at_ms", "ffx_execution_deadline_ms", "ffx_gate_id"},
			[]string{
				"ClaimFromHead", "ClaimAfterPositions", "ClaimOneAfterPosition", "CompleteExecutions", "CompleteOne", "LeaseTakenExecutions", "EndSucceeded",
				"ReturnLeases", "EndCancelled",
			},
		},
		{"ff_attempt", []string{"ffx_timeout_at_ms"}, []string{"RenewLeases", "CompleteExecutions", "CompleteOne", "EndSucceeded", "ReturnLeases", "EndCancelled", "AppendFrames"}},
	} {
		indexed := fixture.Texts(t, f.Pool, `
			SELECT DISTINCT attname::text
			FROM pg_index
			JOIN pg_attribute ON attrelid = indrelid AND attnum > 0
			WHERE
				indrelid = $1::text::regclass
				AND (attnum = ANY (indkey) OR EXISTS (
					SELECT FROM pg_depend
					WHERE classid = 'pg_class'::regclass AND objid = indexrelid AND refobjid = indrelid AND refobjsubid = attnum
				))`, c.table)
		if !slices.Contains(indexed, "execution_id") || !slices.Contains(indexed, c.kept[0]) {
			t.Fatalf("columns of indexes: %q", indexed)
		}
		update := regexp.MustCompile(`(?s)UPDATE ` + c.table + ` AS \w\s+SET\s(.*?)\n    FROM `)
		assignment := regexp.MustCompile(`(?m)^        (\w+) = `)
		for _, name := range c.statements {
			set := update.FindStringSubmatch(queries[name])
			if set == nil {
				t.Fatalf("%s does not update %s", name, c.table)
			}
			columns := assignment.FindAllStringSubmatch(set[1], -1)
			if len(columns) == 0 {
				t.Errorf("%s sets nothing in %s", name, c.table)
			}
			for _, column := range columns {
				if slices.Contains(indexed, column[1]) && !slices.Contains(c.kept, column[1]) {
					t.Errorf("%s sets %s of %s, which is in an index", name, column[1], c.table)
				}
			}
		}
	}
}

// Plain work pays for each index of its table when an update compares the columns of all, so no capability adds one unseen.
func TestExecutionsHaveNoFurtherIndex(t *testing.T) {
	f := fixture.New(t)
	want := []string{
		"ff_exec_core_flow_idx", "ff_exec_core_pkey", "ffx_ff_exec_core_deadline_idx", "ffx_ff_exec_core_execution_deadline_idx",
		"ffx_ff_exec_core_promotion_idx",
	}
	got := fixture.Texts(t, f.Pool, "SELECT relname::text FROM pg_index JOIN pg_class ON oid = indexrelid WHERE indrelid = 'ff_exec_core'::regclass ORDER BY relname::text COLLATE \"C\"")
	if !slices.Equal(got, want) {
		t.Errorf("the indexes are %q, want %q", got, want)
	}
}
