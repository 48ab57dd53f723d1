package executions

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// executionModel is the model of executions: no transactions, one call after the other.
type executionModel struct {
	f      *fixture.Fixture
	actors []*engine.Engine
	all    []*modelled
	leases []engine.Lease // ever given
}

// modelled is one execution.
type modelled struct {
	id       id.ExecutionID
	policy   policy.Execution
	state    string
	pointer  int
	attempts []modelledAttempt
	epoch    int64
	retries  int
	lost     int
	replays  int
	wake     time.Time // of a delayed one
	granted  time.Time // until when the grant of a granted one may be used
	deadline time.Time // zero: none
	ends     []string  // outcomes of all ends
	given    int       // leases
	final    string    // the rows of one that has ended, as they were first read
}

type modelledAttempt struct {
	epoch   int64
	outcome string
	expires time.Time // zero: no lease
	timeout time.Time // zero: none
	delay   time.Time // the condition it was given back with
}

func (x *modelled) current() *modelledAttempt { return &x.attempts[len(x.attempts)-1] }

func (x *modelled) active() bool { return x.state == fixture.StateRunning }

// isOver says whether an instant has come; one that is zero never does.
func (m *executionModel) isOver(at time.Time) bool { return !at.IsZero() && !at.After(m.f.Time()) }

// end records in the model that an execution has ended.
func (x *modelled) end(state, outcome string) {
	x.state, x.wake = state, time.Time{}
	x.ends = append(x.ends, outcome)
}

func (x *modelled) hasEnded() bool {
	return slices.Contains([]string{fixture.StateCompleted, fixture.StateFailed, fixture.StateExpired, fixture.StateUnstarted, fixture.StateSkipped, fixture.StateCancelled}, x.state)
}

// waiting is the state of one that waits for something, its attempts left as they are.
func (x *modelled) waiting(what, reason string) string {
	return strings.Join([]string{"runnable unowned", what, strings.Fields(x.state)[4], reason}, " ")
}

// let takes the lease away; involuntarily, the epoch rises.
func (x *modelled) let(outcome string, involuntary bool) {
	a := x.current()
	a.outcome, a.expires, a.timeout = outcome, time.Time{}, time.Time{}
	if involuntary {
		x.epoch++
		a.epoch = x.epoch
	}
}

// patientPauses are those before the retries of executions without a retry policy; the last one repeats.
var patientPauses = []time.Duration{time.Second, 5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute, time.Hour}

// retry schedules another attempt, if the policy has one left.
func (x *modelled) retry(m *executionModel, outcome string, involuntary bool) bool {
	limit, pause := 24, patientPauses[min(x.retries, len(patientPauses)-1)]
	if r := x.policy.Retry; r != nil {
		limit, pause = max(r.MaxRetries, 0), r.Backoff.First
		if r.MaxRetries == 0 {
			limit = policy.DefaultMaxRetries
		}
	}
	if x.retries >= limit {
		return false
	}
	x.let(outcome, involuntary)
	x.retries++
	x.pointer = len(x.attempts)
	x.current().delay = m.f.Time().Add(pause)
	x.state = fixture.StateRetry
	if pause > 0 {
		x.state, x.wake = fixture.StateBackoff, m.f.Time().Add(pause)
	}
	return true
}

func (x *modelled) timeOut(m *executionModel) {
	if !x.retry(m, "interrupted", true) {
		x.let("expired", true)
		x.end(fixture.StateExpired, "expired")
	}
}

