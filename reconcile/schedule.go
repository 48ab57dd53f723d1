package reconcile

import (
	"context"
	"slices"
	"time"

	"github.com/flowfabric/flowfabric-go/internal/backoff"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/internal/warn"
)

// schedule is the state of one [Reconciler.Run], in one goroutine; each call of a job has another.
type schedule struct {
	*Reconciler
	jobs   []*scheduled
	called chan call // buffered for one call of each job
	runs   int       // calls under way
	sweeps int       // sweeps under way

	askAt   time.Time // when to ask for work next
	askedAt time.Time
	failing backoff.Backoff
	cannot  warn.Repeated
	taken   bool // the process may hold jobs

	lanesAt time.Time // don't ask about the lanes before

	changed chan struct{} // buffered: some process has changed a schedule
	gated   chan struct{} // buffered: a process has made executions wait for a limit, or let one start
	ended   chan struct{} // buffered: executions have ended while a tick or an admission waits for an end
	ignore  func()        // ends the waiting for ends; nil: nothing waits for one
}

// scheduled is a job with the next call.
type scheduled struct {
	job
	at      time.Time // zero: not until the database reports work
	notYet  time.Time // at must not be earlier
	latest  time.Time // at must not be later, after a notification; zero: no limit
	endsAt  time.Time // don't look because of ends before
	running bool
	wanted  bool // requested during a call
	ours    bool // held by the process, by the last answer
	nearby  bool // the process created the work, and calls the job without holding the job
	failing backoff.Backoff
	fails   warn.Repeated
	pause   time.Duration  // of a sweep, after calls without work
	ends    upkeep.JobEnds // to report with the next question
}

// call is the result of a job's call.
type call struct {
	*scheduled
	done int
	more bool // the last batch was full, and the job stopped for others
	err  error
	next time.Time // when the job is due after the call, if known
}

// newSchedule returns a schedule with its first question after one interval. So processes started together spread out,
// and a process that only tries to start does nothing.
func newSchedule(r *Reconciler, now time.Time) *schedule {
	s := &schedule{
		Reconciler: r, called: make(chan call, len(r.jobs)), askAt: now.Add(backoff.Spread(r.cfg.Interval)),
		failing: backoff.Backoff{First: r.cfg.Interval, Max: max(r.cfg.Interval, maxPause)},
		changed: make(chan struct{}, 1), gated: make(chan struct{}, 1), ended: make(chan struct{}, 1),
	}
	for _, j := range r.jobs {
		j.every, j.idle = r.scaled(j.every), r.scaled(j.idle)
		if j.batch == 0 {
			j.batch = r.cfg.Batch
		}
		s.jobs = append(s.jobs, &scheduled{job: j, failing: backoff.Backoff{First: j.every, Max: max(j.every, maxPause)}})
	}
	return s
}

// next returns when to act next.
func (s *schedule) next() time.Time {
	next := s.askAt
	for _, j := range s.jobs {
		if s.mayBegin(j) && j.at.Before(next) {
			next = j.at
		}
	}
	return next
}

// mayBegin reports whether a due job may be called: the job has a time, and the calls under way leave space. A waiting
// job is called when another call ends.
func (s *schedule) mayBegin(j *scheduled) bool {
	return !j.running && !j.at.IsZero() && s.runs < atOnce && (!j.sweep || s.sweeps < sweepsAtOnce)
}

// begin calls the due jobs, the longest due first.
func (s *schedule) begin(ctx context.Context, now time.Time) {
	due := slices.DeleteFunc(slices.Clone(s.jobs), func(j *scheduled) bool { return !s.mayBegin(j) || now.Before(j.at) })
	slices.SortStableFunc(due, func(a, b *scheduled) int { return a.at.Compare(b.at) })
	for _, j := range due {
		if !s.mayBegin(j) {
			continue
		}
		j.running, j.wanted, j.at, j.latest = true, false, time.Time{}, time.Time{}
		s.runs++
		if j.sweep {
			s.sweeps++
		}
		go func() {
			done, more, err := j.exhaust(ctx, turn)
			c := call{scheduled: j, done: done, more: more, err: err}
			if j.next != nil && err == nil {
				c.next = j.next()
			}
			s.called <- c
		}()
	}
}

