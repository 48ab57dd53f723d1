package explain

import (
	"fmt"
	"strconv"
	"time"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/state"
)

// late is how long a due change may take before background work counts as missing.
const late = 5 * time.Second

func notFound(x id.ExecutionID) Cause {
	return Cause{
		Code: NotFound, Certain: true, Facts: map[string]string{"id": x.String()},
		Text: "No execution has this id here: it was never committed, retention deleted it, or it is in another schema.",
	}
}

// causes returns the reasons why the execution does not run, the nearest first.
func (f *facts) causes() []Cause {
	e := f.execution
	switch e.State.Phase {
	case state.Terminal:
		return []Cause{f.ended()}
	case state.Active:
		return []Cause{f.active()}
	case state.Suspended:
		return []Cause{f.suspended()}
	}
	var causes []Cause
	switch e.State.Eligibility {
	case state.NotEligibleUntilTime:
		causes = append(causes, f.delayed())
	case state.BlockedByDependencies:
		causes = append(causes, f.dependent())
	case state.BlockedByQuota:
		causes = append(causes, f.limited())
	case state.BlockedByBudget:
		causes = append(causes, f.budgeted())
	case state.BlockedByOperator, state.BlockedByRoute, state.BlockedByLaneState:
		causes = append(causes, f.blocked())
	}
	waits := len(causes) > 0
	causes = append(causes, f.locked()...)
	causes = append(causes, f.lane()...)
	return append(causes, f.claimable(waits)...)
}

// ended reports the outcome.
func (f *facts) ended() Cause {
	e := f.execution
	ago := span(f.at().Sub(e.EndedAt)) + " ago"
	c := Cause{Certain: true, Since: e.EndedAt, Facts: map[string]string{"attempts": strconv.Itoa(e.Attempts)}}
	retry := "ff execution retry " + e.ID.Short()
	switch e.State.Outcome {
	case state.OutcomeSuccess:
		c.Code, c.Text = EndedSuccess, fmt.Sprintf("It succeeded %s in attempt %d.", ago, e.Attempts)
	case state.OutcomeFailed:
		c.Code, c.Text = EndedFailed, fmt.Sprintf("It failed %s in attempt %d%s.", ago, e.Attempts, because(e.FailureReason))
		c.Facts["reason"] = e.FailureReason
		c.Do = []string{retry}
	case state.OutcomeCancelled:
		c.Code, c.Text = EndedCancelled, fmt.Sprintf("It was cancelled %s by %s%s.", ago, by(e.CancelledBy), because(e.CancellationReason))
		c.Facts["reason"], c.Facts["by"] = e.CancellationReason, e.CancelledBy
		c.Do = []string{retry}
	case state.OutcomeExpired:
		c.Code, c.Text = EndedExpired, fmt.Sprintf("Its time was over %s%s.", ago, because(e.CancellationReason))
		c.Do = []string{retry}
	case state.OutcomeSkipped:
		c.Code, c.Text = EndedSkipped, fmt.Sprintf("It was skipped %s: its upstreams can't satisfy it any more.", ago)
		for _, upstream := range f.upstreams {
			if outcome := upstream.state.Outcome(); outcome != state.OutcomeNone && outcome != state.OutcomeSuccess {
				c.Text = fmt.Sprintf("It was skipped %s: upstream %q %s", ago, upstream.name, verbs[upstream.state])
				if upstream.failure != "" {
					c.Text += " (" + upstream.failure + ")"
				}
				c.Text += "."
				c.Holders = []id.ExecutionID{upstream.id}
				break
			}
		}
	}
	return c
}

var verbs = map[state.PublicState]string{
	state.PublicFailed: "failed", state.PublicCancelled: "was cancelled", state.PublicExpired: "expired", state.PublicSkipped: "was skipped",
}

// by returns a canceller for a sentence.
func by(name string) string {
	if name == "" {
		return "an unknown program"
	}
	return name
}

