package upkeep

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// A Job names an operation of [Upkeep] that one process runs at a time.
type Job string

// The jobs. The database knows when a job has work, except for [JobTrimOutboxes], [JobPurgeFlows], [JobRepairQueue],
// [JobRepairGroups], [JobSummariseFlows], [JobSweepWaits], [JobSweepWorkers], [JobPruneWorkerEvents],
// [JobForgetLimitKeys] and [JobForgetFairPlaces].
const (
	JobExpireLeases        Job = "expire_leases"
	JobPromoteDelayed      Job = "promote_delayed"
	JobExpireAttempts      Job = "expire_attempts"
	JobExpireDeadlines     Job = "expire_deadlines"
	JobExpireWaits         Job = "expire_waits"
	JobExpireWaitpoints    Job = "expire_waitpoints"
	JobResumeCallers       Job = "resume_callers"
	JobAdvanceSequences    Job = "advance_sequences"
	JobAdmitWaiting        Job = "admit_waiting"
	JobRunSchedules        Job = "run_schedules"
	JobPruneCreationKeys   Job = "prune_creation_keys"
	JobResetBudgets        Job = "reset_budgets"
	JobPruneUsageKeys      Job = "prune_usage_keys"
	JobReleaseReservations Job = "release_reservations"
	JobCancelOverBudget    Job = "cancel_over_budget"
	JobDispatchCompletions Job = "dispatch_completions"
	JobCancelFlows         Job = "cancel_flows"
	JobCancelSiblings      Job = "cancel_siblings"
	JobExpireGrants        Job = "expire_grants"
	JobUnblockRoutes       Job = "unblock_routes"
	JobRetain              Job = "retain"
	JobTrimOutboxes        Job = "trim_outboxes"
	JobPurgeFlows          Job = "purge_flows"
	JobRepairQueue         Job = "repair_queue"
	JobRepairGroups        Job = "repair_groups"
	JobSummariseFlows      Job = "summarise_flows"
	JobSweepWaits          Job = "sweep_waits"
	JobSweepWorkers        Job = "sweep_workers"
	JobPruneWorkerEvents   Job = "prune_worker_events"
	JobForgetLimitKeys     Job = "forget_limit_keys"
	JobForgetFairPlaces    Job = "forget_fair_places"
)

// JobSpec is the input of [Upkeep.TakeJobs]: a process and the wanted jobs.
type JobSpec struct {
	Holder id.WorkerInstanceID // identifies the process in every call, uniquely
	Hold   time.Duration       // how long other processes leave the jobs to Holder, at least 1 ms; 0: only ask, and take none
	Jobs   []Job
	Ends   []JobEnds   // news of Jobs, in the same order; nil: none
	Lanes  []id.LaneID // lanes to check for work
}

// JobEnds are the last ends of calls of a job since the last report; the zero value: none.
type JobEnds struct {
	Succeeded, Failed time.Time // by the clock of this process
	Err               error     // of the failed one
}

// maxJobError is the largest stored error of a job, in bytes.
const maxJobError = 1024

// JobsTaken is the result of [Upkeep.TakeJobs].
type JobsTaken struct {
	Now   time.Time // the database's time
	Jobs  map[Job]JobTaken
	Lanes []id.LaneID // the given lanes with queued work, possibly for other kinds or capabilities
}

// JobTaken is the result of [Upkeep.TakeJobs] for one job.
type JobTaken struct {
	Ours      bool      // the caller runs the job
	HeldUntil time.Time // if another process holds the job: the earliest time to take it
	Due       time.Time // when there is work, Now if overdue; zero if there is none or the database can't know
}