// exhaust repeats a job while the batches are full, until a time has passed, and returns the number of rows acted on.
// It reports whether the last batch was full.
func (j *job) exhaust(ctx context.Context, most time.Duration) (done int, more bool, err error) {
	for began := time.Now(); ; {
		calling, cancel := context.WithTimeout(ctx, callTimeout)
		n, err := j.act(calling, j.batch)
		cancel()
		done += n
		if more = n >= j.batch; err != nil || !more || ctx.Err() != nil || time.Since(began) >= most {
			return done, more, err
		}
	}
}

// note records a finished call. If the job did something, more is likely to come, so note asks again soon.
func (s *schedule) note(c call, now time.Time) {
	c.running = false
	s.runs--
	if c.sweep {
		s.sweeps--
	}
	pause := c.every
	if c.err != nil {
		pause = c.failing.Next()
		c.fails.Log(s.cfg.Log, "background work failed; retrying: check the database and the rights of its role",
			"job", c.name, "error", c.err, "retry_in", pause)
		c.ends.Failed, c.ends.Err = now, c.err
	} else {
		c.failing.Reset()
		c.ends.Succeeded = now
	}
	c.notYet = now.Add(pause)
	switch {
	case c.err != nil:
		c.at = c.notYet
	case c.more:
		c.at, c.notYet = now, now
	case c.wanted:
		c.at = now
	case c.sweep:
		if c.pause = max(c.every, min(2*c.pause, c.idle)); c.done > 0 {
			c.pause = c.every
		}
		c.at = now.Add(backoff.Spread(c.pause))
	case !c.next.IsZero() && (c.ours || c.nearby):
		c.at = later(c.next, c.notYet)
	}
	c.limit()
	if c.done > 0 && !c.sweep && c.scheduled.next == nil {
		s.askSoon()
	}
	if c.name == upkeep.JobRunSchedules || c.name == upkeep.JobAdmitWaiting {
		s.awaitEnds(s.eng.TicksWait() || s.eng.AdmissionsWait())
	}
	if c.done > 0 {
		s.follow(c.name, now)
		s.cfg.Log.Debug("background work done", "job", c.name, "rows", c.done)
	}
}

// follow makes the sweeps after a job run soon.
func (s *schedule) follow(name upkeep.Job, now time.Time) {
	for _, j := range s.jobs {
		if j.after != name {
			continue
		}
		j.pause = 0
		if soon := now.Add(j.every); j.ours && !j.running && soon.Before(j.at) {
			j.at = soon
		}
	}
}

// askSoon moves the next question to half an interval after the last one.
func (s *schedule) askSoon() {
	if soon := s.askedAt.Add(s.cfg.Interval / 2); soon.Before(s.askAt) && s.failing.Idle() {
		s.askAt = soon
	}
}

// call makes a job due at once, even if held by another process.
func (s *schedule) call(name upkeep.Job) {
	for _, j := range s.jobs {
		if j.name == name {
			j.at, j.wanted = time.Now(), true
		}
	}
}

// expect makes a job due as early as the job's pace allows, if held by this process.
func (s *schedule) expect(name upkeep.Job) {
	for _, j := range s.jobs {
		if now := time.Now(); j.name == name && j.ours && j.failing.Idle() && (j.at.IsZero() || now.Before(j.at)) {
			j.at = later(now, j.notYet)
			j.wanted = j.running
		}
	}
}

// expectDelay makes this process promote the executions delayed here, since the holder may look too late.
func (s *schedule) expectDelay() {
	for _, j := range s.jobs {
		if j.name == upkeep.JobPromoteDelayed {
			j.nearby = true
		}
	}
	s.askSoon()
}

// expectNearby makes this process do a job for work made here, as early as the job's pace allows, even if another
// process holds the job.
func (s *schedule) expectNearby(name upkeep.Job) {
	for _, j := range s.jobs {
		if now := time.Now(); j.name == name && j.failing.Idle() {
			j.nearby, j.wanted = true, j.running
			j.at = later(now, j.notYet)
		}
	}
}

// endsPace is the shortest time between two looks because of ends. On a busy database executions end all the time.
const endsPace = 100 * time.Millisecond

