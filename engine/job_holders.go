package engine

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
)

// A Job is one of the operations of [Maintenance], by the name under which one process at a time does it.
type Job string

// The jobs. Of all but [JobTrimOutboxes], [JobPurgeFlows], [JobRepairQueue], [JobRepairGroups] and [JobSummariseFlows] the
// database can tell when there is something to do.
const (
	JobExpireLeases        Job = "expire_leases"
	JobPromoteDelayed      Job = "promote_delayed"
	JobExpireAttempts      Job = "expire_attempts"
	JobExpireDeadlines     Job = "expire_deadlines"
	JobPruneCreationKeys   Job = "prune_creation_keys"
	JobDispatchCompletions Job = "dispatch_completions"
	JobCancelFlows         Job = "cancel_flows"
	JobCancelSiblings      Job = "cancel_siblings"
	JobAdopt               Job = "adopt"
	JobExpireGrants        Job = "expire_grants"
	JobUnblockRoutes       Job = "unblock_routes"
	JobRetain              Job = "retain"
	JobTrimOutboxes        Job = "trim_outboxes"
	JobPurgeFlows          Job = "purge_flows"
	JobRepairQueue         Job = "repair_queue"
	JobRepairGroups        Job = "repair_groups"
	JobSummariseFlows      Job = "summarise_flows"
)

// JobSpec says for whom [Maintenance.TakeJobs] takes which jobs.
type JobSpec struct {
	Holder id.WorkerInstanceID // the process: the same in each call, and no other's
	Hold   time.Duration       // how long others leave the jobs to it, from 1 ms
	Jobs   []Job
	Lanes  []id.LaneID // those of which it wants to know whether they have work
}

// JobsTaken is the answer of [Maintenance.TakeJobs].
type JobsTaken struct {
	Now   time.Time // the database's
	Jobs  map[Job]JobTaken
	Lanes []id.LaneID // those asked for that have work queued, if not for everybody
}

// JobTaken is what [Maintenance.TakeJobs] says of one job.
type JobTaken struct {
	Ours      bool      // the holder is to do it
	HeldUntil time.Time // where it is not the holder's: when it may be
	Due       time.Time // when there is something to do, now if it is past; zero: there is nothing, or nobody can tell
}

// TakeJobs keeps the jobs that a process has for so much longer, takes for it those whose holder has fallen silent, and
// tells which of them have something to do, and when: so that jobs without work issue no statement. It also deletes the
// lease timers of which this engine has seen all leases end.
//
// Who holds a job decides nothing but who does it: every operation of [Maintenance] is safe in any number of processes,
// also beside another holder, and one that takes longer than its hold may go on. Where a row is locked by somebody else
// and its hold is over, every process that asks does the job.
//
// Errors: [ErrInvalidInput]; [ErrReadOnly]. Transaction: one statement, which waits for nobody, planned anew each time;
// one more for lease timers, if there are any. Safe to repeat.
func (m Maintenance) TakeJobs(ctx context.Context, spec JobSpec) (JobsTaken, error) {
	const op = "take jobs"
	e := m.e
	if err := spec.Holder.Validate(); err != nil {
		return JobsTaken{}, wrap(op, invalidBecause("JobSpec.Holder", err))
	}
	if spec.Hold < time.Millisecond {
		return JobsTaken{}, wrap(op, invalid("JobSpec.Hold", "is below 1ms"))
	}
	lanes, err := laneTexts(spec.Lanes, "JobSpec.Lanes")
	if err != nil {
		return JobsTaken{}, wrap(op, err)
	}
	for i, job := range spec.Jobs {
		if err := checkText(fmt.Sprintf("JobSpec.Jobs[%d]", i), string(job), maxKind); err != nil {
			return JobsTaken{}, wrap(op, err)
		}
	}
	if err := e.forgetLeaseTimers(ctx, op); err != nil {
		return JobsTaken{}, err
	}
	params := db.TakeJobsParams{
		Holder: string(spec.Holder), HoldMs: spec.Hold.Milliseconds(), LaneIDs: lanes, LookAfterMs: e.lookAfterMs(),
		NowMs: e.nowMs(), Names: make([]string, len(spec.Jobs)),
	}
	for i, job := range spec.Jobs {
		params.Names[i] = string(job)
	}
	rows, err := e.q.TakeJobs(ctx, e.plannedAnew(), params)
	if err != nil {
		return JobsTaken{}, wrap(op, err)
	}
	taken := JobsTaken{Jobs: make(map[Job]JobTaken, len(rows))}
	for i, row := range rows {
		if i == 0 {
			taken.Now = time.UnixMilli(row.NowMs)
			taken.Lanes = idsOfLanes(row.QueuedLanes)
		}
		job := JobTaken{Ours: row.Ours}
		if !row.Ours {
			job.HeldUntil = time.UnixMilli(row.HeldUntilMs)
		}
		if row.DueAtMs != math.MaxInt64 {
			job.Due = time.UnixMilli(max(row.DueAtMs, row.NowMs))
		}
		taken.Jobs[Job(row.Name)] = job
	}
	return taken, nil
}

