package retention

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/worker"
)

var noop = engine.Kind[struct{}, struct{}]{Name: "noop"}

// work runs a worker, including background work, until ctx ends, and counts finished executions.
func (b *bench) work(ctx context.Context, done *atomic.Int64) error {
	w, err := worker.New(b.eng, worker.Config{})
	if err != nil {
		return err
	}
	worker.Handle(w, noop, func(context.Context, worker.Job[struct{}]) (struct{}, error) {
		done.Add(1)
		return struct{}{}, nil
	})
	return w.Run(ctx)
}

func (b *bench) create(ctx context.Context, n int) error {
	for n > 0 {
		specs := make([]engine.ExecutionSpec, min(n, 1000))
		for i := range specs {
			specs[i] = engine.ExecutionSpec{Kind: noop.Name}
		}
		created, err := b.eng.CreateExecutions(ctx, specs)
		if err != nil {
			return err
		}
		for _, c := range created {
			if c.Err != nil {
				return c.Err
			}
		}
		n -= len(specs)
	}
	return nil
}

// steady works at a fixed rate and prints the sizes of tables.
func (b *bench) steady(ctx context.Context) error {
	b.printf("steady: %d executions/s for %v, retention one minute", b.rate, b.span)
	working, stop := context.WithCancel(ctx)
	defer stop()
	group, running := errgroup.WithContext(working)
	var done atomic.Int64
	group.Go(func() error { return b.work(running, &done) })
	p, stopProbe := b.newProbe(running)
	began := time.Now()
	group.Go(func() error { return b.atRate(running, began) })
	line := time.NewTicker(b.every)
	defer line.Stop()
	var err error
	for err == nil && time.Since(began) < b.span {
		select {
		case <-running.Done():
			err = context.Cause(running)
		case <-line.C:
			b.printf("%d done", done.Load())
			err = b.sizes(running, p, time.Since(began).Round(time.Second).String())
		}
	}
	stop()
	return errors.Join(err, stopProbe(), group.Wait())
}

// atRate creates executions in twenty batches a second, as many as are due since began.
func (b *bench) atRate(ctx context.Context, began time.Time) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	created := 0
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		due := int(time.Since(began).Seconds()*float64(b.rate)) - created
		if err := b.create(ctx, due); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		created += due
	}
}

// backlog deletes finished executions beside the probe's light load.
func (b *bench) backlog(ctx context.Context) error {
	b.printf("backlog: %d finished executions", b.n)
	began := time.Now()
	if err := b.seed(ctx); err != nil {
		return err
	}
	b.printf("seeded in %v", time.Since(began).Round(time.Second))
	p, stopProbe := b.newProbe(ctx)
	select {
	case <-ctx.Done():
	case <-time.After(b.every):
	}
	if err := b.sizes(ctx, p, "before"); err != nil {
		return errors.Join(err, stopProbe())
	}
	began = time.Now()
	group, running := errgroup.WithContext(ctx)
	var trimmed atomic.Int64
	retained := make(chan struct{})
	group.Go(func() error {
		defer close(retained)
		return b.exhaust(running, p, began)
	})
	if b.streams > 0 {
		group.Go(func() error {
			for {
				n, err := upkeep.Of(b.eng).TrimOutboxes(running, b.batch)
				trimmed.Add(int64(n))
				if err != nil && !errors.Is(err, fferr.ErrBusy) {
					return err
				}
				if n >= b.batch {
					continue
				}
				select {
				case <-retained:
					return nil
				case <-running.Done():
					return nil
				case <-time.After(time.Second):
				}
			}
		})
	}
	err := group.Wait()
	took := time.Since(began)
	b.printf("all of it, outboxes included, in %v; %d events trimmed", took.Round(time.Second), trimmed.Load())
	err = errors.Join(err, b.sizes(context.WithoutCancel(ctx), p, "after"))
	return errors.Join(err, stopProbe())
}

