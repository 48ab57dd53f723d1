package fftest

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
)

// RequireResult fails the test unless an execution has ended with this result. The failure shows the difference, or why there
// is no result.
func RequireResult[In, Out any](t testing.TB, k *Kit, kind engine.Kind[In, Out], x id.ExecutionID, want Out) {
	t.Helper()
	got, err := kind.Result(t.Context(), k.Engine, x)
	if err != nil {
		t.Fatalf("%s %q has no result: %v%s", x, kind.Name, err, k.history(t, x, err))
	}
	if diff := difference(want, got); diff != "" {
		t.Fatalf("result of %s %q (-want +got):\n%s", x, kind.Name, diff)
	}
}

// RequireFailure fails the test unless an execution has ended without success, for a reason containing text.
//
//	fftest.RequireFailure(t, kit, created.ID, "sold out")
func RequireFailure(t testing.TB, k *Kit, x id.ExecutionID, text string) {
	t.Helper()
	_, err := k.Engine.ExecutionResult(t.Context(), x)
	ended, failed := errors.AsType[*fferr.EndedError](err)
	switch {
	case err == nil:
		t.Fatalf("%s has a result, want a failure with %q", x, text)
	case !failed:
		t.Fatalf("%s has not failed: %v%s", x, err, k.history(t, x, err))
	case !strings.Contains(ended.Failure, text):
		t.Fatalf("%s failed with %q, want %q in it%s", x, ended.Failure, text, k.history(t, x, err))
	}
}

// history describes an execution without a result, and its attempts.
func (k *Kit) history(t testing.TB, x id.ExecutionID, err error) string {
	if !errors.Is(err, fferr.ErrNotEnded) && !errors.Is(err, fferr.ErrEnded) {
		return ""
	}
	var text strings.Builder
	if s, err := k.Engine.DescribeExecution(t.Context(), x); err == nil {
		fmt.Fprintf(&text, "\n  it is %s", k.describe(t.Context(), x, s.State.Public))
	}
	for a, err := range k.Engine.Attempts(t.Context(), x) {
		if err != nil {
			break
		}
		fmt.Fprintf(&text, "\n  attempt %d: %s", a.Index, a.Outcome)
		if a.Failure != nil {
			fmt.Fprintf(&text, ", %s: %s", a.Failure.Class, a.Failure.Message)
		}
	}
	return text.String()
}

// difference compares with unexported fields too: the values are data.
func difference(want, got any) string {
	return cmp.Diff(want, got, cmp.Exporter(func(reflect.Type) bool { return true }))
}

// CreatedOption is an option of [RequireCreated].
type CreatedOption func(*createdOptions)

type createdOptions struct {
	args  any
	given bool
	times int
	tx    pgx.Tx
}

// Args requires arguments equal to args, which has the In type of the kind.
func Args(args any) CreatedOption {
	return func(o *createdOptions) { o.args, o.given = args, true }
}

// Times requires this number of executions. Default: at least one.
func Times(n int) CreatedOption {
	return func(o *createdOptions) { o.times = n }
}

// In looks in an open transaction, including its own writes.
func In(tx pgx.Tx) CreatedOption {
	return func(o *createdOptions) { o.tx = tx }
}

// RequireCreated fails the test unless executions of a kind have been created, in any state.
//
//	fftest.RequireCreated(t, kit, Notify, fftest.Args(Mail{To: "ada"}), fftest.Times(1))
func RequireCreated[In, Out any](t testing.TB, k *Kit, kind engine.Kind[In, Out], options ...CreatedOption) {
	t.Helper()
	o := createdOptions{times: -1}
	for _, option := range options {
		option(&o)
	}
	if _, ok := o.args.(In); o.given && !ok {
		t.Fatalf("fftest: Args is a %T, but the arguments of %q are %s", o.args, kind.Name, reflect.TypeFor[In]())
	}
	eng := k.Engine
	if o.tx != nil {
		eng = eng.WithTx(o.tx)
	}
	n := 0
	var others strings.Builder
	for x, err := range eng.Executions(t.Context(), engine.ExecutionFilter{Kind: kind.Name}) {
		if err != nil {
			t.Fatalf("fftest: list executions: %v", err)
		}
		input, err := eng.ExecutionInput(t.Context(), x.ID)
		if err != nil {
			t.Fatalf("fftest: %v", err)
		}
		args, err := kind.DecodeArgs(input.Payload)
		if err != nil {
			t.Fatalf("fftest: %v", err)
		}
		diff := ""
		if o.given {
			diff = difference(o.args, any(args))
		}
		if diff == "" {
			n++
			continue
		}
		fmt.Fprintf(&others, "\n%s has other arguments (-want +got):\n%s", x.ID, diff)
	}
	switch {
	case o.times < 0 && n == 0:
		t.Fatalf("no execution of %q was created, want at least one%s", kind.Name, others.String())
	case o.times >= 0 && n != o.times:
		t.Fatalf("%d executions of %q were created, want %d%s", n, kind.Name, o.times, others.String())
	}
}
