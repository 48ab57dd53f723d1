package schema_test

import (
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/internal/pgtest"
)

func TestNowMs(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgtest.URL(t))
	if got := scalar[int64](t, conn, "SELECT ffx_now_ms(1234)"); got != 1234 {
		t.Errorf("a given instant became %d", got)
	}
	apart := scalar[float64](t, conn, "SELECT abs(ffx_now_ms(NULL) - extract(epoch FROM statement_timestamp()) * 1000)::float8")
	if apart > 1 {
		t.Errorf("%v ms away from the statement's time", apart)
	}
}

// The claim of a due row must be an index condition, under a generic plan as well.
func TestNowMsIsInlined(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgtest.URL(t), "plan_cache_mode", "force_generic_plan", "enable_seqscan", "off", "enable_bitmapscan", "off")
	exec(t, conn, `
		PREPARE due (bigint) AS
		SELECT execution_id
		FROM ff_exec_core
		WHERE ffx_delay_until_ms <= ffx_now_ms($1)`)
	plan := scalar[string](t, conn, "EXPLAIN (FORMAT json) EXECUTE due (NULL)")
	if !strings.Contains(plan, "ffx_ff_exec_core_promotion_idx") || !strings.Contains(plan, `"Index Cond"`) || strings.Contains(plan, "ffx_now_ms") {
		t.Errorf("plan %s", plan)
	}
}

func TestFlowKey(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgtest.URL(t))
	const flow = "11111111-2222-3333-4444-555555555555"
	got := scalar[int64](t, conn, "SELECT ffx_flow_key($1::text::uuid)", flow)
	if want := scalar[int64](t, conn, "SELECT hashtextextended($1, 8031)", flow); got != want {
		t.Errorf("key %d, want %d", got, want)
	}
}
