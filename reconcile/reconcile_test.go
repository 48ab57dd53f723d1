package reconcile

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
)

// fakeDatabase is shared by some processes: the holders of the jobs, and the work that is due.
type fakeDatabase struct {
	mu    sync.Mutex
	held  map[upkeep.Job]fakeHold
	due   map[upkeep.Job]time.Time
	asked map[id.WorkerInstanceID][]time.Time
	calls map[id.WorkerInstanceID]map[upkeep.Job][]time.Time

	fail func(asked int) error                       // of asking
	act  func(job upkeep.Job, call int) (int, error) // of a job; by default it does all due work
	slow func(ctx context.Context, job upkeep.Job)   // before a job acts

	asking chan<- struct{}               // if set, receives a value when the database begins to take jobs, for which it needs a second
	ends   map[upkeep.Job]upkeep.JobEnds // as reported
}

type fakeHold struct {
	by    id.WorkerInstanceID
	until time.Time
}

func newFakeDatabase() *fakeDatabase {
	return &fakeDatabase{
		held: make(map[upkeep.Job]fakeHold), due: make(map[upkeep.Job]time.Time),
		ends: make(map[upkeep.Job]upkeep.JobEnds), asked: make(map[id.WorkerInstanceID][]time.Time), calls: make(map[id.WorkerInstanceID]map[upkeep.Job][]time.Time),
	}
}

// fakeProcess is the engine of one process.
type fakeProcess struct {
	*fakeDatabase
	name                                      id.WorkerInstanceID
	left, delayed, unneeded, called, seatLeft chan struct{}
	rescheduled, gated, overBudget            chan struct{}
	wakes                                     map[string]func() // of OnRescheduled and OnEnded
	ticksWait, admissionsWait                 bool
	nextTick                                  func() time.Time // of [upkeep.JobRunSchedules]
	cut                                       bool             // cut off from the database
}

func (f *fakeDatabase) process(name id.WorkerInstanceID) *fakeProcess {
	f.calls[name] = make(map[upkeep.Job][]time.Time)
	return &fakeProcess{
		fakeDatabase: f, name: name, left: make(chan struct{}, 1), delayed: make(chan struct{}, 1),
		unneeded: make(chan struct{}, 1), called: make(chan struct{}, 1), seatLeft: make(chan struct{}, 1), rescheduled: make(chan struct{}, 1), gated: make(chan struct{}, 1), overBudget: make(chan struct{}, 1),
		wakes: make(map[string]func()),
	}
}

func (p *fakeProcess) TakeJobs(ctx context.Context, spec upkeep.JobSpec) (upkeep.JobsTaken, error) {
	if p.asking == nil {
		return p.takeJobs(ctx, spec)
	}
	var (
		taken upkeep.JobsTaken
		err   error
		ended = make(chan struct{})
	)
	go func() {
		defer close(ended)
		p.asking <- struct{}{}
		time.Sleep(time.Second) //pace:allow in a bubble of testing/synctest
		taken, err = p.takeJobs(context.WithoutCancel(ctx), spec)
	}()
	select {
	case <-ended:
		return taken, err
	case <-ctx.Done():
		return upkeep.JobsTaken{}, ctx.Err()
	}
}

