package fftest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
)

// maxRuns is how often one Drain may handle an execution. An execution continuing at once every time would never end.
const maxRuns = 1_000

// Drain runs everything runnable now: claimable executions one after the other, new ones too, and the background work
// due by the kit's clock, such as retries, timeouts and the consequences of ended work. Drain returns when nothing is
// left. Work without a handler stays in its lane.
//
// It fails the test if a handler doesn't return within [Patience], or if an execution runs a thousand times.
func (k *Kit) Drain() {
	k.t.Helper()
	k.mu.Lock()
	clear(k.handled)
	k.mu.Unlock()
	for first := true; ; {
		acted, err := k.beside(func(ctx context.Context) (int, error) { return k.background.RunDue(ctx, k.Now()) })
		if err == nil && acted == 0 && !first {
			return
		}
		if err == nil {
			_, err = k.beside(k.Worker.RunUntilIdle)
		}
		if input, ok := errors.AsType[*fferr.InputError](err); ok && input.Field == "handlers" {
			err = nil // none is registered
		}
		if k.process.isDead() {
			k.restart()
			first = true
			continue
		}
		first = false
		if err != nil {
			k.t.Fatalf("fftest: drain: %v%s", err, k.hanging())
		}
	}
}

// beside calls fn on another goroutine, so the test ends if fn hangs. The death of the process ends fn's context.
func (k *Kit) beside(fn func(ctx context.Context) (int, error)) (int, error) {
	type answer struct {
		n   int
		err error
	}
	ctx, cancel := k.process.context(k.t.Context())
	defer cancel(nil)
	k.mu.Lock()
	k.stop = cancel
	k.mu.Unlock()
	k.process.count(true)
	defer k.process.count(false)
	answers := make(chan answer, 1)
	go func() {
		n, err := fn(ctx)
		answers <- answer{n, err}
	}()
	timer := time.NewTicker(k.patience)
	defer timer.Stop()
	for before := k.runs.Load(); ; {
		select {
		case a := <-answers:
			k.mu.Lock()
			k.running = nil
			k.mu.Unlock()
			return a.n, a.err
		case <-timer.C:
		}
		runs := k.runs.Load()
		if runs == before && k.busy() {
			return 0, fmt.Errorf("no progress for %v", k.patience)
		}
		before = runs
	}
}

// began records the beginning of a handler. After maxRuns it ends the run.
func (k *Kit) began(work *engine.Claimed) {
	k.runs.Add(1)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.running = work
	k.handled[work.ID]++
	if k.handled[work.ID] > maxRuns {
		k.stop(fmt.Errorf("%s of the kind %q ran %d times and goes on", work.ID, work.Kind, maxRuns))
	}
}

// hanging lists the unfinished executions, for a failure.
func (k *Kit) hanging() string {
	var list strings.Builder
	k.mu.Lock()
	running := k.running
	k.mu.Unlock()
	var at id.ExecutionID
	if running != nil {
		at = running.ID
		fmt.Fprintf(&list, "\n  %s %q: its handler has not returned (attempt %d)", at, running.Kind, running.Lease.Attempt)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(k.t.Context()), 10*time.Second)
	defer cancel()
	for x, err := range k.Engine.Executions(ctx, engine.ExecutionFilter{}) {
		if err != nil {
			fmt.Fprintf(&list, "\n  cannot list the others: %v", err)
			break
		}
		if !x.State.Terminal() && x.ID != at {
			fmt.Fprintf(&list, "\n  %s %q: %s", x.ID, x.Kind, k.describe(ctx, x.ID, x.State))
		}
	}
	if list.Len() == 0 {
		return ""
	}
	return "\nnot ended:" + list.String()
}

// describe returns the state of an unfinished execution, and the reason.
func (k *Kit) describe(ctx context.Context, x id.ExecutionID, public state.PublicState) string {
	text := string(public)
	s, err := k.Engine.DescribeExecution(ctx, x)
	if err != nil {
		return text
	}
	if s.BlockingDetail != "" {
		text += ", " + s.BlockingDetail
	}
	if !s.DelayUntil.IsZero() {
		text += fmt.Sprintf(", delayed by another %v", s.DelayUntil.Sub(k.Now()))
	}
	if s.Lease != nil {
		text += fmt.Sprintf(", leased by %s", s.Lease.Instance)
	}
	return text
}
