package sequences

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// modelMember is a member as the model knows it.
type modelMember struct {
	id     id.ExecutionID
	skips  bool
	failed bool // it ended so, and keeps its place
}

// model is a line of members. The first one has the turn, unless the sequence has stopped at it.
type model struct {
	key     string // and the suffix of its lane
	line    []*modelMember
	ended   []*modelMember // without a place
	stopped bool
}

// leave takes a member out that has ended, and stops at failed ones.
func (m *model) leave(x *modelMember, failed bool) {
	if failed && !x.skips {
		x.failed = true
	} else {
		m.line = slices.DeleteFunc(m.line, func(y *modelMember) bool { return y == x })
		m.ended = append(m.ended, x)
	}
	m.stopped = len(m.line) > 0 && m.line[0].failed
}

// Operations on one sequence in any order, some of them while another transaction holds it, agree with a line in memory.
func TestSequencesAgreeWithAModel(t *testing.T) {
	f := fixture.NewCloned(t)
	runs := 0
	fixture.Check(t, func(r *rapid.T) {
		runs++
		key := fmt.Sprint("-", runs)
		m := &model{key: key}
		name := engine.SequenceName{Key: key}
		for range rapid.IntRange(5, 25).Draw(r, "steps") {
			act(t, r, f, m, key)
			if _, err := upkeep.Of(f.Engine).AdvanceSequences(t.Context(), 100); err != nil {
				r.Fatal(err)
			}
			agree(t, r, f, m, name)
		}
	})
}

func act(t *testing.T, r *rapid.T, f *fixture.Fixture, m *model, key string) {
	ctx := t.Context()
	if rapid.Bool().Draw(r, "held by another") {
		holder, err := f.Pool.Begin(ctx)
		if err != nil {
			r.Fatal(err)
		}
		defer func() { _ = holder.Rollback(ctx) }()
		rows := rapid.SampledFrom([]string{
			"SELECT FROM ffx_sequence WHERE key = $1 FOR UPDATE",
			"SELECT FROM ff_exec_core WHERE raw_fields -> 'ffx_sequence' ->> 'key' = $1 AND public_state = 'waiting_children' FOR UPDATE",
		}).Draw(r, "rows")
		if _, err := holder.Exec(ctx, rows, key); err != nil {
			r.Fatal(err)
		}
		// These wait for neither.
		if len(m.line) > 0 && !m.stopped {
			end(t, r, f, m)
		}
		return
	}
	switch rapid.SampledFrom([]string{"create", "create", "end", "cancel", "replay", "continue", "expire"}).Draw(r, "act") {
	case "create":
		var specs []engine.ExecutionSpec
		for range rapid.IntRange(1, 3).Draw(r, "members") {
			spec := engine.ExecutionSpec{Lane: f.Lane + id.LaneID(key), Kind: "test", Sequence: engine.Sequence{Key: key}}
			if rapid.Bool().Draw(r, "skips") {
				spec.Sequence.OnFailure = engine.SequenceSkips
			}
			spec.Policy = &policy.Execution{Retry: &policy.Retry{MaxRetries: policy.NoRetries}}
			if rapid.IntRange(0, 4).Draw(r, "deadline") == 0 {
				spec.Deadline = f.Time().Add(time.Minute)
			}
			specs = append(specs, spec)
		}
		created, err := f.CreateExecutions(ctx, specs)
		if err != nil {
			r.Fatal(err)
		}
		for i, outcome := range created {
			m.line = append(m.line, &modelMember{id: outcome.Value.ID, skips: specs[i].Sequence.OnFailure == engine.SequenceSkips})
		}
	case "end":
		if len(m.line) > 0 && !m.stopped {
			end(t, r, f, m)
		}
	case "cancel":
		var open []*modelMember
		for _, x := range m.line {
			if !x.failed {
				open = append(open, x)
			}
		}
		if len(open) > 0 {
			x := rapid.SampledFrom(open).Draw(r, "cancelled")
			if err := f.CancelExecution(ctx, engine.CancelSpec{ID: x.id}); err != nil {
				r.Fatal(err)
			}
			m.leave(x, false)
		}
	case "replay":
		replay(t, r, f, m)
	case "continue":
		err := operator.ContinueSequence(ctx, f.Engine, engine.SequenceName{Key: key})
		if len(m.line) == 0 != errors.Is(err, fferr.ErrNotFound) {
			r.Fatal(err)
		}
		if m.stopped {
			m.ended = append(m.ended, m.line[0])
			m.line[0].failed = false
			m.line = m.line[1:]
			m.stopped = len(m.line) > 0 && m.line[0].failed
		}
	case "expire":
		f.Advance(time.Hour)
		if _, err := upkeep.Of(f.Engine).ExpireDeadlines(ctx, 100); err != nil {
			r.Fatal(err)
		}
		for _, x := range slices.Clone(m.line) {
			if state, err := f.DescribeExecution(ctx, x.id); err != nil {
				r.Fatal(err)
			} else if state.State.Public == "expired" && !x.failed {
				m.leave(x, true)
			}
		}
	}
}

