package contender

import (
	"errors"
	"strings"
)

var errLeaseLost = errors.New("a lease was lost")

// rawFields is the document the engine stores for an execution without optional fields.
const rawFields = `{"namespace":"default","execution_kind":"noop","creator_identity":"","tags":{},"total_attempt_count":"0"}`

// rawFieldsOf returns the document of a job with a tag, or of another kind.
func rawFieldsOf(job Job) string {
	tags := "{}"
	if job.Tag != "" {
		tags = `{"bench.tag":"` + job.Tag + `"}`
	}
	return `{"namespace":"default","execution_kind":"` + variantKinds[job.Variant] + `","creator_identity":"","tags":` + tags + `,"total_attempt_count":"0"}`
}

// rawInsertOwn is rawInsert with a document for each row.
var rawInsertOwn = strings.NewReplacer(
	"'"+rawFields+"'", "i.document::jsonb", "$4::text[])", "$4::text[], $5::text[])", "capabilities)", "capabilities, document)",
).Replace(rawInsert)

// rawColumns are the columns an insert sets.
var rawColumns = []string{
	"partition_key", "execution_id", "lane_id", "required_capabilities", "lifecycle_phase", "ownership_state",
	"eligibility_state", "public_state", "attempt_state", "blocking_reason", "priority", "created_at_ms", "payload",
	"raw_fields", "ffx_last_mutation_at_ms", "ffx_attempt_count", "ffx_retry_count", "ffx_lease_epoch",
	"ffx_execution_deadline_ms",
}

