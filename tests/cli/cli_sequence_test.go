package cli

import (
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

func TestCLISequences(t *testing.T) {
	f := fixture.NewCloned(t)
	ff := cli{fixture.BuildFF(t)}
	ff.run(t, f.Url, "sequence", "list").succeeds(t, "There are no sequences.")
	create := func(s *engine.ExecutionSpec) {
		s.Sequence, s.Policy = engine.Sequence{Key: "account 4711"}, &policy.Execution{Retry: &policy.Retry{MaxRetries: policy.NoRetries}}
	}
	first := f.Start(t, create)
	second := f.Create(t, create)
	ff.run(t, f.Url, "execution", "show", second.String()).succeeds(t, "account 4711, place 2 behind 1, now "+first.ID.String())
	if _, err := f.FailExecution(t.Context(), first.Lease, engine.Failure{Message: "no"}); err != nil {
		t.Fatal(err)
	}
	ff.run(t, f.Url, "sequence", "list", "--stopped").succeeds(t, first.ID.String())
	ff.run(t, f.Url, "sequence", "show", "account 4711").succeeds(t, second.String())
	ff.run(t, f.Url, "sequence", "show", "account 4711", "--json").succeeds(t, `"stopped_at"`)
	ff.run(t, f.Url, "sequence", "continue", "account 4711").succeeds(t, "continues")
	ff.run(t, f.Url, "execution", "show", second.String()).succeeds(t, "its turn")
	ff.run(t, f.Url, "sequence", "continue", "account 0815").fails(t, cliNotFound, "ff sequence list")
}