// end claims the first member and ends it.
func end(t *testing.T, r *rapid.T, f *fixture.Fixture, m *model) {
	claimed, err := f.Claim(t.Context(), f.WorkerOn(id.LaneID(m.key)), 10)
	if err != nil {
		r.Fatal(err)
	}
	first := m.line[0]
	if got := fixture.ExecutionsOf(claimed); !slices.Equal(got, []id.ExecutionID{first.id}) {
		r.Fatalf("claimed %v, want %v", got, first.id)
	}
	fails := rapid.Bool().Draw(r, "fails")
	if fails {
		_, err = f.FailExecution(t.Context(), claimed[0].Lease, engine.Failure{Message: "no"})
	} else {
		err = f.CompleteExecution(t.Context(), claimed[0].Lease, nil)
	}
	if err != nil {
		r.Fatal(err)
	}
	m.leave(first, fails)
}

func replay(t *testing.T, r *rapid.T, f *fixture.Fixture, m *model) {
	candidates := slices.Clone(m.ended)
	for _, x := range m.line {
		if x.failed {
			candidates = append(candidates, x)
		}
	}
	if len(candidates) == 0 {
		return
	}
	x := rapid.SampledFrom(candidates).Draw(r, "replayed")
	_, err := operator.Replay(t.Context(), f.Engine, x.id, operator.ReplayCompleted)
	switch {
	case errors.Is(err, fferr.ErrMaxReplays):
		return
	case err != nil:
		r.Fatal(err)
	case x.failed:
		x.failed = false
	default:
		m.ended = slices.DeleteFunc(m.ended, func(y *modelMember) bool { return y == x })
		m.line = append(m.line, x)
	}
	m.stopped = len(m.line) > 0 && m.line[0].failed
}

func agree(t *testing.T, r *rapid.T, f *fixture.Fixture, m *model, name engine.SequenceName) {
	var members []id.ExecutionID
	for member, err := range f.SequenceMembers(t.Context(), name) {
		if err != nil {
			r.Fatal(err)
		}
		members = append(members, member.Execution)
	}
	var want []id.ExecutionID
	for _, x := range m.line {
		want = append(want, x.id)
	}
	if !slices.Equal(members, want) {
		r.Fatalf("members %v, want %v", members, want)
	}
	s, err := f.DescribeSequence(t.Context(), name)
	switch {
	case len(m.line) == 0:
		if !errors.Is(err, fferr.ErrNotFound) {
			r.Fatalf("%+v, %v of an empty sequence", s, err)
		}
	case err != nil || s.StoppedAt.IsZero() == m.stopped || s.First != m.line[0].id:
		r.Fatalf("%+v, %v, want stopped %v", s, err, m.stopped)
	}
	for i, x := range m.line {
		state, err := f.DescribeExecution(t.Context(), x.id)
		if err != nil {
			r.Fatal(err)
		}
		public := "waiting_children"
		switch {
		case x.failed:
			continue
		case i == 0:
			public = "waiting"
		}
		if string(state.State.Public) != public || state.Sequence.Ahead != i {
			r.Fatalf("member %d is %s behind %d, want %s", i, state.State.Public, state.Sequence.Ahead, public)
		}
	}
}
