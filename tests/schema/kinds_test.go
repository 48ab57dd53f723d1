package schema_test

import (
	"slices"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/schema"
)

// kindless are documents of executions, as other programs may store them: most without a kind. An entry of the queue
// has a kind all the same, an empty one if there is none.
const (
	kindless  = `'{}', '{"execution_kind": null}', '{"execution_kind": ""}', 'null', '[]', '"text"', '{"execution_kind": 7}', '{"execution_kind": "resize"}'`
	wantKinds = 8
)

// insertKindless inserts copies of an execution for each document, in a state.
const insertKindless = `
	INSERT INTO ff_exec_core (partition_key, execution_id, lane_id, lifecycle_phase, ownership_state, eligibility_state,
		public_state, attempt_state, created_at_ms, raw_fields)
	SELECT 7, gen_random_uuid(), 'lane', 'runnable', 'unowned', $1, 'waiting', 'pending_first_attempt', n, document::jsonb
	FROM unnest(ARRAY[` + kindless + `]) AS document, generate_series(1, $2::integer) AS n`

func TestEveryQueueEntryHasAKind(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		write func(t *testing.T) (databaseURL string)
	}{
		{"inserted one by one", func(t *testing.T) string {
			databaseURL := pgtest.CloneURL(t)
			exec(t, connect(t, databaseURL), insertKindless, "eligible_now", 1)
			return databaseURL
		}},
		{"inserted in a batch", func(t *testing.T) string {
			databaseURL := pgtest.CloneURL(t)
			exec(t, connect(t, databaseURL), insertKindless, "eligible_now", 20)
			return databaseURL
		}},
		{"made claimable", func(t *testing.T) string {
			databaseURL := pgtest.CloneURL(t)
			conn := connect(t, databaseURL)
			exec(t, conn, insertKindless, "blocked_by_operator", 1)
			exec(t, conn, "UPDATE ff_exec_core SET eligibility_state = 'eligible_now'")
			return databaseURL
		}},
		{"repaired", func(t *testing.T) string {
			databaseURL := pgtest.CloneURL(t)
			conn := connect(t, databaseURL)
			exec(t, conn, insertKindless, "eligible_now", 1)
			exec(t, conn, "TRUNCATE ffx_ready; UPDATE ff_exec_core SET ffx_retry_count = 0")
			exec(t, conn, "TRUNCATE ffx_ready")
			eng, err := engine.New(lazyPool(t, databaseURL), engine.Config{})
			if err != nil {
				t.Fatal(err)
			}
			if n, err := upkeep.Of(eng).RepairQueue(t.Context(), 100); err != nil || n < wantKinds {
				t.Fatalf("repaired %d, %v", n, err)
			}
			return databaseURL
		}},
		{"adopted", func(t *testing.T) string {
			databaseURL := referenceDatabase(t, ordinary)
			exec(t, connect(t, databaseURL), insertKindless, "eligible_now", 1)
			if _, err := schema.Adopt(t.Context(), databaseURL, schema.AdoptOptions{}); err != nil {
				t.Fatal(err)
			}
			return databaseURL
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			conn := connect(t, test.write(t))
			got := scalar[[]string](t, conn, "SELECT array_agg(DISTINCT kind ORDER BY kind) FROM ffx_ready")
			if want := []string{"", "7", "resize"}; !slices.Equal(got, want) {
				t.Errorf("kinds %q, want %q", got, want)
			}
			entries := scalar[int](t, conn, "SELECT count(*) FROM ffx_ready")
			if executions := scalar[int](t, conn, "SELECT count(*) FROM ff_exec_core"); entries != executions {
				t.Errorf("%d entries for %d executions", entries, executions)
			}
		})
	}
}