func (p *fakeProcess) takeJobs(ctx context.Context, spec upkeep.JobSpec) (upkeep.JobsTaken, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.asked[spec.Holder] = append(p.asked[spec.Holder], now)
	if p.cut {
		return upkeep.JobsTaken{}, errors.New("no database")
	}
	if p.fail != nil {
		if err := p.fail(len(p.asked[spec.Holder])); err != nil {
			return upkeep.JobsTaken{}, err
		}
	}
	taken := upkeep.JobsTaken{Now: now, Jobs: make(map[upkeep.Job]upkeep.JobTaken)}
	for i, job := range spec.Jobs {
		if spec.Ends != nil {
			ends, news := p.ends[job], spec.Ends[i]
			if !news.Succeeded.IsZero() {
				ends.Succeeded = news.Succeeded
			}
			if !news.Failed.IsZero() {
				ends.Failed, ends.Err = news.Failed, news.Err
			}
			p.ends[job] = ends
		}
		h := p.held[job]
		if spec.Hold > 0 && (h.by == spec.Holder || !now.Before(h.until)) {
			p.held[job] = fakeHold{spec.Holder, now.Add(spec.Hold)}
		}
		h = p.held[job]
		taken.Jobs[job] = upkeep.JobTaken{Ours: h.by == spec.Holder, HeldUntil: h.until, Due: p.due[job]}
	}
	for _, lane := range spec.Lanes {
		if lane != "empty" {
			taken.Lanes = append(taken.Lanes, lane)
		}
	}
	return taken, ctx.Err()
}

func (p *fakeProcess) ReturnJobs(_ context.Context, holder id.WorkerInstanceID) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for job, h := range p.held {
		if h.by == holder && !p.cut {
			p.held[job] = fakeHold{by: holder}
		}
	}
	return nil
}

func (p *fakeProcess) Undispatched() <-chan struct{} { return p.left }

func (p *fakeProcess) Unneeded() <-chan struct{} { return p.unneeded }

func (p *fakeProcess) Delayed() <-chan struct{} { return p.delayed }

func (p *fakeProcess) CallEnded() <-chan struct{} { return p.called }

func (p *fakeProcess) SequenceEnded() <-chan struct{} { return p.seatLeft }

func (p *fakeProcess) Rescheduled() <-chan struct{} { return p.rescheduled }

func (p *fakeProcess) OnRescheduled(wake func()) func() { return p.on("rescheduled", wake) }

func (p *fakeProcess) OverBudget() <-chan struct{} { return p.overBudget }

func (p *fakeProcess) Gated() <-chan struct{} { return p.gated }

func (p *fakeProcess) OnGated(wake func()) func() { return p.on("gated", wake) }

func (p *fakeProcess) AdmissionsWait() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.admissionsWait
}

func (p *fakeProcess) OnEnded(wake func()) func() { return p.on("ended", wake) }

func (p *fakeProcess) on(what string, wake func()) (stop func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wakes[what] = wake
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.wakes, what)
	}
}

// wake calls the function that waits for something, and reports whether there is one.
func (p *fakeProcess) wake(what string) bool {
	p.mu.Lock()
	wake := p.wakes[what]
	p.mu.Unlock()
	if wake != nil {
		wake()
	}
	return wake != nil
}

func (p *fakeProcess) TicksWait() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ticksWait
}