// ReturnJobs gives up all jobs that a process has, so that another takes them with its next [Maintenance.TakeJobs].
//
// Errors: [ErrInvalidInput]. Transaction: one statement, which waits for nobody. Safe to repeat.
func (m Maintenance) ReturnJobs(ctx context.Context, holder id.WorkerInstanceID) error {
	const op = "return jobs"
	if err := holder.Validate(); err != nil {
		return wrap(op, invalidBecause("holder", err))
	}
	return wrap(op, m.e.q.ReturnJobs(ctx, m.e.plannedAnew(), string(holder)))
}

// Delayed returns a channel that holds a value once this engine has committed a transaction of its own that delayed
// an execution, as a retry does: its time may come before anybody looks for delays. It holds one value at most, and each
// goes to one receiver.
func (m Maintenance) Delayed() <-chan struct{} { return m.e.delayed }

// QueuedLanes returns those of the given lanes that have work queued, if not for everybody: what a worker asks before it
// claims from lanes that nobody has told it of.
//
// Errors: [ErrInvalidInput]. Transaction: one statement; locks nothing.
func (e *Engine) QueuedLanes(ctx context.Context, lanes []id.LaneID) ([]id.LaneID, error) {
	const op = "list queued lanes"
	asked, err := laneTexts(lanes, "lanes")
	if err != nil {
		return nil, wrap(op, err)
	}
	queued, err := e.q.ListQueuedAmong(ctx, e.plannedAnew(), asked)
	return idsOfLanes(queued), wrap(op, err)
}

func laneTexts(lanes []id.LaneID, field string) ([]string, error) {
	texts := make([]string, len(lanes))
	for i, lane := range lanes {
		if err := lane.Validate(); err != nil {
			return nil, invalidBecause(fmt.Sprintf("%s[%d]", field, i), err)
		}
		texts[i] = string(lane)
	}
	return texts, nil
}

func idsOfLanes(texts []string) []id.LaneID {
	lanes := make([]id.LaneID, len(texts))
	for i, text := range texts {
		lanes[i] = id.LaneID(text)
	}
	return lanes
}

// plannedAnew is where statements run that a process issues all the time, whether there is work or not: one message
// each, without the settings of a transaction. Instead of these they are planned each time, for the tables as they are.
func (e *Engine) plannedAnew() db.DBTX {
	if e.tx != nil {
		return plannedAnew{e.tx}
	}
	return plannedAnew{e.runner.Plain()}
}

type plannedAnew struct{ db.DBTX }

func (c plannedAnew) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return c.DBTX.Query(ctx, sql, append([]any{pgx.QueryExecModeExec}, args...)...)
}
