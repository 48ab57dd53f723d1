package contender

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/schema"
)

// store is a database with the library's tables.
type store struct {
	pool         *pgxpool.Pool
	leases, ends bool   // which events are stored
	note         string // the difference from the usual; empty if none
}

func newStore(ctx context.Context, databaseURL string, connections int, settings map[string]string) (*store, error) {
	if _, err := schema.Migrate(ctx, databaseURL, schema.Options{Log: slog.New(slog.DiscardHandler)}); err != nil {
		return nil, err
	}
	pool, err := newPool(ctx, databaseURL, connections, settings)
	if err != nil {
		return nil, err
	}
	return &store{pool: pool, leases: true, ends: true}, nil
}

// forget makes the server skip the statements' inserts into lease history and outbox. An insert into the history becomes
// an insert of no rows, which the planner skips. The outbox's insert has a condition, so a trigger drops each row
// there, in less than a microsecond.
func (s *store) forget(ctx context.Context) error {
	s.leases, s.ends, s.note = false, false, "lease history and outbox left out"
	_, err := s.pool.Exec(ctx, `
		create table nothing (partition_key integer);
		create rule forget as on insert to ff_lease_event
			do instead insert into nothing select new.partition_key where false;
		create function forget() returns trigger language plpgsql as 'begin return null; end';
		create trigger forget before insert on ff_completion_event for each row execute function forget()`)
	return err
}

func (s *store) Pool() *pgxpool.Pool { return s.pool }

func (s *store) Reset(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, `
		truncate ff_exec_core, ffx_ready, ff_attempt, ffx_lease_timer, ff_lease_event, ff_completion_event,
			ff_suspension_current, ff_waitpoint_pending, ff_signal_event, ffx_signal_key, ff_flow_core, ff_edge, ff_edge_group, ffx_create_dedup, ffx_unique, ffx_step, ffx_schedule,
			ffx_sequence, ffx_sequence_member, ffx_sequence_end, ffx_gate, ffx_gate_use, ffx_waiting, ffx_fair_place,
			ff_stream_frame, ff_stream_summary, ff_stream_meta;
		alter table ff_exec_core reset (autovacuum_enabled)`)
	return err
}

func (s *store) Check(ctx context.Context, ended int) error {
	var executions, attempts, acquired, revoked, completions int
	err := s.pool.QueryRow(ctx, `
		select
			(select count(*) from ff_exec_core where public_state = 'completed'),
			(select count(*) from ff_attempt where outcome = 'success'),
			(select count(*) from ff_lease_event where event_type = 'acquired'),
			(select count(*) from ff_lease_event where event_type = 'revoked'),
			(select count(*) from ff_completion_event where outcome = 'success')`,
	).Scan(&executions, &attempts, &acquired, &revoked, &completions)
	if err != nil {
		return err
	}
	leases, ends := 0, 0
	if s.leases {
		leases = ended
	}
	if s.ends {
		ends = ended
	}
	for _, row := range []struct {
		what      string
		got, want int
	}{
		{"executions completed", executions, ended},
		{"attempts that succeeded", attempts, ended},
		{"leases acquired", acquired, leases},
		{"leases given back", revoked, leases},
		{"completion events", completions, ends},
	} {
		if row.got != row.want {
			return fmt.Errorf("%d %s, want %d", row.got, row.what, row.want)
		}
	}
	return nil
}

// multiply makes n claimable executions from the existing one. The rows stay unvacuumed; see Bury.
func (s *store) multiply(ctx context.Context, n int) error {
	if _, err := s.pool.Exec(ctx, "alter table ff_exec_core set (autovacuum_enabled = off)"); err != nil {
		return err
	}
	return multiply(ctx, s.pool, "ff_exec_core", n, map[string]string{
		"execution_id":  "gen_random_uuid()",
		"created_at_ms": "created_at_ms + copy / 100",
	})
}

func (s *store) Bury(ctx context.Context, n int) error {
	_, err := s.pool.Exec(ctx, `
		update ff_exec_core as e
		set
			lifecycle_phase = 'terminal',
			eligibility_state = 'not_applicable',
			public_state = 'completed',
			attempt_state = 'attempt_terminal',
			blocking_reason = null,
			terminal_at_ms = created_at_ms
		from (
			select ctid as row_id
			from ff_exec_core
			where lifecycle_phase = 'runnable' and eligibility_state = 'eligible_now'
			order by priority desc, created_at_ms, execution_id
			limit $1
		) as head
		where e.ctid = head.row_id`, n)
	return err
}

// multiply makes n rows from a table's single row. instead has expressions for differing columns, over the first row
// and copy, which counts from 1. An empty expression means the column's default.
func multiply(ctx context.Context, pool *pgxpool.Pool, table string, n int, instead map[string]string) error {
	var columns, values []string
	rows, err := pool.Query(ctx, `
		select attname
		from pg_attribute
		where attrelid = $1::regclass and attnum > 0 and not attisdropped and attgenerated = ''`, table)
	if err != nil {
		return err
	}
	var column string
	if _, err := pgx.ForEachRow(rows, []any{&column}, func() error {
		value, differs := instead[column]
		switch {
		case !differs:
			value = column
		case value == "":
			return nil
		}
		columns = append(columns, column)
		values = append(values, value)
		return nil
	}); err != nil {
		return err
	}
	_, err = pool.Exec(ctx, fmt.Sprintf("insert into %[1]s (%[2]s) select %[3]s from %[1]s, generate_series(1, $1::bigint) as copy",
		table, strings.Join(columns, ", "), strings.Join(values, ", ")), n-1)
	return err
}