// exhaust calls Retain until nothing is due.
func (b *bench) exhaust(ctx context.Context, p *probe, began time.Time) error {
	deleted, line, last := 0, time.Now(), 0
	for {
		n, err := upkeep.Of(b.eng).Retain(ctx, b.batch)
		if err != nil {
			return err
		}
		deleted += n
		if since := time.Since(line); since >= b.every || n < b.batch {
			count, p50, p99 := p.read()
			b.printf("%v: %d looked at, %.0f a second now; claim p50 %.1f ms, p99 %.1f ms (%d claims)",
				time.Since(began).Round(time.Second), deleted, float64(deleted-last)/since.Seconds(), p50, p99, count)
			line, last = time.Now(), deleted
		}
		if n < b.batch {
			b.printf("retention: %d in %v, %.0f executions/s", deleted, time.Since(began).Round(time.Second), float64(deleted)/time.Since(began).Seconds())
			return nil
		}
	}
}

// seed creates executions completed two minutes ago, with attempts and events like a worker's.
func (b *bench) seed(ctx context.Context) error {
	if err := b.create(ctx, 1); err != nil {
		return err
	}
	working, stop := context.WithCancel(ctx)
	var done atomic.Int64
	finished := make(chan error, 1)
	go func() { finished <- b.work(working, &done) }()
	for ended := 0; ended == 0; {
		if err := b.pool.QueryRow(ctx, "select count(*) from ff_exec_core where lifecycle_phase = 'terminal'").Scan(&ended); err != nil {
			stop()
			return errors.Join(err, <-finished)
		}
	}
	stop()
	if err := <-finished; err != nil {
		return err
	}
	const part = 500_000
	for from := 0; from < b.n; from += part {
		for _, statement := range seeding {
			if _, err := b.pool.Exec(ctx, statement, from, min(from+part, b.n)-1); err != nil {
				return err
			}
		}
	}
	for _, statement := range []string{
		"update ff_exec_core set terminal_at_ms = terminal_at_ms - 120000 where public_state = 'completed' and terminal_at_ms > created_at_ms - 120000",
		"update ff_completion_event set committed_at_ms = committed_at_ms - 120000 where committed_at_ms > ffx_now_ms(null) - 60000",
		"update ff_lease_event set occurred_at_ms = occurred_at_ms - 120000 where occurred_at_ms > ffx_now_ms(null) - 60000",
		"vacuum analyze", "checkpoint",
	} {
		if _, err := b.pool.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// seeding multiplies the one execution. Its id becomes a time and a number, so ids rise with creation.
var seeding = []string{
	`
	insert into ff_exec_core (partition_key, execution_id, lane_id, attempt_index, lifecycle_phase, ownership_state, eligibility_state,
		public_state, attempt_state, priority, created_at_ms, terminal_at_ms, payload, result, policy, raw_fields, started_at_ms,
		ffx_last_mutation_at_ms, ffx_attempt_count, ffx_retry_count, ffx_lease_epoch, ffx_execution_deadline_ms)
	select partition_key, uuid_in(overlay('00000000-0000-7000-8000-' || lpad(to_hex(copy), 12, '0') placing lpad(to_hex(copy / 1000), 8, '0') from 1)::cstring), lane_id, attempt_index, lifecycle_phase, ownership_state, eligibility_state,
		public_state, attempt_state, priority, created_at_ms - 120000, terminal_at_ms - 120000, payload, result, policy, raw_fields, started_at_ms,
		ffx_last_mutation_at_ms, ffx_attempt_count, ffx_retry_count, ffx_lease_epoch, ffx_execution_deadline_ms
	from (select * from ff_exec_core where public_state = 'completed' order by created_at_ms desc, execution_id desc limit 1) as one, generate_series($1::bigint, $2::bigint) as copy`, `
	insert into ff_attempt (partition_key, execution_id, attempt_index, worker_id, worker_instance_id, lease_epoch, started_at_ms,
		terminal_at_ms, outcome, raw_fields, ffx_attempt_type, ffx_attempt_id, ffx_lease_id)
	select e.partition_key, e.execution_id, 0, 'seed', 'seed', 1, e.started_at_ms, e.terminal_at_ms, 'success', '{}', 'initial', e.execution_id, e.execution_id
	from (select generate_series($1::bigint, $2::bigint) as copy) as g
	join ff_exec_core as e on e.execution_id = uuid_in(overlay('00000000-0000-7000-8000-' || lpad(to_hex(copy), 12, '0') placing lpad(to_hex(copy / 1000), 8, '0') from 1)::cstring)`, `
	insert into ff_completion_event (partition_key, execution_id, outcome, namespace, occurred_at_ms, committed_at_ms, dispatched_at_ms)
	select partition_key, execution_id, 'success', 'default', terminal_at_ms, terminal_at_ms, terminal_at_ms
	from ff_attempt
	where worker_id = 'seed' and execution_id between
		uuid_in(overlay('00000000-0000-7000-8000-' || lpad(to_hex($1::bigint), 12, '0') placing lpad(to_hex($1::bigint / 1000), 8, '0') from 1)::cstring)
		and uuid_in(overlay('00000000-0000-7000-8000-' || lpad(to_hex($2::bigint), 12, '0') placing lpad(to_hex($2::bigint / 1000), 8, '0') from 1)::cstring)
	order by execution_id`, `
	insert into ff_lease_event (execution_id, lease_id, event_type, occurred_at_ms, partition_key, namespace, ffx_worker_instance_id)
	select execution_id::text, execution_id::text, kind, terminal_at_ms, partition_key, 'default', 'seed'
	from ff_attempt, unnest(array['acquired', 'revoked']) as kind
	where worker_id = 'seed' and execution_id between
		uuid_in(overlay('00000000-0000-7000-8000-' || lpad(to_hex($1::bigint), 12, '0') placing lpad(to_hex($1::bigint / 1000), 8, '0') from 1)::cstring)
		and uuid_in(overlay('00000000-0000-7000-8000-' || lpad(to_hex($2::bigint), 12, '0') placing lpad(to_hex($2::bigint / 1000), 8, '0') from 1)::cstring)
	order by execution_id`,
}

// burndown processes executions as fast as it can, with a retention of one minute, until all are deleted.
func (b *bench) burndown(ctx context.Context) error {
	b.printf("burndown: %d executions, inserted as they are worked off, retention one minute", b.n)
	working, stop := context.WithCancel(ctx)
	defer stop()
	group, running := errgroup.WithContext(working)
	var done atomic.Int64
	group.Go(func() error { return b.work(running, &done) })
	group.Go(func() error {
		for created := 0; created < b.n; {
			if int64(created)-done.Load() > 100_000 {
				select {
				case <-running.Done():
					return nil
				case <-time.After(time.Millisecond):
				}
				continue
			}
			if err := b.create(running, 1000); err != nil {
				if running.Err() != nil {
					return nil
				}
				return err
			}
			created += 1000
		}
		return nil
	})
	p, stopProbe := b.newProbe(running)
	began, last := time.Now(), int64(0)
	line := time.NewTicker(b.every)
	defer line.Stop()
	var err error
	for deleted := int64(0); err == nil && deleted < int64(b.n); {
		select {
		case <-running.Done():
			err = context.Cause(running)
		case <-line.C:
			b.printf("%d done, %.0f a second", done.Load(), float64(done.Load()-last)/b.every.Seconds())
			last = done.Load()
			if err = b.sizes(running, p, time.Since(began).Round(time.Second).String()); err == nil {
				var status operator.RetentionStatus
				status, err = operator.Retention(running, b.eng)
				deleted = status.Deleted
			}
		}
	}
	stop()
	return errors.Join(err, stopProbe(), group.Wait())
}
