package telemetry

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/fftest"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

type (
	partKey struct{}
	job     = worker.Job[struct{}]
)

// diary notes what a worker reports to its observer. A context in a part has the names of the parts around it.
type diary struct {
	mu     sync.Mutex
	notes  []string
	panics bool
	about  func(worker.Report) string
}

func (d *diary) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.notes = append(d.notes, fmt.Sprintf(format, args...))
}

func within(ctx context.Context) string {
	path, _ := ctx.Value(partKey{}).(string)
	return path
}

func (d *diary) BeginRun(ctx context.Context, work *engine.Claimed) (context.Context, func(worker.Report)) {
	kind := work.Kind
	d.note("run %s", kind)
	return context.WithValue(ctx, partKey{}, kind), func(r worker.Report) {
		text := ""
		if d.about != nil {
			text = d.about(r)
		}
		d.note("%s is %s%s", kind, r.Settlement, text)
	}
}

func (d *diary) BeginPart(ctx context.Context, part worker.Part) (context.Context, func(worker.PartReport)) {
	name := fmt.Sprintf("%s %q", part.Form, part.Name)
	d.note("%s > %s", within(ctx), name)
	if d.panics {
		panic("no telemetry")
	}
	return context.WithValue(ctx, partKey{}, name), func(r worker.PartReport) {
		text := "ended"
		switch {
		case r.Err != nil:
			text = r.Err.Error()
		case r.Continues:
			text = "continues"
		}
		for _, signal := range r.Signals {
			text += " by " + string(signal.Payload)
		}
		d.note("%s: %s", name, text)
	}
}

// hide replaces parts of the notes by X.
func (d *diary) hide(part *regexp.Regexp) {
	for i := range d.notes {
		d.notes[i] = part.ReplaceAllString(d.notes[i], "X")
	}
}

// want compares the notes since the last call.
func (d *diary) want(t *testing.T, want ...string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Equal(d.notes, want) {
		t.Errorf("observed\n\t%s\nwant\n\t%s", strings.Join(d.notes, "\n\t"), strings.Join(want, "\n\t"))
	}
	d.notes = nil
}

var ordered = engine.Kind[struct{}, string]{
	Name: "order", Policy: &policy.Execution{Retry: policy.ImmediateRetries(3)},
}

// observed is a kit with a diary, and a handler of the kind "order".
func observed(t *testing.T, handle func(ctx context.Context, job job) (string, error)) (*fixture.Kit, *diary) {
	t.Helper()
	d := new(diary)
	k := fixture.NewKit(t, fftest.WorkerConfig(func(cfg *worker.Config) { cfg.Observer = d }))
	worker.Handle(k.Worker, ordered, handle)
	return k, d
}

// policed gives an execution a retry policy of its own.
func policed(retry *policy.Retry) engine.CreateOption {
	return func(s *engine.ExecutionSpec) { s.Policy = &policy.Execution{Retry: retry} }
}

func stepNamed(ctx context.Context, job job, d func() *diary, name string) (string, error) {
	return worker.Step(ctx, job, name, func(ctx context.Context) (string, error) {
		d().note("work in %s", within(ctx))
		return name, nil
	})
}

// A step is one part with all its tries. Its function gets the part's context, and a stored result is no part.
func TestStepsAreParts(t *testing.T) {
	var d *diary
	tries := 0
	k, d := observed(t, func(ctx context.Context, job job) (string, error) {
		if _, err := stepNamed(ctx, job, func() *diary { return d }, "a"); err != nil {
			return "", err
		}
		_, err := worker.Step(ctx, job, "again", func(context.Context) (int, error) {
			if tries++; tries < 3 {
				return 0, errors.New("not yet")
			}
			return tries, nil
		}, worker.Retry(*policy.ImmediateRetries(5)))
		if err != nil {
			return "", err
		}
		_, err = worker.StepTx(ctx, job, "tx", func(ctx context.Context, tx pgx.Tx) (int, error) {
			d.note("work in %s", within(ctx))
			if job.Lease.Attempt == 0 {
				return 0, errors.New("no money")
			}
			return 1, nil
		})
		return "", err
	})
	fftest.Create(k.Kit, ordered, struct{}{})
	k.Drain()
	d.want(t,
		"run order",
		`order > step "a"`, `work in step "a"`, `step "a": ended`,
		`order > step "again"`, `step "again": ended`,
		`order > step "tx"`, `work in step "tx"`, `step "tx": step "tx": no money`,
		"order is retrying",
		"run order",
		`order > step "tx"`, `work in step "tx"`, `step "tx": ended`,
		"order is completed",
	)
}