func (p *fakeProcess) do(name upkeep.Job) func(context.Context, int) (int, error) {
	return func(ctx context.Context, _ int) (int, error) {
		if p.slow != nil {
			p.slow(ctx, name)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.calls[p.name][name] = append(p.calls[p.name][name], time.Now())
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if p.act != nil {
			return p.act(name, len(p.calls[p.name][name]))
		}
		delete(p.due, name)
		return 0, nil
	}
}

// jobs returns all jobs, with the pace of the engine's.
func (p *fakeProcess) jobs() []job {
	jobs := jobsOf(&upkeep.Upkeep{})
	for i := range jobs {
		jobs[i].act, jobs[i].next = p.do(jobs[i].name), nil
		if jobs[i].name == upkeep.JobRunSchedules {
			jobs[i].next = p.nextTick
		}
	}
	return jobs
}

// run runs a reconciler of the process until ctx ends.
func (p *fakeProcess) run(ctx context.Context, t *testing.T, cfg Config) {
	t.Helper()
	cfg.Instance = p.name
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	r, err := newReconciler(p, p.jobs(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.Run(ctx)
}

// runFor runs one process for d. A goroutine left running fails the test.
func runFor(t *testing.T, d time.Duration, cfg Config, arrange func(*fakeProcess)) *fakeProcess {
	t.Helper()
	var p *fakeProcess
	synctest.Test(t, func(t *testing.T) {
		p = newFakeDatabase().process("process")
		arrange(p)
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		p.run(ctx, t, cfg)
	})
	return p
}

// An idle process asks for work every interval and calls only sweeps.
func TestRunIsNearlySilentWhenIdle(t *testing.T) {
	t.Parallel()
	p := runFor(t, 10*time.Minute, Config{}, func(*fakeProcess) {})
	asked := p.asked["process"]
	if n, want := len(asked), int(10*time.Minute/DefaultInterval); n < want*19/20 || n > want*21/20 {
		t.Errorf("asks %d times in 10 minutes, want about %d", n, want)
	}
	intervals := make(map[time.Duration]bool)
	for i := range len(asked) - 1 {
		d := asked[i+1].Sub(asked[i])
		intervals[d] = true
		if d < DefaultInterval*9/10 || d > DefaultInterval*11/10 {
			t.Errorf("%v between two questions, want %v within a tenth", d, DefaultInterval)
		}
	}
	if len(intervals) < 3 {
		t.Error("always in step")
	}
	for name, calls := range p.calls["process"] {
		switch name {
		case upkeep.JobRepairQueue:
		case upkeep.JobRepairGroups, upkeep.JobSummariseFlows, upkeep.JobSweepWorkers:
			if n := len(calls); n < 9 || n > 13 {
				t.Errorf("%s is called %d times in 10 minutes, want about ten", name, n)
			}
		case upkeep.JobPruneWorkerEvents, upkeep.JobForgetLimitKeys:
			if n := len(calls); n > 2 {
				t.Errorf("%s is called %d times in 10 minutes, want at most twice", name, n)
			}
		case upkeep.JobForgetFairPlaces:
			if n := len(calls); n > 9 {
				t.Errorf("%s is called %d times in 10 minutes, want at most nine", name, n)
			}
		case upkeep.JobSweepWaits:
			if n := len(calls); n < 2 || n > 6 {
				t.Errorf("%s is called %d times in 10 minutes, want ever less often", name, n)
			}
		case upkeep.JobTrimOutboxes, upkeep.JobPurgeFlows:
			if n := len(calls); n < 5 || n > 10 {
				t.Errorf("%s is called %d times in 10 minutes, want ever less often, down to each ten minutes", name, n)
			}
		default:
			t.Errorf("%s is called %d times", name, len(calls))
		}
	}
	if n := len(p.calls["process"][upkeep.JobRepairQueue]); n < 18 || n > 22 {
		t.Errorf("the sweep goes on %d times in 10 minutes, want 20", n)
	}
}

// Trimming and purging run soon after executions were deleted, however long they found nothing before.
func TestRunTrimsSoonAfterDeletions(t *testing.T) {
	t.Parallel()
	var began time.Time
	p := runFor(t, 20*time.Minute, Config{}, func(p *fakeProcess) {
		began = time.Now()
		p.due[upkeep.JobRetain] = began.Add(18 * time.Minute)
		p.act = func(name upkeep.Job, _ int) (int, error) {
			if name != upkeep.JobRetain {
				return 0, nil
			}
			delete(p.due, name)
			return 1, nil
		}
	})
	deleted := p.calls["process"][upkeep.JobRetain]
	if len(deleted) != 1 {
		t.Fatalf("retains at %v, want once", deleted)
	}
	for _, name := range []upkeep.Job{upkeep.JobTrimOutboxes, upkeep.JobPurgeFlows} {
		soon := false
		for _, at := range p.calls["process"][name] {
			soon = soon || at.After(deleted[0]) && at.Before(deleted[0].Add(6*time.Second))
		}
		if !soon {
			t.Errorf("%s at %v, want one soon after %v", name, p.calls["process"][name], deleted[0])
		}
	}
}

// Work announced in time is done when due; overdue work no more often than its job's pace.
func TestRunCallsDueJobs(t *testing.T) {
	t.Parallel()
	var began time.Time
	p := runFor(t, time.Minute, Config{}, func(p *fakeProcess) {
		began = time.Now()
		p.due[upkeep.JobPromoteDelayed] = began.Add(10 * time.Second)
		p.due[upkeep.JobExpireDeadlines] = began
		p.act = func(name upkeep.Job, _ int) (int, error) {
			if name == upkeep.JobPromoteDelayed {
				delete(p.due, name)
			}
			return 0, nil
		}
	})
	if calls := p.calls["process"][upkeep.JobPromoteDelayed]; len(calls) != 1 || !calls[0].Equal(began.Add(10*time.Second)) {
		t.Errorf("promotes at %v, want 10 s after %v", calls, began)
	}
	calls := p.calls["process"][upkeep.JobExpireDeadlines]
	if len(calls) < 11 || len(calls) > 13 {
		t.Errorf("ends what is overdue %d times in a minute, want 12", len(calls))
	}
}

func TestRunRepeatsFullBatchesImmediately(t *testing.T) {
	t.Parallel()
	p := runFor(t, 1700*time.Millisecond, Config{Batch: 10}, func(p *fakeProcess) {
		p.due[upkeep.JobExpireLeases] = time.Now()
		p.act = func(_ upkeep.Job, call int) (int, error) {
			if call < 5 {
				return 10, nil
			}
			return 9, nil
		}
	})
	calls := p.calls["process"][upkeep.JobExpireLeases]
	if len(calls) != 5 || calls[4] != calls[0] {
		t.Errorf("called at %v, want 5 times without a pause", calls)
	}
}

// After work the database is asked again after half an interval, since more is likely.
func TestRunAsksSoonAfterWork(t *testing.T) {
	t.Parallel()
	p := runFor(t, time.Minute, Config{}, func(p *fakeProcess) {
		p.due[upkeep.JobPromoteDelayed] = time.Now()
		p.act = func(upkeep.Job, int) (int, error) { return 1, nil }
	})
	if n := len(p.calls["process"][upkeep.JobPromoteDelayed]); n < 75 || n > 80 {
		t.Errorf("promotes %d times in a minute, want every %v", n, DefaultInterval/2)
	}
}

// Work that this process's engine leaves undispatched or delays waits neither for the next question nor for the holder.
func TestRunDoesItsOwnEnginesWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeDatabase()
		p := f.process("process")
		for _, j := range p.jobs() {
			f.held[j.name] = fakeHold{"another", time.Now().Add(time.Hour)}
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { p.run(ctx, t, Config{}) })
		time.Sleep(10*time.Second + time.Microsecond)
		synctest.Wait()
		left := time.Now()
		p.left <- struct{}{}
		p.unneeded <- struct{}{}
		synctest.Wait()
		f.mu.Lock()
		due := time.Now().Add(200 * time.Millisecond)
		f.due[upkeep.JobPromoteDelayed] = due
		f.mu.Unlock()
		p.delayed <- struct{}{}
		time.Sleep(time.Second)
		synctest.Wait()
		cancel()
		running.Wait()
		if calls := f.calls["process"][upkeep.JobDispatchCompletions]; len(calls) != 1 || !calls[0].Equal(left) {
			t.Errorf("dispatches at %v, want %v", calls, left)
		}
		if calls := f.calls["process"][upkeep.JobCancelSiblings]; len(calls) != 1 || !calls[0].Equal(left) {
			t.Errorf("cancels what is not needed at %v, want %v", calls, left)
		}
		calls := f.calls["process"][upkeep.JobPromoteDelayed]
		if len(calls) != 1 || calls[0].Before(due) || calls[0].Sub(due) > DefaultInterval/2 {
			t.Errorf("promotes at %v, want within %v after %v", calls, DefaultInterval/2, due)
		}
		for name, calls := range f.calls["process"] {
			if name != upkeep.JobDispatchCompletions && name != upkeep.JobPromoteDelayed && name != upkeep.JobCancelSiblings {
				t.Errorf("%s of another process is called at %v", name, calls)
			}
		}
	})
}

