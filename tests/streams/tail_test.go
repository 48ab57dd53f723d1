package streams

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/progress"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/stream"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// value is what a tail yields.
type value struct {
	frame stream.Entry
	err   error
}

func (v value) String() string {
	switch {
	case v.err != nil:
		return v.err.Error()
	case v.frame.Closed != nil:
		return fmt.Sprintf("%d closed %s last=%v", v.frame.Attempt, v.frame.Closed.Reason, v.frame.Closed.Last)
	}
	return fmt.Sprintf("%d %s", v.frame.Attempt, v.frame.Payload)
}

// tail is a running tail.
type tail struct {
	values chan value // closed at its end
	end    context.CancelFunc
}

func follow(t *testing.T, eng *engine.Engine, x id.ExecutionID, o stream.TailOptions) tail {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	values := make(chan value, 100)
	go func() {
		defer close(values)
		for frame, err := range stream.Tail(ctx, eng, x, o) {
			values <- value{frame, err}
		}
	}()
	return tail{values, cancel}
}

func (l tail) next(t *testing.T) value {
	t.Helper()
	return progress.Receive(t, "a value of a tail", l.values)
}

// want receives values of these texts.
func (l tail) want(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if got := l.next(t); got.String() != text {
			t.Fatalf("the tail has %q, want %q", got, text)
		}
	}
}

// wantEnd waits until the tail has ended, without further values.
func (l tail) wantEnd(t *testing.T) {
	t.Helper()
	if v := l.next(t); v.err != nil || !v.frame.Execution.IsZero() {
		t.Fatalf("the tail has %q, want its end", v)
	}
}

func appendTexts(t *testing.T, eng *engine.Engine, l engine.Lease, texts ...string) stream.Appended {
	t.Helper()
	frames := make([]stream.FrameSpec, len(texts))
	for i, text := range texts {
		frames[i].Payload = []byte(text)
	}
	appended, err := stream.Append(t.Context(), eng, l, frames)
	if err != nil {
		t.Fatal(err)
	}
	return appended
}

func complete(t *testing.T, eng *engine.Engine, l engine.Lease) {
	t.Helper()
	if err := eng.CompleteExecution(t.Context(), l, nil); err != nil {
		t.Fatal(err)
	}
}

func channelOf(l engine.Lease) string {
	return wire.StreamChannel(l.Execution.UUID(), int32(l.Attempt))
}

// Case 13: eight tails wait on a pool of four, and hold none of its connections.
func TestTailsWaitWithoutConnections_S45(t *testing.T) {
	f := fixture.New(t)
	work := f.Start(t)
	r := f.Rival(t, func(config *pgxpool.Config) { config.MaxConns = 4 })
	var tails []tail
	for range 8 {
		tails = append(tails, follow(t, r.Engine, work.ID, stream.TailOptions{}))
	}
	appendTexts(t, f.Engine, work.Lease, "one")
	for _, l := range tails {
		l.want(t, "0 one")
	}
	fixture.Await(t, "no connection of the pool to be taken", func() bool { return r.Pool.Stat().AcquiredConns() == 0 })
	appendTexts(t, r.Engine, work.Lease, "two") // by the same pool
	for _, l := range tails {
		l.want(t, "0 two")
	}
	complete(t, f.Engine, work.Lease)
	for _, l := range tails {
		l.want(t, "0 closed attempt_success last=true")
		l.wantEnd(t)
	}
	// The tail of an ended execution has its end at once.
	late := follow(t, r.Engine, work.ID, stream.TailOptions{})
	late.want(t, "0 one", "0 two", "0 closed attempt_success last=true")
	late.wantEnd(t)
}