// A refused step does no work. A part within a part has its context.
func TestRefusedAndNestedParts(t *testing.T) {
	var d *diary
	k, d := observed(t, func(ctx context.Context, job job) (string, error) {
		_, err := worker.Step(ctx, job, "outer", func(ctx context.Context) (string, error) {
			return stepNamed(ctx, job, func() *diary { return d }, "inner")
		})
		if err != nil {
			return "", err
		}
		_, err = stepNamed(ctx, job, func() *diary { return d }, "inner")
		if !errors.Is(err, fferr.ErrInvalidInput) {
			d.note("error %v", err)
		}
		return "", nil
	})
	fftest.Create(k.Kit, ordered, struct{}{})
	k.Drain()
	d.want(t,
		"run order",
		`order > step "outer"`, `step "outer" > step "inner"`, `work in step "inner"`, `step "inner": ended`, `step "outer": ended`,
		"order is completed",
	)
}

// A panic and a Goexit end a part, and then the run.
func TestPartsEndByPanics(t *testing.T) {
	for leave, outcome := range map[string]string{"panic": "panic: broken, transient panic", "Goexit": "handler called runtime.Goexit, transient "} {
		t.Run(leave, func(t *testing.T) {
			k, d := observed(t, func(ctx context.Context, job job) (string, error) {
				return worker.Step(ctx, job, "a", func(context.Context) (string, error) {
					if leave == "Goexit" {
						runtime.Goexit()
					}
					panic("broken")
				})
			})
			d.about = func(r worker.Report) string { return fmt.Sprintf(": %v, %s %s", r.Err, r.Class, r.Category) }
			fftest.Create(k.Kit, ordered, struct{}{}, policed(&policy.Retry{MaxRetries: policy.NoRetries}))
			k.Drain()
			d.want(t, "run order", `order > step "a"`, `step "a": the part panicked or called runtime.Goexit`, "order is failed: "+outcome)
		})
	}
}

// A step whose lease was revoked meanwhile stores nothing, and its part ends with that error.
func TestPartsEndWithTheirLease(t *testing.T) {
	var k *fixture.Kit
	runs := 0
	k, d := observed(t, func(ctx context.Context, job job) (string, error) {
		return worker.Step(ctx, job, "a", func(ctx context.Context) (string, error) {
			if runs++; runs > 1 {
				return "again", nil
			}
			_, err := operator.Revoke(context.WithoutCancel(ctx), k.Engine, operator.RevokeSpec{ID: job.ID, Reason: "the host is gone"})
			return "once", err
		})
	})
	x := fftest.Create(k.Kit, ordered, struct{}{}).ID
	k.Drain()
	d.hide(regexp.MustCompile(`execution \{.*?\}:[0-9a-f-]+`))
	d.want(t, "run order", `order > step "a"`, `step "a": step "a": lease lost: record steps: X attempt 0: stale lease`, "order is abandoned",
		"run order", `order > step "a"`, `step "a": ended`, "order is completed")
	fftest.RequireResult(t, k.Kit, ordered, x, "again")
}

