package contender

import (
	"context"
	"time"
)

// rawSteps stores a step of each of several held jobs, under their fences.
const rawSteps = `
with ` + rawNow + `,
held as (
	select i.*
	from unnest($1::smallint[], $2::uuid[], $3::integer[], $4::bigint[])
		as i(partition_key, execution_id, attempt_index, lease_epoch)
	cross join lateral (
		select from ff_attempt as a
		where a.partition_key = i.partition_key and a.execution_id = i.execution_id and a.attempt_index = i.attempt_index
			and (a.lease_epoch = i.lease_epoch) is true
			and (a.lease_expires_at_ms > (select now_ms from clock)) is true
		for no key update
	) as a
)
insert into ffx_step (
	partition_key, execution_id, name, seq, attempt_index, outcome, result, error, tries, started_at_ms, ended_at_ms
)
select
	h.partition_key, h.execution_id, 'step/' || $5::integer, $5, h.attempt_index, 'success', $6::bytea, null, 1,
	(select now_ms from clock), (select now_ms from clock)
from held as h`

// rawStep stores a step of a job and nothing else.
const rawStep = `
insert into ffx_step (
	partition_key, execution_id, name, seq, attempt_index, outcome, result, error, tries, started_at_ms, ended_at_ms
)
values (0, $1, 'step/' || $2::integer, $2, 0, 'success', $3::bytea, null, 1, $4, $4)`

// Steps implements [Stepper]: all jobs that run at once store their steps together, and begin and end together.
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
		leases := rawLeases(held)[:4]
		for num := range steps {
			if err := r.exec(ctx, rawSteps, len(held), append(leases, num, []byte("1"))...); err != nil {
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