// create creates executions with policies by chance.
func (m *executionModel) create(t *testing.T, r *rapid.T) {
	spec := engine.ExecutionSpec{Kind: "test", Lane: m.f.Lane, ID: id.NewExecutionID(m.f.Lane, id.Partitions{})}
	x := &modelled{id: spec.ID, state: fixture.StateReady}
	if rapid.Bool().Draw(r, "a policy") {
		x.policy = policy.Execution{
			Retry: &policy.Retry{
				MaxRetries: rapid.SampledFrom([]int{policy.NoRetries, 1, 2}).Draw(r, "retries"),
				Backoff:    policy.Fixed(time.Duration(rapid.SampledFrom([]int{0, 5}).Draw(r, "pause")) * time.Second),
			},
			AttemptTimeout: time.Duration(rapid.SampledFrom([]int{0, 8, 25}).Draw(r, "timeout")) * time.Second,
			MaxReclaims:    rapid.SampledFrom([]int{0, policy.NoReclaims, 1}).Draw(r, "reclaims"),
		}
		spec.Policy = &x.policy
	}
	if s := rapid.SampledFrom([]int{0, 0, 20, 60}).Draw(r, "deadline"); s > 0 {
		x.deadline = m.f.Time().Add(time.Duration(s) * time.Second)
		spec.Deadline = x.deadline
	}
	if s := rapid.SampledFrom([]int{0, 0, 0, 5, 30}).Draw(r, "delay"); s > 0 {
		x.state, x.wake = fixture.StateDelayed, m.f.Time().Add(time.Duration(s)*time.Second)
		spec.DelayUntil = x.wake
	}
	if _, err := m.f.CreateExecution(t.Context(), spec); err != nil {
		r.Fatal(err)
	}
	m.all = append(m.all, x)
}

func (m *executionModel) claim(t *testing.T, r *rapid.T) {
	claimable := 0
	for _, x := range m.all {
		if isReady(x.state) {
			claimable++
		}
	}
	limit := rapid.IntRange(1, 4).Draw(r, "limit")
	claimed, err := m.actor(r).Claim(t.Context(), m.f.Worker(), limit)
	if err != nil || len(claimed) != min(limit, claimable) {
		r.Fatalf("claimed %d of %d, limit %d, %v", len(claimed), claimable, limit, err)
	}
	for _, c := range claimed {
		x := m.find(c.ID)
		if !isReady(x.state) {
			r.Fatalf("claimed %s, which is %s", x.id, x.state)
		}
		resumes := x.state == fixture.StateReturned
		x.lease(m)
		if c.Lease.Epoch != x.epoch || c.Lease.Attempt != x.pointer || c.Resumed != resumes {
			r.Fatalf("claimed %+v, want epoch %d, attempt %d", c, x.epoch, x.pointer)
		}
		m.leases = append(m.leases, c.Lease)
	}
}

// lease gives a claimable execution to a holder.
func (x *modelled) lease(m *executionModel) {
	sameAttempt := x.state == fixture.StateReturned || x.state == fixture.StateReplayed && x.pointer < len(x.attempts)
	x.epoch++
	x.given++
	x.state = fixture.StateRunning
	if !sameAttempt {
		x.attempts = append(x.attempts, modelledAttempt{})
	}
	x.pointer = len(x.attempts) - 1
	*x.current() = modelledAttempt{epoch: x.epoch, expires: m.f.Time().Add(fixture.LeaseTTL)}
	if x.policy.AttemptTimeout > 0 {
		x.current().timeout = m.f.Time().Add(x.policy.AttemptTimeout)
	}
}

func isReady(state string) bool {
	return slices.Contains([]string{fixture.StateReady, fixture.StateRetry, fixture.StateReturned, fixture.StateReplayed}, state)
}

func (m *executionModel) find(of id.ExecutionID) *modelled {
	return m.all[slices.IndexFunc(m.all, func(x *modelled) bool { return x.id == of })]
}

func (m *executionModel) actor(r *rapid.T) *engine.Engine {
	return rapid.SampledFrom(m.actors).Draw(r, "actor")
}

// fence says how a call of a holder must be answered; done: the same call succeeded before.
func (m *executionModel) fence(l engine.Lease, done func(*modelled, modelledAttempt) bool) (refusal error, repeated bool) {
	x := m.find(l.Execution)
	a := x.attempts[l.Attempt]
	switch {
	case a.epoch != l.Epoch:
		return fferr.ErrStaleLease, false
	case done(x, a):
		return nil, true
	case !x.active():
		return fferr.ErrNotActive, false
	case l.Attempt != x.pointer:
		return fferr.ErrStaleLease, false
	case !a.expires.After(m.f.Time()):
		return fferr.ErrLeaseExpired, false
	}
	return nil, false
}