// Parallel steps are parts of their own.
func TestParallelParts(t *testing.T) {
	var d *diary
	k, d := observed(t, func(ctx context.Context, job job) (string, error) {
		var both sync.WaitGroup
		begun := make(chan struct{})
		for _, name := range []string{"a", "b"} {
			both.Go(func() {
				_, err := worker.Step(ctx, job, name, func(ctx context.Context) (string, error) {
					if name == "a" {
						<-begun // within b
					} else {
						close(begun)
					}
					return within(ctx), nil
				})
				if err != nil {
					d.note("error %v", err)
				}
			})
		}
		both.Wait()
		return "", nil
	})
	fftest.Create(k.Kit, ordered, struct{}{})
	k.Drain()
	slices.Sort(d.notes)
	d.want(t, "order > step \"a\"", "order > step \"b\"", "order is completed", "run order", `step "a": ended`, `step "b": ended`)
}

// A pause is a part in the run that begins it.
func TestSleepIsAPart(t *testing.T) {
	k, d := observed(t, func(ctx context.Context, job job) (string, error) {
		if err := worker.Sleep(ctx, job, "none", 0); err != nil {
			return "", err
		}
		return "", worker.Sleep(ctx, job, "nap", time.Hour)
	})
	fftest.Create(k.Kit, ordered, struct{}{})
	k.Drain()
	d.want(t, "run order", `order > sleep "none"`, `sleep "none": ended`, `order > sleep "nap"`, `sleep "nap": continues`, "order is delayed")
	k.Advance(time.Hour)
	d.want(t, "run order", "order is completed")
}

// A call has a part that creates the executions, in its context, and a part that stores the results.
func TestCallsAreParts(t *testing.T) {
	for _, fails := range []bool{false, true} {
		t.Run(fmt.Sprint(fails), func(t *testing.T) {
			k, d := observed(t, func(ctx context.Context, job job) (string, error) {
				if _, err := worker.CallAll(ctx, job, "none", ordered, nil); err != nil {
					return "", err
				}
				called := engine.Kind[string, string]{Name: "called"}
				out, err := worker.Call(ctx, job, "help", called, "please")
				if err != nil {
					return "", err
				}
				return out, worker.Sleep(ctx, job, "nap", time.Hour)
			})
			worker.Handle(k.Worker, engine.Kind[string, string]{Name: "called"}, func(context.Context, worker.Job[string]) (string, error) {
				if fails {
					return "", worker.Permanent(errors.New("no help"))
				}
				return "done", nil
			})
			fftest.Create(k.Kit, ordered, struct{}{})
			k.Drain()
			begin := []string{"run order", `order > call "help"`, `call "help": continues`, "order is suspended", "run called"}
			if !fails {
				d.want(t, append(begin, "called is completed", "run order", `order > call "help"`, `call "help": ended`,
					`order > sleep "nap"`, `sleep "nap": continues`, "order is delayed")...)
				k.Advance(time.Hour)
				d.want(t, "run order", "order is completed")
				return
			}
			d.hide(regexp.MustCompile(`execution \{.*?\}:[0-9a-f-]+`))
			d.want(t, append(begin, "called is failed", "run order", `order > call "help"`,
				`call "help": step "help": X ended without success: failed: no help`, "order is failed")...)
		})
	}
}

// A turn is a part, with the part of the wait that it ends with.
func TestTurnsAreParts(t *testing.T) {
	approved := engine.Signal[string]{Name: "approved"}
	var d *diary
	tries := 0
	k, d := observed(t, func(ctx context.Context, job job) (string, error) {
		wait := engine.Wait{}
		err := worker.Turn(ctx, job, "ask", func(ctx context.Context, _ pgx.Tx, t *worker.TurnTx) error {
			d.note("work in %s", within(ctx))
			if tries++; tries == 1 {
				return errors.New("later")
			}
			return t.Await(approved.Received(), wait)
		}, worker.Retry(*policy.ImmediateRetries(2)))
		if err != nil {
			return "", err
		}
		if _, err := approved.Await(ctx, job, wait); err != nil {
			return "", err
		}
		return "", worker.Turn(ctx, job, "finish", func(_ context.Context, _ pgx.Tx, t *worker.TurnTx) error { return t.Complete("") })
	})
	x := fftest.Create(k.Kit, ordered, struct{}{}).ID
	k.Drain()
	d.want(t, "run order", `order > turn "ask"`, `work in turn "ask"`, `work in turn "ask"`, `turn "ask": continues`, "order is suspended")
	fftest.Send(k.Kit, x, approved, "yes")
	k.Drain()
	d.want(t, "run order", `order > signal "approved"`, `signal "approved": ended by "yes"`,
		`order > turn "finish"`, `turn "finish": ended`, "order is completed")
}

