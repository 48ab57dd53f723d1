package sequences

import (
	"slices"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// line is a sequence with its executions, in the order of creation, on a database of its own.
type line struct {
	*fixture.Fixture
	members []id.ExecutionID
}

const account = "account 4711"

// of makes an execution a member of the test's sequence. It is not retried.
func of(s engine.Sequence) func(*engine.ExecutionSpec) {
	return func(spec *engine.ExecutionSpec) {
		spec.Sequence, spec.Policy = s, &policy.Execution{Retry: &policy.Retry{MaxRetries: policy.NoRetries}}
	}
}

func lineOf(t *testing.T, n int, onFailure engine.OnFailure) *line {
	t.Helper()
	l := &line{Fixture: fixture.NewCloned(t)}
	for range n {
		l.members = append(l.members, l.Create(t, of(engine.Sequence{Key: account, OnFailure: onFailure})))
	}
	return l
}

// wantTurn fails unless the one claimable execution is the member of this index, or there is none for -1. It returns the
// claim.
func (l *line) wantTurn(t *testing.T, member int) engine.Claimed {
	t.Helper()
	claimed := l.ClaimN(t, 10)
	var want []id.ExecutionID
	if member >= 0 {
		want = l.members[member : member+1]
	}
	if got := fixture.ExecutionsOf(claimed); !slices.Equal(got, want) {
		t.Fatalf("claimed %v, want %v of %v", got, want, l.members)
	}
	if member < 0 {
		return engine.Claimed{}
	}
	return claimed[0]
}

func (l *line) complete(t *testing.T, c engine.Claimed) {
	t.Helper()
	if err := l.CompleteExecution(t.Context(), c.Lease, nil); err != nil {
		t.Fatal(err)
	}
}

func (l *line) fail(t *testing.T, c engine.Claimed) {
	t.Helper()
	if _, err := l.FailExecution(t.Context(), c.Lease, engine.Failure{Message: "no"}); err != nil {
		t.Fatal(err)
	}
}

// wantRows fails unless the database has as many sequences, members and notes.
func (l *line) wantRows(t *testing.T, sequences, members, notes int) {
	t.Helper()
	got := [3]int{}
	for i, table := range []string{"ffx_sequence", "ffx_sequence_member", "ffx_sequence_end"} {
		got[i] = len(fixture.Texts(t, l.Pool, "SELECT sequence_id::text FROM "+table))
	}
	if want := [3]int{sequences, members, notes}; got != want {
		t.Errorf("%v sequences, members and notes, want %v", got, want)
	}
}

func (l *line) describe(t *testing.T) engine.SequenceState {
	t.Helper()
	s, err := l.DescribeSequence(t.Context(), engine.SequenceName{Key: account})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