// held is a call of the holder of a lease, with its effect in the model if it is accepted.
type held struct {
	batch string // its plural in batches
	done  func(*modelled, modelledAttempt) bool
	does  func(*executionModel, *modelled)
}

func never(*modelled, modelledAttempt) bool { return false }

var heldCalls = map[string]held{
	"renew": {"renew", never, func(m *executionModel, x *modelled) {
		if until := m.f.Time().Add(fixture.LeaseTTL); until.After(x.current().expires) {
			x.current().expires = until
		}
	}},
	"complete": {"complete", func(_ *modelled, a modelledAttempt) bool { return a.outcome == "success" }, func(_ *executionModel, x *modelled) {
		x.let("success", false)
		x.end(fixture.StateCompleted, "success")
	}},
	"fail": {"fail", failedBefore, func(m *executionModel, x *modelled) {
		if !x.retry(m, "retry", false) {
			x.let("failed", false)
			x.end(fixture.StateFailed, "failed")
		}
	}},
	"fail for good": {"fail for good", failedBefore, func(_ *executionModel, x *modelled) {
		x.let("failed", false)
		x.end(fixture.StateFailed, "failed")
	}},
	"release": {"release", givenBack("interrupted"), func(_ *executionModel, x *modelled) {
		x.let("interrupted", false)
		x.state = fixture.StateReturned
	}},
	"delay": {"delay", givenBack("interrupted"), func(m *executionModel, x *modelled) {
		x.let("interrupted", false)
		x.wake = m.f.Time().Add(time.Minute)
		x.state = fixture.StateLater
	}},
	"wait for children": {"wait for children", givenBack("waiting_children"), func(_ *executionModel, x *modelled) {
		x.let("waiting_children", false)
		x.state = fixture.StateParked
	}},
}

func givenBack(outcome string) func(*modelled, modelledAttempt) bool {
	return func(x *modelled, a modelledAttempt) bool { return a.outcome == outcome && !x.active() }
}

func failedBefore(x *modelled, a modelledAttempt) bool {
	return a.outcome == "retry" || a.outcome == "failed" && x.hasEnded()
}

// hold calls something with leases of any age, one or several at once.
func (m *executionModel) hold(t *testing.T, r *rapid.T, name string) {
	if len(m.leases) == 0 {
		return
	}
	call := heldCalls[name]
	var leases []engine.Lease
	for range rapid.IntRange(1, 3).Draw(r, "leases") {
		back := rapid.IntRange(0, min(len(m.leases), 6)-1).Draw(r, "age")
		if l := m.leases[len(m.leases)-1-back]; !slices.ContainsFunc(leases, func(o engine.Lease) bool { return o.Execution == l.Execution }) {
			leases = append(leases, l)
		}
	}
	outcomes, err := fixture.Batches[call.batch](t.Context(), m.actor(r), leases)
	if err != nil {
		r.Fatal(err)
	}
	for i, l := range leases {
		want, repeated := m.fence(l, call.done)
		if !errors.Is(outcomes[i], want) {
			r.Fatalf("%s of %+v answers %v, want %v", name, l, outcomes[i], want)
		}
		if want == nil && !repeated {
			call.does(m, m.find(l.Execution))
		}
	}
}