// The signals of a wait are reported in the first run after it, and not by later ones.
func TestWaitsAreParts(t *testing.T) {
	approved, paid := engine.Signal[string]{Name: "approved"}, engine.Signal[string]{Name: "paid"}
	k, d := observed(t, func(ctx context.Context, job job) (string, error) {
		if _, err := approved.Await(ctx, job, engine.Wait{Where: "never", Key: "\x00"}); err == nil {
			return "", errors.New("a wait that is not possible")
		}
		if _, err := approved.Await(ctx, job, engine.Wait{}); err != nil {
			return "", err
		}
		if _, err := paid.Await(ctx, job, engine.Wait{}); err != nil {
			return "", err
		}
		_, err := paid.Await(ctx, job, engine.Wait{Timeout: time.Hour, OnTimeout: engine.ResumeOnTimeout})
		if !errors.Is(err, fferr.ErrWaitTimeout) {
			return "", err
		}
		if job.Lease.Attempt == 0 {
			return "", errors.New("once more")
		}
		return "", nil
	})
	x := fftest.Create(k.Kit, ordered, struct{}{}).ID
	k.Drain()
	d.want(t, "run order", `order > signal "approved"`, `signal "approved": continues`, "order is suspended")
	fftest.Send(k.Kit, x, approved, "yes")
	k.Drain()
	d.want(t, "run order", `order > signal "approved"`, `signal "approved": ended by "yes"`,
		`order > signal "paid"`, `signal "paid": continues`, "order is suspended")
	fftest.Send(k.Kit, x, paid, "100")
	k.Drain()
	d.want(t, "run order", `order > signal "paid"`, `signal "paid": ended by "100"`,
		`order > signal "paid#2"`, `signal "paid#2": continues`, "order is suspended")
	k.Advance(time.Hour)
	d.want(t, "run order", `order > signal "paid#2"`, `signal "paid#2": waiting for ["paid#2"]: wait timed out`,
		"order is retrying", "run order", "order is completed")
}

// A panic in BeginPart changes nothing for the handler.
func TestPanickingObserverOfParts(t *testing.T) {
	k, d := observed(t, func(ctx context.Context, job job) (string, error) {
		return worker.Step(ctx, job, "a", func(ctx context.Context) (string, error) { return within(ctx), nil })
	})
	d.panics = true
	x := fftest.Create(k.Kit, ordered, struct{}{}).ID
	k.Drain()
	d.want(t, "run order", `order > step "a"`, "order is completed")
	fftest.RequireResult(t, k.Kit, ordered, x, "order")
	if n := k.Worker.ObserverPanics(); n != 1 {
		t.Errorf("%d panics", n)
	}
}

// Reports have the class, the category and the time of the retry.
func TestReportsOfFailures(t *testing.T) {
	k, d := observed(t, func(_ context.Context, job job) (string, error) {
		if job.Lease.Attempt == 0 {
			return "", &worker.Fail{Category: "bank", Err: errors.New("no answer")}
		}
		return "", worker.Permanent(errors.New("no account"))
	})
	d.about = func(r worker.Report) string {
		at := "never"
		if !r.RetryAt.IsZero() {
			at = r.RetryAt.Sub(fixture.Start).String()
		}
		return fmt.Sprintf(": %s %q, again %s", r.Class, r.Category, at)
	}
	retry := policy.Retry{MaxRetries: 3, Backoff: policy.Fixed(time.Minute)}
	fftest.Create(k.Kit, ordered, struct{}{}, policed(&retry))
	k.Drain()
	d.want(t, "run order", `order is retrying: transient "bank", again 1m0s`)
	k.Advance(time.Minute)
	d.want(t, "run order", `order is failed: permanent "", again never`)
}