// active names the worker of a running execution, or reports a lost lease.
func (f *facts) active() Cause {
	e := f.execution
	if e.Lease == nil {
		return Cause{
			Code: LeaseRanOut, Since: e.LastMutationAt, Certain: true, Do: []string{"ff job list"},
			Text: "Its lease has ended, and it waits to be given back to its lane.",
		}
	}
	worker, left := f.worker(e.Lease.Instance), e.Lease.ExpiresAt.Sub(f.at())
	facts := map[string]string{"worker": string(e.Lease.Instance), "attempt": strconv.Itoa(e.Lease.Attempt)}
	if left < 0 {
		c := Cause{
			Code: LeaseRanOut, Since: e.Lease.ExpiresAt, Facts: facts, Certain: true,
			Text: fmt.Sprintf("Its worker %s lost the lease %s ago, and no process has given it back.", e.Lease.Instance, span(-left)),
		}
		f.blame(&c, "expire_leases", -left)
		return c
	}
	since := e.LastMutationAt
	c := Cause{Code: Running, Since: since, Until: e.Lease.ExpiresAt, Facts: facts, Certain: true}
	if worker != nil && !worker.Live {
		c.Code, c.Certain = HolderSilent, false
		c.Text = fmt.Sprintf("Its worker %s has not reported for %s; its lease runs for another %s.",
			e.Lease.Instance, span(f.at().Sub(time.UnixMilli(worker.LastHeartbeatMs))), span(left))
		c.Do = []string{"ff execution revoke " + e.ID.Short() + ` --reason "its worker is gone"`}
		return c
	}
	c.Text = fmt.Sprintf("Worker %s runs it for %s", e.Lease.Instance, span(f.at().Sub(since)))
	if f.around.Progress != "" {
		c.Text += ", " + f.around.Progress + " %"
		facts["progress"] = f.around.Progress
	}
	if f.around.ProgressMessage != "" {
		c.Text += fmt.Sprintf(" %q", f.around.ProgressMessage)
	}
	c.Text += fmt.Sprintf("; its lease runs for another %s.", span(left))
	return c
}

// blame adds whether any process runs the background job.
func (f *facts) blame(c *Cause, job string, overdue time.Duration) {
	if f.holds(job) {
		c.Text += " A process does the job " + job + "; it should happen within seconds."
		c.Certain = overdue > late
	} else {
		c.Text += " No background work runs: start a worker, or a reconciler."
	}
	c.Do = append(c.Do, "ff job list")
}

// locked names the session with a lock on the row of the execution.
func (f *facts) locked() []Cause {
	if f.around.LockedBy == 0 {
		return nil
	}
	c := Cause{Code: Locked, Facts: map[string]string{"pid": strconv.Itoa(int(f.around.LockedBy))}}
	name := f.around.LockedByName
	if name != "" {
		c.Facts["application"], name = name, name+", "
	}
	transaction := "in a transaction"
	if ms := f.around.LockedForMs; ms >= 0 { // negative without the rights to see the age
		age := time.Duration(ms) * time.Millisecond
		transaction += " for " + span(age)
		c.Since, c.Certain = f.at().Add(-age), min(age, f.at().Sub(f.execution.LastMutationAt)) > late
	}
	holds := fmt.Sprintf("Session %d (%s%s) holds its row", f.around.LockedBy, name, transaction)
	if n := int(f.around.LockSharers); n > 0 {
		c.Certain = false
		c.Facts["sharers"] = strconv.Itoa(n)
		holds = fmt.Sprintf("Session %d (%s%s) probably shares a lock on its row", f.around.LockedBy, name, transaction)
		if n > 1 {
			holds += " with " + count(n-1, "other session")
		}
	}
	c.Text = holds + "; workers pass over it until then."
	c.Do = []string{fmt.Sprintf(`psql -c "SELECT pg_cancel_backend(%d)"`, f.around.LockedBy)}
	return []Cause{c}
}

// lane reports a pause of the lane, which stops all its executions.
func (f *facts) lane() []Cause {
	if f.around.PausedAtMs == 0 {
		return nil
	}
	since := time.UnixMilli(f.around.PausedAtMs)
	c := Cause{
		Code: LanePaused, Since: since, Certain: true, Facts: map[string]string{"lane": string(f.execution.Lane), "reason": f.around.PauseReason},
		Do: []string{"ff lane resume " + quoted(string(f.execution.Lane))},
	}
	paused := span(f.at().Sub(since))
	if f.around.PausedUntilMs != 0 {
		c.Until = time.UnixMilli(f.around.PausedUntilMs)
		paused = "another " + span(c.Until.Sub(f.at()))
	}
	c.Text = fmt.Sprintf("Lane %s is paused for %s%s.", f.execution.Lane, paused, because(f.around.PauseReason))
	return []Cause{c}
}

// blocked reports a block by an operator, for want of a capable worker, or with the lane.
func (f *facts) blocked() Cause {
	e := f.execution
	since := core.OptionalTime(&f.around.BlockedAtMs)
	if f.around.BlockedAtMs == 0 {
		since = e.LastMutationAt
	}
	c := Cause{Since: since, Certain: true, Do: []string{"ff execution unblock " + e.ID.Short()}, Facts: map[string]string{"reason": e.BlockingDetail}}
	ago := span(f.at().Sub(since)) + " ago"
	switch e.State.Eligibility {
	case state.BlockedByRoute:
		c.Code, c.Text = BlockedRoute, fmt.Sprintf("It was set aside %s because no worker had its capabilities%s.", ago, because(e.BlockingDetail))
	case state.BlockedByLaneState:
		c.Code, c.Text = BlockedLane, fmt.Sprintf("It was blocked with its lane %s%s.", ago, because(e.BlockingDetail))
	default:
		c.Code, c.Text = BlockedOperator, fmt.Sprintf("An operator blocked it %s%s.", ago, because(e.BlockingDetail))
	}
	return c
}