const (
	rawNow = `clock as materialized (select (extract(epoch from clock_timestamp()) * 1000)::bigint as now_ms)`

	rawInsert = `
with ` + rawNow + `
insert into ff_exec_core (
	partition_key, execution_id, lane_id, required_capabilities, lifecycle_phase, ownership_state,
	eligibility_state, public_state, attempt_state, blocking_reason, priority, created_at_ms, payload,
	raw_fields, ffx_last_mutation_at_ms, ffx_attempt_count, ffx_retry_count, ffx_lease_epoch,
	ffx_execution_deadline_ms
)
select
	0, i.id, 'default', string_to_array(i.capabilities, ','), 'runnable', 'unowned',
	'eligible_now', 'waiting', 'pending_first_attempt', 'waiting_for_worker', i.priority, clock.now_ms, i.payload,
	'` + rawFields + `', clock.now_ms, 0, 0, 0,
	0
from clock, unnest($1::uuid[], $2::integer[], $3::bytea[], $4::text[]) as i(id, priority, payload, capabilities)`

	rawClaimHead  = rawClaimFrom + rawClaim
	rawClaimAfter = rawClaimFrom + `and r.rank = -$5::bigint and (r.created_at_ms, r.execution_id) > ($6, $7)` + rawClaim

	rawClaimFrom = `
with ` + rawNow + `,
found as (
	select e.ctid as row_id, r.ctid as hint_id
	from ffx_ready as r
	join ff_exec_core as e on e.partition_key = r.partition_key and e.execution_id = r.execution_id
	where r.lane_id = 'default' and r.required_capabilities <@ '{}'::text[]
		and e.lifecycle_phase = 'runnable' and e.eligibility_state = 'eligible_now' `

	rawClaim = `
	order by r.rank, r.created_at_ms, r.execution_id
	limit $1
	for no key update of e skip locked
),
claimed as (
	update ff_exec_core as e
	set
		raw_fields = e.raw_fields, -- as ours
		lifecycle_phase = 'active',
		ownership_state = 'leased',
		eligibility_state = 'not_applicable',
		public_state = 'running',
		attempt_state = 'running_attempt',
		blocking_reason = null,
		started_at_ms = coalesce(e.started_at_ms, (select now_ms from clock)),
		ffx_attempt_count = e.ffx_attempt_count + 1,
		ffx_lease_epoch = e.ffx_lease_epoch + 1,
		ffx_last_mutation_at_ms = (select now_ms from clock)
	from found
	where e.ctid = found.row_id
	returning e.partition_key, e.execution_id, e.attempt_index, e.ffx_lease_epoch, e.priority, e.created_at_ms,
		e.payload, e.ffx_namespace, found.hint_id
),
dequeued as (
	-- offset 0 keeps the payload out of the row the delete joins, which would be read once more for it
	delete from ffx_ready as r using (select hint_id from claimed offset 0) as c where r.ctid = c.hint_id
),
numbered as (
	select row_number() over () as n, c.* from claimed as c
),
attempts as (
	insert into ff_attempt (
		partition_key, execution_id, attempt_index, worker_id, worker_instance_id, lease_epoch, lease_expires_at_ms,
		started_at_ms, ffx_attempt_type, ffx_attempt_id, ffx_lease_id
	)
	select
		c.partition_key, c.execution_id, c.attempt_index, 'bench', 'bench', c.ffx_lease_epoch,
		(select now_ms from clock) + $4, (select now_ms from clock), 'initial', ($2::uuid[])[c.n], ($3::uuid[])[c.n]
	from numbered as c
),
timer as (
	insert into ffx_lease_timer (due_at_ms, timer_id, partition_keys, execution_ids, attempt_indexes)
	select
		(select now_ms from clock) + $4, ($3::uuid[])[1], array_agg(c.partition_key), array_agg(c.execution_id),
		array_agg(c.attempt_index)
	from numbered as c
	having count(*) > 0
),
history as (
	insert into ff_lease_event (
		execution_id, lease_id, event_type, occurred_at_ms, partition_key, namespace, ffx_worker_instance_id
	)
	select
		c.execution_id::text, (($3::uuid[])[c.n])::text, 'acquired', (select now_ms from clock), c.partition_key,
		c.ffx_namespace, 'bench'
	from numbered as c
)
select
	c.partition_key, c.execution_id, c.attempt_index, c.ffx_lease_epoch, ($3::uuid[])[c.n], c.priority,
	c.created_at_ms, c.payload
from numbered as c`

	rawInput = `
with ` + rawNow + `,
input as (
	select *
	from unnest($1::smallint[], $2::uuid[], $3::integer[], $4::bigint[], $5::uuid[])
		as i(partition_key, execution_id, attempt_index, lease_epoch, lease_id)
),`

	rawComplete = rawInput + `
completed as (
	update ff_exec_core as e
	set
		raw_fields = e.raw_fields, -- as ours
		lifecycle_phase = 'terminal',
		ownership_state = 'unowned',
		eligibility_state = 'not_applicable',
		public_state = 'completed',
		attempt_state = 'attempt_terminal',
		terminal_at_ms = (select now_ms from clock),
		ffx_last_mutation_at_ms = (select now_ms from clock)
	from input as i
	where e.partition_key = i.partition_key and e.execution_id = i.execution_id
		and (e.lifecycle_phase = 'active') is true
		and (e.ffx_lease_epoch = i.lease_epoch) is true
	returning i.lease_id, e.partition_key, e.execution_id, i.attempt_index, i.lease_epoch, e.ffx_namespace
),
ended as (
	update ff_attempt as a
	set outcome = 'success', terminal_at_ms = (select now_ms from clock), lease_expires_at_ms = null
	from completed as c
	where a.partition_key = c.partition_key and a.execution_id = c.execution_id and a.attempt_index = c.attempt_index
		and (a.lease_epoch = c.lease_epoch) is true
		and (a.lease_expires_at_ms > (select now_ms from clock)) is true
	returning a.partition_key, a.execution_id, c.lease_id, c.ffx_namespace
),
history as (
	insert into ff_lease_event (
		execution_id, lease_id, event_type, occurred_at_ms, partition_key, namespace, ffx_worker_instance_id,
		ffx_revoked_by
	)
	select
		e.execution_id::text, e.lease_id::text, 'revoked', (select now_ms from clock), e.partition_key,
		e.ffx_namespace, 'bench', 'backend'
	from ended as e
)
insert into ff_completion_event (
	partition_key, execution_id, outcome, namespace, occurred_at_ms, dispatched_at_ms
)
select
	e.partition_key, e.execution_id, 'success', e.ffx_namespace, (select now_ms from clock),
	(select now_ms from clock)
from ended as e`

	rawRenew = rawInput + `
renewed as (
	update ff_attempt as a
	set lease_expires_at_ms = (select now_ms from clock) + $6
	from input as i
	where a.partition_key = i.partition_key and a.execution_id = i.execution_id and a.attempt_index = i.attempt_index
		and (a.lease_epoch = i.lease_epoch) is true
		and (a.lease_expires_at_ms > (select now_ms from clock)) is true
	returning a.partition_key, a.execution_id, i.lease_id
)
insert into ff_lease_event (
	execution_id, lease_id, event_type, occurred_at_ms, partition_key, namespace, ffx_worker_instance_id
)
select
	r.execution_id::text, r.lease_id::text, 'renewed', (select now_ms from clock), r.partition_key, 'default', 'bench'
from renewed as r`
)
