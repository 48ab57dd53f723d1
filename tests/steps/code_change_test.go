package steps

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/worker"
)

// stepNames returns the names of the finished steps of an execution, in order.
func stepNames(t *testing.T, e *engine.Engine, x id.ExecutionID) (names []string) {
	t.Helper()
	steps, err := e.Steps(t.Context(), x)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range steps {
		names = append(names, s.Name)
	}
	return names
}

// An execution begins with the old code and continues with the new one, as docs/steps.md promises. A result of another
// type is TestStepResultDoesNotDecode.
func TestCodeChangesWhileAnExecutionIsUnderWay(t *testing.T) {
	for _, c := range []struct {
		name     string
		old, new []string // the steps of the handler
		calls    string
		stored   []string
	}{
		{"a new step at the end", []string{"a", "b"}, []string{"a", "b", "c"}, "a:1 b:1 c:1", []string{"a", "b", "c"}},
		{"a new step at the beginning", []string{"a", "b"}, []string{"c", "a", "b"}, "a:1 b:1 c:1", []string{"a", "b", "c"}},
		{"a removed step", []string{"a", "b"}, []string{"b"}, "a:1 b:1", []string{"a", "b"}},
		{"a renamed step", []string{"a", "b"}, []string{"a", "b-2"}, "a:1 b:1 b-2:1", []string{"a", "b", "b-2"}},
		{"another order", []string{"a", "b"}, []string{"b", "a"}, "a:1 b:1", []string{"a", "b"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			calls := counted{}
			o := handling(t, func(ctx context.Context, job orderJob) (string, error) {
				if job.Lease.Attempt > 0 {
					return stepsOf(ctx, job, calls, c.new...)
				}
				_, err := stepsOf(ctx, job, calls, c.old...)
				return "", errors.Join(err, errors.New("deploy"))
			})
			x := o.run(t, worker.Retrying, worker.Completed)
			calls.want(t, c.calls)
			o.wantResult(t, x, strings.Join(c.new, "!")+"!")
			if got := stepNames(t, o.Engine, x); !slices.Equal(got, c.stored) {
				t.Errorf("stored %q, want %q", got, c.stored)
			}
		})
	}
}

// charged is the new result of a step, which was a string in the old code.
type charged struct{ ID, Currency string }

func (c *charged) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '"' {
		c.Currency = "EUR"
		return json.Unmarshal(text, &c.ID)
	}
	type plain charged
	return json.Unmarshal(text, (*plain)(c))
}

// A type that reads both forms of a result keeps the name of its step, and so doesn't repeat its effect.
func TestStepResultOfBothForms(t *testing.T) {
	o := handling(t, func(ctx context.Context, job orderJob) (string, error) {
		if job.Lease.Attempt == 0 {
			_, err := worker.Step(ctx, job, "charge", func(context.Context) (string, error) { return "ch_1", nil })
			return "", errors.Join(err, errors.New("deploy"))
		}
		charge, err := worker.Step(ctx, job, "charge", func(context.Context) (charged, error) { panic("must not run") })
		return charge.ID + " " + charge.Currency, err
	})
	o.wantResult(t, o.run(t, worker.Retrying, worker.Completed), "ch_1 EUR")
}