// One of two processes does a job. If it falls silent, the other takes over within five seconds; if it stops, with its
// next question.
func TestRunActsInOneOfTwoProcesses(t *testing.T) {
	t.Parallel()
	for _, silent := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeDatabase()
			f.act = func(upkeep.Job, int) (int, error) { return 0, nil }
			f.due[upkeep.JobExpireLeases] = time.Now()
			first, second := f.process("first"), f.process("second")
			ctx, cancel := context.WithCancel(t.Context())
			stopping, stop := context.WithCancel(ctx)
			var running sync.WaitGroup
			running.Go(func() { first.run(stopping, t, Config{}) })
			time.Sleep(2 * time.Second)
			running.Go(func() { second.run(ctx, t, Config{}) })
			time.Sleep(time.Minute)
			synctest.Wait()
			f.mu.Lock()
			if n := len(f.calls["second"]); n > 0 {
				t.Errorf("the second process does %d jobs beside the first", n)
			}
			if n := len(f.calls["first"][upkeep.JobExpireLeases]); n < 30 {
				t.Errorf("the first process does the job %d times", n)
			}
			first.cut = silent
			since := f.held[upkeep.JobExpireLeases].until
			f.mu.Unlock()
			if left := time.Until(since); left > 4*time.Second {
				t.Errorf("the job is held for %v more", left)
			}
			if !silent {
				stop()
				since = time.Now()
			}
			time.Sleep(10 * time.Second)
			synctest.Wait()
			f.mu.Lock()
			calls := f.calls["second"][upkeep.JobExpireLeases]
			f.mu.Unlock()
			within := 2 * time.Millisecond
			if !silent {
				within = DefaultInterval * 11 / 10
			}
			if len(calls) == 0 || calls[0].Sub(since) > within {
				t.Errorf("silent %v: the second takes over at %v, want within %v after %v", silent, calls, within, since)
			}
			cancel()
			running.Wait()
			stop()
		})
	}
}