// modelJobs are the jobs, with the effect of each on an execution that is due.
var modelJobs = map[string]struct {
	run  func(*upkeep.Upkeep) fixture.Job
	does func(*executionModel, *modelled) bool
}{
	"expire leases": {func(mt *upkeep.Upkeep) fixture.Job { return mt.ExpireLeases }, func(m *executionModel, x *modelled) bool {
		if !x.active() || !m.isOver(x.current().expires) {
			return false
		}
		if m.isOver(x.current().timeout) {
			x.timeOut(m)
			return true
		}
		limit := policy.ReclaimLimit
		switch n := x.policy.MaxReclaims; {
		case x.policy.Retry == nil:
		case n == policy.NoReclaims:
			limit = 0
		case n == 0:
			limit = policy.DefaultMaxReclaims
		default:
			limit = n
		}
		x.lost++
		if x.lost > limit {
			x.let("failed", true)
			x.end(fixture.StateFailed, "failed")
			return true
		}
		x.let("lease_expired_reclaimable", true)
		x.state = fixture.StateReturned
		return true
	}},
	"expire attempts": {func(mt *upkeep.Upkeep) fixture.Job { return mt.ExpireAttempts }, func(m *executionModel, x *modelled) bool {
		if !x.active() || !m.isOver(x.current().timeout) {
			return false
		}
		x.timeOut(m)
		return true
	}},
	"expire deadlines": {func(mt *upkeep.Upkeep) fixture.Job { return mt.ExpireDeadlines }, func(m *executionModel, x *modelled) bool {
		if x.hasEnded() || !m.isOver(x.deadline) {
			return false
		}
		if x.pointer < len(x.attempts) && len(x.attempts) > 0 {
			x.let("expired", true)
		}
		state := fixture.StateExpired
		if len(x.attempts) == 0 {
			state = fixture.StateUnstarted
		}
		x.end(state, "expired")
		return true
	}},
	"expire grants": {func(mt *upkeep.Upkeep) fixture.Job { return mt.ExpireGrants }, func(m *executionModel, x *modelled) bool {
		if !x.isGranted() || !m.isOver(x.granted) {
			return false
		}
		x.state = ungranted(x.state)
		return true
	}},
	"promote": {func(mt *upkeep.Upkeep) fixture.Job { return mt.PromoteDelayed }, func(m *executionModel, x *modelled) bool {
		if !m.isOver(x.wake) || m.isOver(x.deadline) {
			return false
		}
		x.wake = time.Time{}
		x.state = x.waiting("eligible_now waiting", "waiting_for_worker")
		return true
	}},
}

func (m *executionModel) run(t *testing.T, r *rapid.T, name string) {
	job := modelJobs[name]
	want := 0
	for _, x := range m.all {
		if job.does(m, x) {
			want++
		}
	}
	if n, err := job.run(upkeep.Of(m.actor(r)))(t.Context(), 1000); err != nil || n != want {
		r.Fatalf("%s acted on %d, %v; want %d", name, n, err, want)
	}
}

