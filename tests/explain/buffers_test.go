package explain

import (
	"fmt"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// maxBuffers is how many pages an explanation reads at most, whatever waits and whatever the planner knows.
const maxBuffers = 300

// maxLaneBuffers is how many pages the explanation of a lane reads at most.
const maxLaneBuffers = 20

// The last of many waiting executions is explained within the bound: with fresh statistics, with statistics of nearly empty
// tables, and without any.
func TestExplainReadsFewBuffers(t *testing.T) {
	p := fixture.NewPlanner(t)
	p.Register(t)
	check := func(situation string, x id.ExecutionID) {
		total, each := 0, ""
		partition, execution, now := x.Partition(), x.UUID(), p.Time().UnixMilli()
		for _, q := range []struct {
			name string
			args []any
		}{
			{"GetExecution", []any{partition, execution}},
			{"ListHindrances", []any{partition, execution}},
			{"ListGateFacts", []any{partition, execution}},
			{"GetBudgetWaitedFor", []any{partition, execution}},
			{"ListWorkersAround", []any{now, partition, execution}},
			{"GetSurroundings", []any{now, partition, execution}},
		} {
			n := p.Buffers(t, q.name, q.args...)
			total, each = total+n, each+fmt.Sprintf(" %s %d", q.name, n)
		}
		lanes := []string{string(p.Lane), "default"}
		if n := p.Buffers(t, "ListLaneHeads", now, lanes) + p.Buffers(t, "ListWorkersOfLanes", now, lanes); n > maxLaneBuffers*len(lanes) {
			t.Errorf("%s: %d buffers for %d lanes, at most %d are allowed for each", situation, n, len(lanes), maxLaneBuffers)
		}
		t.Logf("%s: %d buffers:%s", situation, total, each)
		if total > maxBuffers {
			t.Errorf("%s: %d buffers, at most %d are allowed:%s", situation, total, maxBuffers, each)
		}
	}
	fill := func(n int) (last id.ExecutionID) {
		for range n / 500 {
			p.Advance(time.Millisecond)
			created, err := p.CreateExecutions(t.Context(), fixture.ManyLike(p.Fixture, 500, func(int, *engine.ExecutionSpec) {}))
			if err != nil {
				t.Fatal(err)
			}
			last = created[len(created)-1].Value.ID
		}
		return last
	}
	first := p.Create(t)
	p.Analyze(t)
	check("one waiting", first)
	last := fill(6_000)
	check("analysed with one of 6,000 waiting", last)
	check("the first of 6,000", first)
	p.Forget(t)
	check("never analysed", last)
	p.Analyze(t)
	check("analysed", last)
	p.Maintain(t, "VACUUM")
	check("vacuumed", last)
}