// expectEnd makes this process look at the admissions and the ticks waiting for an execution to end. Most ends release
// their places to others at once, or report work for the gate.
func (s *schedule) expectEnd(now time.Time) {
	waits := map[upkeep.Job]bool{upkeep.JobAdmitWaiting: s.eng.AdmissionsWait(), upkeep.JobRunSchedules: s.eng.TicksWait()}
	for _, j := range s.jobs {
		if !waits[j.name] || !j.failing.Idle() || !j.ours && !j.nearby || !j.latest.IsZero() {
			continue
		}
		j.latest = later(later(now, j.notYet), j.endsAt)
		j.endsAt = j.latest.Add(s.scaled(endsPace))
		j.limit()
	}
}

// ask renews and takes jobs, and plans them by the database's report of work.
func (s *schedule) ask(ctx context.Context) {
	spec := upkeep.JobSpec{Holder: s.cfg.Instance, Hold: s.hold(), Jobs: make([]upkeep.Job, len(s.jobs)), Ends: make([]upkeep.JobEnds, len(s.jobs))}
	for i, j := range s.jobs {
		spec.Jobs[i], spec.Ends[i] = j.name, j.ends
	}
	began := time.Now()
	withLanes := s.cfg.Queued != nil && !began.Before(s.lanesAt)
	if withLanes {
		spec.Lanes = s.cfg.Lanes
	}
	// If the process stops now, the database would still take the jobs, perhaps after end has returned them.
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
	stopping := context.AfterFunc(ctx, func() { time.AfterFunc(stopTimeout, cancel) })
	s.taken = true // even if the answer is lost
	taken, err := s.eng.TakeJobs(asking, spec)
	stopping()
	cancel()
	now := time.Now()
	s.askedAt = began
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		pause := s.failing.Next()
		s.askAt = now.Add(pause)
		s.cannot.Log(s.cfg.Log, "cannot ask for background work; retrying: check the database and the rights of its role",
			"error", err, "retry_in", pause)
		return
	}
	s.failing.Reset()
	s.askAt = now.Add(backoff.Spread(s.cfg.Interval))
	for _, j := range s.jobs {
		j.ends = upkeep.JobEnds{}
		s.plan(j, taken.Jobs[j.name], taken.Now, now)
	}
	if withLanes {
		// Looking at a lane with many dead entries at its head is slow, so look less often.
		s.lanesAt = now.Add(lanesPace * now.Sub(began))
		s.cfg.Queued(taken.Lanes)
	}
}

// awaitEnds starts or stops looking at the schedules and the limits when executions end. There is one look at the
// start, since one may have ended before.
func (s *schedule) awaitEnds(waits bool) {
	switch {
	case waits && s.ignore == nil:
		s.ignore = s.eng.OnEnded(func() { remind(s.ended) })
		s.expectEnd(time.Now())
	case !waits && s.ignore != nil:
		s.ignore()
		s.ignore = nil
	}
}

// remind sends a value to a channel unless the buffer is full.
func remind(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// lanesPace is the pause after looking at the lanes, in multiples of the time taken.
const lanesPace = 20

// plan sets when a job is called, from the database's answer.
func (s *schedule) plan(j *scheduled, of upkeep.JobTaken, databaseNow, now time.Time) {
	if j.ours = of.Ours; !j.ours {
		if takeover := now.Add(max(of.HeldUntil.Sub(databaseNow), 0) + time.Millisecond); takeover.Before(s.askAt) {
			s.askAt = takeover
		}
	}
	due := now.Add(of.Due.Sub(databaseNow))
	j.nearby = j.nearby && !of.Due.IsZero() && due.Before(now.Add(2*s.cfg.Interval))
	switch {
	case j.running, j.wanted, !j.failing.Idle():
	case !of.Ours && !j.nearby:
		j.at = time.Time{}
	case j.sweep:
		if j.at.IsZero() {
			j.at = now.Add(backoff.Spread(j.every))
		}
	case of.Due.IsZero():
		j.at = time.Time{}
	default:
		j.at = later(due, j.notYet)
	}
	j.limit()
}

// limit moves a call before the latest time.
func (j *scheduled) limit() {
	if !j.latest.IsZero() && (j.at.IsZero() || j.latest.Before(j.at)) {
		j.at = j.latest
	}
}

// later returns the later of two instants.
func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// end waits for the calls in progress and releases the jobs.
func (s *schedule) end() {
	for _, j := range s.jobs {
		for j.running {
			(<-s.called).running = false
		}
	}
	if !s.taken {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if err := s.eng.ReturnJobs(ctx, s.cfg.Instance); err != nil {
		s.cfg.Log.Debug("cannot release background work; others take over when the hold expires", "error", err)
	}
}