// A process that stops while it asks returns the jobs that the database takes for it then.
func TestRunReturnsWhatItAskedForWhenItStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asking := make(chan struct{})
		database := newFakeDatabase()
		database.asking = asking
		process := database.process("a")
		stopping, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { process.run(stopping, t, Config{}) })
		<-asking
		stop()
		running.Wait()
		time.Sleep(time.Second)
		synctest.Wait()
		database.mu.Lock()
		defer database.mu.Unlock()
		if len(database.held) == 0 {
			t.Error("took no jobs")
		}
		for job, h := range database.held {
			if h.until.After(time.Now()) {
				t.Errorf("%s is held by %s, which has stopped", job, h.by)
			}
		}
	})
}

func TestRunReportsLanesWithWork(t *testing.T) {
	t.Parallel()
	notified := 0
	runFor(t, time.Minute, Config{Lanes: []id.LaneID{"empty", "full"}, Queued: func(lanes []id.LaneID) {
		notified++
		if len(lanes) != 1 || lanes[0] != "full" {
			t.Errorf("told of %v", lanes)
		}
	}}, func(*fakeProcess) {})
	if notified < 35 {
		t.Errorf("told %d times in a minute", notified)
	}
}

func TestRunBacksOff(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	cfg := Config{Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	p := runFor(t, 30*time.Minute, cfg, func(p *fakeProcess) {
		p.due[upkeep.JobExpireLeases], p.due[upkeep.JobPromoteDelayed] = time.Now(), time.Now()
		p.act = func(job upkeep.Job, call int) (int, error) {
			if job == upkeep.JobExpireLeases && call <= 30 {
				return 0, errors.New("no row")
			}
			return 0, nil
		}
	})
	calls := p.calls["process"][upkeep.JobExpireLeases]
	if d := calls[29].Sub(calls[28]); d < maxPause/2 || d > maxPause {
		t.Errorf("%v between failures, want the longest pause in the end", d)
	}
	if d := calls[len(calls)-1].Sub(calls[len(calls)-2]); d > 4*time.Second {
		t.Errorf("%v between calls after the failures, want the interval again", d)
	}
	if ends := p.ends[upkeep.JobExpireLeases]; !ends.Failed.Equal(calls[29]) || ends.Err == nil || ends.Err.Error() != "no row" {
		t.Errorf("the last failure is reported as %+v, want that of %v", ends, calls[29])
	}
	if ends := p.ends[upkeep.JobExpireLeases]; ends.Succeeded.Before(calls[30]) {
		t.Errorf("the last success is reported as %v, want it after %v", ends.Succeeded, calls[30])
	}
	wantPaced(t, log.String(), "no row", 30)
	if n := len(p.calls["process"][upkeep.JobPromoteDelayed]); n < 1100 {
		t.Errorf("%d calls of another job, want it undisturbed", n)
	}
}

// While the database cannot be asked, the questions become rarer; work known to be due is still done.
func TestRunBacksOffWithoutADatabase(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	p := runFor(t, 30*time.Minute, Config{Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}, func(p *fakeProcess) {
		p.fail = func(asked int) error {
			if asked > 1 && asked <= 30 {
				return errors.New("no database")
			}
			return nil
		}
	})
	asked := p.asked["process"]
	if d := asked[30].Sub(asked[29]); d < maxPause/2 || d > maxPause {
		t.Errorf("%v between questions without an answer, want the longest pause in the end", d)
	}
	if d := asked[len(asked)-1].Sub(asked[len(asked)-2]); d > 2*time.Second {
		t.Errorf("%v between questions after that, want the interval again", d)
	}
	wantPaced(t, log.String(), "no database", 29)
}

// wantPaced expects n failures in a log, and warnings of them at least a minute apart.
func wantPaced(t *testing.T, log, failure string, n int) {
	t.Helper()
	var warned []time.Time
	total := 0
	for line := range strings.Lines(log) {
		if !strings.Contains(line, failure) {
			continue
		}
		total++
		if strings.Contains(line, "level=WARN") {
			stamp, _, _ := strings.Cut(strings.TrimPrefix(line, "time="), " ")
			at, err := time.Parse(time.RFC3339, stamp)
			if err != nil {
				t.Fatal(err)
			}
			warned = append(warned, at)
		}
	}
	if total != n || len(warned) < 2 || len(warned) > n/2 {
		t.Errorf("%d failures in the log, %d of them warnings, want %d and fewer warnings", total, len(warned), n)
	}
	for i, at := range warned[min(1, len(warned)):] {
		if d := at.Sub(warned[i]); d < 59*time.Second {
			t.Errorf("%v between two warnings, want a minute", d)
		}
	}
}

func TestNewRefusesBadInput(t *testing.T) {
	t.Parallel()
	notified := func([]id.LaneID) {}
	for _, cfg := range []Config{
		{Interval: -1},
		{Interval: 1},
		{Interval: 25 * time.Hour},
		{Instance: "a\nb"},
		{Lanes: []id.LaneID{""}, Queued: notified},
		{Lanes: []id.LaneID{"lane"}},
		{Queued: notified},
		{Batch: -1},
		{Batch: engine.MaxBatch + 1},
	} {
		if _, err := newReconciler(&fakeProcess{}, nil, cfg); !errors.Is(err, fferr.ErrInvalidInput) {
			t.Errorf("%+v: %v, want invalid input", cfg, err)
		}
	}
	if _, err := New(nil, Config{}); !errors.Is(err, fferr.ErrInvalidInput) {
		t.Errorf("without an engine: %v, want invalid input", err)
	}
}
