package worker

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
)

// Postponed attempts are settled in batches, like results, and don't count as failures.
func TestLaterSettlesInBatches(t *testing.T) {
	for _, cfg := range []Config{{}, {FetchBatch: 1}} {
		t.Run(fmt.Sprintf("fetching %d", cfg.FetchBatch), func(t *testing.T) {
			reports := make(hooked, 100)
			cfg.Observer = reports
			var parked, skipped engine.Claimed
			inBubble(t, cfg, func(w *Worker, eng *fakeEngine) {
				quickAndSlow(w, eng)
				on(w, "later", func(_ context.Context, job Job[struct{}]) (string, error) {
					return "discarded", fmt.Errorf("no answer yet: %w", job.Delay(time.Minute))
				})
				on(w, "soon", func(_ context.Context, job Job[struct{}]) (string, error) { return "", job.Delay(-time.Hour) })
				on(w, "awaiting", func(_ context.Context, job Job[struct{}]) (string, error) { return "", job.WaitForChildren() })
				parked, skipped = work("awaiting"), work("awaiting")
				eng.waits = map[id.ExecutionID]engine.Waiting{parked.ID: engine.WaitingParked, skipped.ID: engine.WaitingSkipped}
			}, func(t *testing.T, b *bubble) {
				b.eng.putMany(20, "later")
				b.eng.putMany(1, "soon")
				b.eng.put(engine.DefaultLane, parked, skipped)
				b.eng.putMany(3, "quick")
				b.wakeLane()
				b.pass(time.Second)
				seen := b.seen()
				if items(seen.delayed) != 21 || items(seen.awaiting) != 2 || items(seen.done) != 3 || len(seen.failed)+len(seen.back) != 0 {
					t.Errorf("delayed %v, waiting %v, done %v, failed %v, back %v", seen.delayed, seen.awaiting, seen.done, seen.failed, seen.back)
				}
				delays := make(map[time.Duration]int)
				for _, c := range seen.delayed {
					for _, d := range c.items {
						delays[d.For]++
					}
				}
				if delays[time.Minute] != 20 || delays[0] != 1 {
					t.Errorf("delays %v", delays)
				}
				if n := b.held.len(); n != 0 {
					t.Errorf("%d executions held, want none", n)
				}
				counted := make(map[Settlement]int)
				for len(reports) > 0 {
					r := <-reports
					if counted[r.Settlement]++; r.Err != nil {
						t.Errorf("%s: %v", r.Settlement, r.Err)
					}
				}
				if counted[Delayed] != 21 || counted[WaitingForChildren] != 1 || counted[Skipped] != 1 || counted[Completed] != 3 {
					t.Errorf("settled %v", counted)
				}
			})
		})
	}
}

// hooked is hooks that keep the reports.
type hooked chan Report

func (h hooked) BeginRun(ctx context.Context, _ *engine.Claimed) (context.Context, func(Report)) {
	return ctx, func(r Report) { h <- r }
}

func (hooked) BeginPart(ctx context.Context, _ Part) (context.Context, func(PartReport)) {
	return ctx, nil
}

// Locked executions are retried, and wait for the lock where a call does so.
func TestLaterSetsLockedRowsAside(t *testing.T) {
	delayed, parked := work("later"), work("awaiting")
	inBubble(t, Config{}, func(w *Worker, eng *fakeEngine) {
		on(w, "later", func(_ context.Context, job Job[struct{}]) (string, error) { return "", job.Delay(time.Minute) })
		on(w, "awaiting", func(_ context.Context, job Job[struct{}]) (string, error) { return "", job.WaitForChildren() })
		eng.locked[delayed.ID], eng.locked[parked.ID] = true, true
	}, func(t *testing.T, b *bubble) {
		b.eng.put(engine.DefaultLane, delayed, parked)
		b.wakeLane()
		b.pass(5 * time.Second)
		if n := b.held.len(); n != 2 || items(b.seen().delayed) < 2 || items(b.seen().awaiting) < 2 {
			t.Errorf("%d held, told %v and %v", n, b.seen().delayed, b.seen().awaiting)
		}
		b.eng.lock(delayed.ID, false)
		b.eng.lock(parked.ID, false)
		b.pass(5 * time.Second)
		if n := b.held.len(); n != 0 {
			t.Errorf("%d held", n)
		}
	})
}

// A failure stays a failure, and a lost lease stays lost, whatever else the handler returns.
func TestLaterYieldsToFailuresAndLostLeases(t *testing.T) {
	job := Job[struct{}]{}
	for name, c := range map[string]struct {
		cause error
		err   error
		want  verdict
	}{
		"delay":                          {nil, job.Delay(1), delay},
		"wait":                           {nil, job.WaitForChildren(), await},
		"delay after the drain timeout":  {ErrShutdown, job.Delay(1), delay},
		"delay after the attempt's time": {ErrAttemptTimeout, job.Delay(1), delay},
		"delay of a lost lease":          {lossOf(fferr.ErrStaleLease), job.Delay(1), abandon},
		"a permanent delay":              {nil, Permanent(job.Delay(1)), fail},
		"an error beside it":             {nil, errors.Join(errors.New("no"), job.Delay(1)), delay},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		tk := &task{ctx: ctx, cancel: cancel}
		if c.cause != nil {
			cancel(c.cause)
		}
		if tk.decide(nil, c.err); tk.verdict != c.want {
			t.Errorf("%s: verdict %d, want %d", name, tk.verdict, c.want)
		}
		if name == "delay of a lost lease" && !errors.Is(tk.err, ErrLeaseLost) || tk.verdict == delay && tk.err != nil {
			t.Errorf("%s: %v", name, tk.err)
		}
	}
	for _, err := range []error{job.Delay(time.Minute), job.WaitForChildren()} {
		if err.Error() == "" {
			t.Error("it has no text")
		}
	}
}