// Case 13: the listening connection and all others are cut while tails wait.
func TestTailsSurviveCutConnections(t *testing.T) {
	f := fixture.New(t)
	work := f.Start(t)
	r := f.Rival(t)
	l := follow(t, r.Engine, work.ID, stream.TailOptions{})
	appendTexts(t, f.Engine, work.Lease, "before")
	l.want(t, "0 before")
	fixture.Await(t, "the listening connection", func() bool { return f.Listening(t, r.Name) == 1 })
	for n := range 5 {
		f.Exec(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1", r.Name)
		appendTexts(t, f.Engine, work.Lease, fmt.Sprint(n))
		l.want(t, fmt.Sprintf("0 %d", n))
	}
	complete(t, f.Engine, work.Lease)
	l.want(t, "0 closed attempt_success last=true")
	l.wantEnd(t)
}

// Without a connection for notifications, a tail polls.
func TestTailsPollWithoutAListener(t *testing.T) {
	f := fixture.New(t)
	work := f.Start(t)
	deaf := f.EngineOn(t, fixture.OpenPool(t, f.Url, nil), engine.Config{NoListener: true})
	l := follow(t, deaf, work.ID, stream.TailOptions{})
	for n := range 3 {
		appendTexts(t, f.Engine, work.Lease, fmt.Sprint(n))
		l.want(t, fmt.Sprintf("0 %d", n))
	}
	complete(t, f.Engine, work.Lease)
	l.want(t, "0 closed attempt_success last=true")
}

func TestTailEndsWithItsContext(t *testing.T) {
	f := fixture.New(t)
	work := f.Start(t)
	l := follow(t, f.Engine, work.ID, stream.TailOptions{})
	appendTexts(t, f.Engine, work.Lease, "one")
	l.want(t, "0 one")
	l.end()
	if v := l.next(t); !errors.Is(v.err, context.Canceled) {
		t.Errorf("got %v, want the context's error", v)
	}
	l.wantEnd(t)
}

func TestTailOfAMissingExecution(t *testing.T) {
	f := fixture.New(t)
	missing := id.NewExecutionID(f.Lane, id.Partitions{})
	l := follow(t, f.Engine, missing, stream.TailOptions{})
	if v := l.next(t); !errors.Is(v.err, fferr.ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", v)
	}
	work := f.Start(t)
	l = follow(t, f.Engine, work.ID, stream.TailOptions{})
	appendTexts(t, f.Engine, work.Lease, "one")
	l.want(t, "0 one")
	f.Exec(t, "DELETE FROM ff_attempt WHERE execution_id = $1", work.ID.UUID())
	f.Exec(t, "DELETE FROM ff_exec_core WHERE execution_id = $1", work.ID.UUID())
	if v := l.next(t); !errors.Is(v.err, fferr.ErrNotFound) {
		t.Errorf("got %v of a deleted execution, want ErrNotFound", v)
	}
}

// Attempts follow each other: a retry, and an attempt whose lease has expired, each with its end.
func TestTailGoesOverAllAttempts(t *testing.T) {
	f := fixture.New(t)
	work := f.Start(t, fixture.Retrying(*policy.ImmediateRetries(3)))
	all := follow(t, f.Engine, work.ID, stream.TailOptions{})
	first := follow(t, f.Engine, work.ID, stream.TailOptions{OneAttempt: true})
	appendTexts(t, f.Engine, work.Lease, "a")
	f.Fail(t, work.Lease, engine.Failure{})
	all.want(t, "0 a", "0 closed attempt_failure last=false")
	first.want(t, "0 a", "0 closed attempt_failure last=false")
	first.wantEnd(t)
	second := f.ClaimOne(t)
	appendTexts(t, f.Engine, second.Lease, "b")
	all.want(t, "1 b")
	complete(t, f.Engine, second.Lease)
	all.want(t, "1 closed attempt_success last=true")
	all.wantEnd(t)
}

// A page without frames or above the limit is refused, and a millisecond as the end of a range has all its frames.
func TestReadsAreNotLimitedSilently_S47(t *testing.T) {
	f := fixture.New(t)
	work := f.Start(t)
	appended := appendTexts(t, f.Engine, work.Lease, "a", "b", "c")
	for _, limit := range []int{-1, 0, stream.MaxPage + 1} {
		_, err := stream.Read(t.Context(), f.Engine, work.ID, stream.Range{Limit: limit})
		fixture.WantInputError(t, err, "limit")
	}
	ms := wire.FrameCursor(fmt.Sprint(appended.First.TsMs))
	page, err := stream.Read(t.Context(), f.Engine, work.ID, stream.Range{From: ms, To: ms, Limit: 10})
	if err != nil || len(page.Frames) != 3 {
		t.Errorf("%d frames of one millisecond, want 3: %v", len(page.Frames), err)
	}
}
