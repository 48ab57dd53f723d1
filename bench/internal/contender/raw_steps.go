package contender

import (
	"context"
	"strconv"
	"time"
)

// rawSteps stores a step of each of several held jobs, under their fences.
const rawSteps = `
with ` + rawNow + `,
held as (
	select i.*
	from unnest(
		$1::smallint[], $2::uuid[], $3::integer[], $4::bigint[], $5::text[], $6::integer[], $7::bytea[], $8::integer[],
		$9::bigint[]
	) as i(partition_key, execution_id, attempt_index, lease_epoch, name, seq, result, tries, took_ms)
	join ff_exec_core as e on e.partition_key = i.partition_key and e.execution_id = i.execution_id
		and (e.lifecycle_phase = 'active') is true
		and (e.ownership_state = 'leased' and e.attempt_index = i.attempt_index) is true
	cross join lateral (
		select from ff_attempt as a
		where a.partition_key = i.partition_key and a.execution_id = i.execution_id and a.attempt_index = i.attempt_index
			and (a.lease_epoch = i.lease_epoch) is true
			and (a.lease_expires_at_ms > (select now_ms from clock)) is true
		for no key update
	) as a
)
insert into ffx_step (
	partition_key, execution_id, name, form, seq, attempt_index, outcome, result, error, tries, started_at_ms, ended_at_ms
)
select
	h.partition_key, h.execution_id, h.name, 'step', h.seq, h.attempt_index, 'success', h.result, null, h.tries,
	(select now_ms from clock) - h.took_ms, (select now_ms from clock)
from held as h`

// storeSteps stores the step of a number for each of several jobs, whose leases are input columns.
func (r *Raw) storeSteps(ctx context.Context, leases []any, jobs, num int) error {
	names, seqs, results := make([]string, jobs), make([]int32, jobs), make([][]byte, jobs)
	tries, tooks := make([]int32, jobs), make([]int64, jobs)
	for i := range names {
		names[i], seqs[i], results[i], tries[i] = "step/"+strconv.Itoa(num), int32(num), strconv.AppendInt(nil, int64(num), 10), 1
	}
	return r.exec(ctx, rawSteps, jobs, append(leases[:4:4], names, seqs, results, tries, tooks)...)
}

// rawStep stores a step of a job and nothing else.
const rawStep = `
insert into ffx_step (
	partition_key, execution_id, name, form, seq, attempt_index, outcome, result, error, tries, started_at_ms, ended_at_ms
)
values (0, $1, 'step/' || $2::integer, 'step', $2, 0, 'success', $3::bytea, null, 1, $4, $4)`

// Steps implements [Stepper]: all jobs running at once store steps together, and begin and end together.
func (r *Raw) Steps(ctx context.Context, n, steps, atOnce int) (time.Duration, error) {
	began := time.Now()
	for from := 0; from < n; from += rawCopyFrom {
		jobs := make([]Job, min(rawCopyFrom, n-from))
		if err := r.Insert(ctx, jobs); err != nil {
			return 0, err
		}
	}
	c := &rawClaimer{Raw: r}
	var held []rawClaimed
	for done := 0; done < n; done += len(held) {
		var err error
		if len(held) == 0 {
			held, err = c.claim(ctx, atOnce)
		} else {
			held, err = c.completeAndClaim(ctx, held, atOnce)
		}
		if err != nil {
			return 0, err
		}
		leases := rawLeases(held)
		for num := range steps {
			if err := r.storeSteps(ctx, leases, len(held), num); err != nil {
				return 0, err
			}
		}
	}
	err := r.complete(ctx, held)
	return time.Since(began), err
}

// LoneSteps implements [Stepper]: each step is a plain INSERT.
func (r *Raw) LoneSteps(ctx context.Context, n int) ([]time.Duration, error) {
	job, err := newRawID()
	if err != nil {
		return nil, err
	}
	took := make([]time.Duration, n)
	for num := range took {
		began := time.Now()
		if _, err := r.pool.Exec(ctx, rawStep, job, num, []byte("1"), began.UnixMilli()); err != nil {
			return nil, err
		}
		took[num] = time.Since(began)
	}
	return took, nil
}

// Turns implements [Turner]: each is a transaction with the user's write alone.
func (r *Raw) Turns(ctx context.Context, n int) ([]time.Duration, error) {
	if _, err := r.pool.Exec(ctx, usersTable); err != nil {
		return nil, err
	}
	took := make([]time.Duration, n)
	for num := range took {
		began := time.Now()
		tx, err := r.pool.Begin(ctx)
		if err != nil {
			return nil, err
		}
		if err := userWrite(ctx, tx, num); err != nil {
			return nil, err
		}
		if err := tx.Commit(ctx); err != nil {
			return nil, err
		}
		took[num] = time.Since(began)
	}
	return took, nil
}

// StepBatches implements [StepBatcher].
func (r *Raw) StepBatches(ctx context.Context, size, n int) (time.Duration, error) {
	if err := r.Insert(ctx, make([]Job, size)); err != nil {
		return 0, err
	}
	held, err := (&rawClaimer{Raw: r}).claim(ctx, size)
	if err != nil {
		return 0, err
	}
	leases := rawLeases(held)
	began := time.Now()
	for num := range n {
		if err := r.storeSteps(ctx, leases, len(held), num); err != nil {
			return 0, err
		}
	}
	return time.Since(began), nil
}