// compare holds every row to the model.
func (m *executionModel) compare(t *testing.T, r *rapid.T) {
	type row struct {
		ExecutionID                      id.ExecutionUUID
		State, Attempts, Ends, Rows      string
		AttemptIndex, Retries, Lost, All int
		Epoch                            int64
		Given                            int
	}
	stored := fixture.All[row](t, m.f.Pool, `
		SELECT e.execution_id,
			concat_ws(' ', lifecycle_phase, ownership_state, eligibility_state, public_state, attempt_state, coalesce(blocking_reason, '-')) AS state,
			coalesce((SELECT string_agg(concat_ws(' ', a.attempt_index, a.lease_epoch, coalesce(a.outcome, '-'), coalesce(a.lease_expires_at_ms, 0)), ', '
				ORDER BY a.attempt_index) FROM ff_attempt AS a WHERE a.partition_key = e.partition_key AND a.execution_id = e.execution_id), '') AS attempts,
			coalesce((SELECT string_agg(c.outcome, ', ' ORDER BY c.event_id) FROM ff_completion_event AS c
				WHERE c.partition_key = e.partition_key AND c.execution_id = e.execution_id), '') AS ends,
			to_jsonb(e)::text || coalesce((SELECT jsonb_agg(to_jsonb(a) ORDER BY a.attempt_index)::text FROM ff_attempt AS a
				WHERE a.partition_key = e.partition_key AND a.execution_id = e.execution_id), '') AS rows,
			attempt_index, ffx_retry_count AS retries, lease_reclaim_count AS lost, ffx_attempt_count AS all, ffx_lease_epoch AS epoch,
			(SELECT count(*) FROM ff_lease_event AS l WHERE l.partition_key = e.partition_key AND l.execution_id = e.execution_id::text
				AND l.event_type IN ('acquired', 'reclaimed')) AS given
		FROM ff_exec_core AS e`)
	if len(stored) != len(m.all) {
		r.Fatalf("%d executions, want %d", len(stored), len(m.all))
	}
	for _, s := range stored {
		x := m.all[slices.IndexFunc(m.all, func(x *modelled) bool { return x.id.UUID() == s.ExecutionID })]
		want := row{
			ExecutionID: s.ExecutionID, State: x.state, Rows: s.Rows, AttemptIndex: x.pointer, Retries: x.retries, Lost: x.lost,
			All: len(x.attempts), Epoch: x.epoch, Given: x.given,
		}
		for i, a := range x.attempts {
			outcome, expires := a.outcome, int64(0)
			if outcome == "" {
				outcome = "-"
			}
			if !a.expires.IsZero() {
				expires = a.expires.UnixMilli()
			}
			want.Attempts += fmt.Sprintf(", %d %d %s %d", i, a.epoch, outcome, expires)
		}
		for _, outcome := range x.ends {
			want.Ends += ", " + outcome
		}
		want.Attempts, want.Ends = want.Attempts[min(len(want.Attempts), 2):], want.Ends[min(len(want.Ends), 2):]
		if s != want {
			r.Fatalf("stored %+v,\nwant   %+v", s, want)
		}
		switch {
		case !x.hasEnded():
			x.final = ""
		case x.final == "":
			x.final = s.Rows
		case x.final != s.Rows:
			r.Fatalf("%s has ended, and was changed from\n%s to\n%s", x.id, x.final, s.Rows)
		}
	}
}

// Random calls of several processes, with leases of any age, leave executions in the states of the model: ended ones
// do not change, epochs rise with every lease, attempts have no holes, every end has one event.
func TestExecutionsMatchTheModel(t *testing.T) {
	f := fixture.NewCloned(t)
	f.Signing(t)
	m := &executionModel{f: f, actors: []*engine.Engine{f.Engine, f.Rival(t).Engine, f.Rival(t).Engine}}
	actions := map[string]func(*rapid.T){
		"create": func(r *rapid.T) { m.create(t, r) },
		"claim":  func(r *rapid.T) { m.claim(t, r) },
		"wait": func(r *rapid.T) {
			f.Advance(time.Duration(rapid.SampledFrom([]int{1, 4, 11, 30}).Draw(r, "seconds")) * time.Second)
		},
		"": func(r *rapid.T) { m.compare(t, r) },
	}
	for name := range heldCalls {
		actions[name] = func(r *rapid.T) { m.hold(t, r, name) }
	}
	for _, calls := range []map[string]modelCall{modelOperators, modelGrants} {
		for name, call := range calls {
			actions[name] = func(r *rapid.T) { m.operate(t, r, name, call) }
		}
	}
	for name := range modelJobs {
		actions[name] = func(r *rapid.T) { m.run(t, r, name) }
	}
	histories := fixture.ForAMoment(t, func(r *rapid.T) {
		if _, err := f.Pool.Exec(t.Context(), `TRUNCATE ff_exec_core, ff_attempt, ffx_ready, ffx_blocked, ffx_lease_timer, ff_lease_event, ff_completion_event, ff_claim_grant`); err != nil {
			r.Fatal(err)
		}
		m.all, m.leases = nil, nil
		r.Repeat(actions)
		broken, err := fixture.BrokenInvariants(t.Context(), f.Url, nil)
		if err != nil || len(broken) > 0 {
			r.Fatal(broken, err)
		}
	})
	t.Logf("%d histories", histories)
}