// TakeJobs extends a process's hold on its jobs, and takes jobs whose holders no longer extend theirs. The result shows
// which jobs have work and when, so that idle jobs issue no statements. TakeJobs also deletes lease timers whose leases
// this engine has all seen end.
//
// The hold only avoids duplicate work: every operation of [Upkeep] is safe in any number of processes, and may continue
// beyond the hold. If a job's row stays locked after the end of the hold, every process that asks runs the job.
//
// Errors: [fferr.ErrInvalidInput]; [fferr.ErrReadOnly]. Transaction: one statement without lock waits, planned each time; one
// more if there are lease timers to delete. Safe to repeat.
func (u *Upkeep) TakeJobs(ctx context.Context, spec JobSpec) (JobsTaken, error) {
	const op = "take jobs"
	if err := spec.Holder.Validate(); err != nil {
		return JobsTaken{}, core.Wrap(op, core.InvalidBecause("JobSpec.Holder", err))
	}
	if spec.Hold != 0 && spec.Hold < time.Millisecond {
		return JobsTaken{}, core.Wrap(op, core.Invalid("JobSpec.Hold", "is below 1ms"))
	}
	lanes, err := core.LaneTexts(spec.Lanes, "JobSpec.Lanes")
	if err != nil {
		return JobsTaken{}, core.Wrap(op, err)
	}
	if spec.Ends != nil && len(spec.Ends) != len(spec.Jobs) {
		return JobsTaken{}, core.Wrap(op, core.Invalid("JobSpec.Ends", "are not one for each job"))
	}
	for i, job := range spec.Jobs {
		if err := core.CheckText(fmt.Sprintf("JobSpec.Jobs[%d]", i), string(job), core.MaxKind); err != nil {
			return JobsTaken{}, core.Wrap(op, err)
		}
	}
	if err := u.c.ForgetLeaseTimers(ctx, op); err != nil {
		return JobsTaken{}, err
	}
	params := db.TakeJobsParams{
		Holder: string(spec.Holder), HoldMs: spec.Hold.Milliseconds(), LaneIDs: lanes, LookAfterMs: u.c.LookAfterMs(),
		NowMs: u.c.NowMs(), Names: make([]string, len(spec.Jobs)),
	}
	n := len(spec.Jobs)
	params.SucceededAgoMs, params.FailedAgoMs, params.Errors = make([]int64, n), make([]int64, n), make([]string, n)
	for i, job := range spec.Jobs {
		var ends JobEnds
		if spec.Ends != nil {
			ends = spec.Ends[i]
		}
		params.Names[i] = string(job)
		params.SucceededAgoMs[i], params.FailedAgoMs[i] = agoMs(ends.Succeeded), agoMs(ends.Failed)
		if ends.Err != nil {
			params.Errors[i] = storedError(ends.Err)
		}
	}
	rows, err := u.c.Q.TakeJobs(ctx, u.c.PlannedAnew(), params)
	if err != nil {
		return JobsTaken{}, core.Wrap(op, err)
	}
	taken := JobsTaken{Jobs: make(map[Job]JobTaken, len(rows))}
	for i, row := range rows {
		if i == 0 {
			taken.Now = time.UnixMilli(row.NowMs)
			taken.Lanes = core.IDsOfLanes(row.QueuedLanes)
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

// agoMs returns the milliseconds since an instant, -1 for the zero time.
func agoMs(at time.Time) int64 {
	if at.IsZero() {
		return -1
	}
	return max(time.Since(at).Milliseconds(), 0)
}

// storedError returns the text of an error as the database can store it.
func storedError(err error) string {
	text := strings.ReplaceAll(strings.ToValidUTF8(err.Error(), "?"), "\x00", "?")
	if len(text) > maxJobError {
		text = strings.ToValidUTF8(text[:maxJobError], "")
	}
	return text
}

// ReturnJobs releases all jobs of a process, for the next [Upkeep.TakeJobs] of another process.
//
// Errors: [fferr.ErrInvalidInput]. Transaction: one statement, without lock waits. Safe to repeat.
func (u *Upkeep) ReturnJobs(ctx context.Context, holder id.WorkerInstanceID) error {
	const op = "return jobs"
	if err := holder.Validate(); err != nil {
		return core.Wrap(op, core.InvalidBecause("holder", err))
	}
	return core.Wrap(op, u.c.Q.ReturnJobs(ctx, u.c.PlannedAnew(), string(holder)))
}

// Delayed returns a channel that receives a value after this engine has committed a transaction of its own that delayed
// an execution, for example by a retry. The execution may be due before the next check for delays. The channel buffers
// one value, and each value goes to one receiver.
func (u *Upkeep) Delayed() <-chan struct{} { return u.c.Delayed }
