package events

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// writers are calls that write events of an execution, waiting for others that are about to.
var writers = map[string]func(context.Context, *engine.Engine, engine.Lease) error{
	"complete": func(ctx context.Context, e *engine.Engine, l engine.Lease) error {
		return e.CompleteExecution(ctx, l, nil)
	},
	"fail": func(ctx context.Context, e *engine.Engine, l engine.Lease) error {
		_, err := e.FailExecution(ctx, l, engine.Failure{})
		return err
	},
	"delay": func(ctx context.Context, e *engine.Engine, l engine.Lease) error {
		return e.DelayExecution(ctx, l, fixture.Start)
	},
	"revoke": func(ctx context.Context, e *engine.Engine, l engine.Lease) error {
		_, err := operator.Revoke(ctx, e, operator.RevokeSpec{ID: l.Execution})
		return err
	},
	"cancel": func(ctx context.Context, e *engine.Engine, l engine.Lease) error {
		return e.CancelExecution(ctx, engine.CancelSpec{ID: l.Execution})
	},
	"replay": func(ctx context.Context, e *engine.Engine, l engine.Lease) error {
		_, err := operator.Replay(ctx, e, l.Execution, operator.ReplayCompleted)
		return err
	},
}

// The numbers of events are given before the commit, so that a later number may be committed first. Of one execution it
// may not: every event is written under the lock of its row, or, by a renewal, of its attempt's.
func TestEventsOfAnExecutionFollowCommitOrder_E45(t *testing.T) {
	for _, first := range []string{"renew", "complete", "fail", "delay", "revoke", "cancel"} {
		for second, write := range writers {
			t.Run(first+", then "+second, func(t *testing.T) {
				f := fixture.New(t)
				c := f.Start(t)
				late := f.Rival(t)
				tx := f.BeginTx(t)
				var err error
				if first == "renew" {
					_, err = f.WithTx(tx).RenewLease(t.Context(), c.Lease, 0)
				} else {
					err = writers[first](t.Context(), f.WithTx(tx), c.Lease)
				}
				if err != nil {
					t.Fatal(err)
				}
				wait := fixture.Async(t, func(ctx context.Context) error { return write(ctx, late.Engine, c.Lease) })
				late.AwaitBlocked(t, f)
				fixture.Commit(t, tx)
				before := numbered(t, f, c) // or a little later: events that the second one wrote by then are after it anyway
				if err := wait(); err != nil {
					t.Log(err) // a refusal writes nothing
				}
				after := numbered(t, f, c)
				for outbox, seen := range before {
					if now := after[outbox]; len(now) < len(seen) || !slices.Equal(now[:len(seen)], seen) {
						t.Errorf("a reader of events of %ss saw %q, then %q", outbox, seen, now)
					}
				}
			})
		}
	}
}

// numbered returns the events of each outbox, in the order of their numbers.
func numbered(t *testing.T, f *fixture.Fixture, c engine.Claimed) map[string][]string {
	t.Helper()
	type event struct{ Outbox, Text string }
	events := make(map[string][]string)
	for _, e := range fixture.All[event](t, f.Pool, `
		SELECT outbox, text FROM (
			SELECT event_id, 'lease' AS outbox, event_type AS text FROM ff_lease_event
			WHERE partition_key = $1 AND execution_id = ($2::uuid)::text
			UNION ALL
			SELECT event_id, 'end', outcome FROM ff_completion_event WHERE partition_key = $1 AND execution_id = $2
			UNION ALL
			SELECT event_id, 'call', event_type FROM ff_operator_event WHERE partition_key = $1 AND execution_id = ($2::uuid)::text
		) AS e ORDER BY event_id`, c.ID.Partition(), c.ID.UUID()) {
		events[e.Outbox] = append(events[e.Outbox], e.Text)
	}
	return events
}

// The reference reports every unique violation as a rotation that conflicts, and tries a lost lease again. Here an
// unexpected violation, for example of a caller's trigger, is reported as the server's, and not retried.
func TestForeignUniqueViolationsAreReported_E37_I47(t *testing.T) {
	f := fixture.NewCloned(t)
	c := f.Start(t)
	f.Exec(t, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		RAISE EXCEPTION 'one of these is enough' USING ERRCODE = 'unique_violation'; END $$`)
	f.Exec(t, "CREATE TRIGGER refuse BEFORE UPDATE ON ff_exec_core FOR EACH ROW EXECUTE FUNCTION refuse()")
	for call, do := range writers {
		if call == "replay" {
			continue
		}
		log := new(fixture.StatementLog)
		e := f.EngineOn(t, log.Open(t, f.Url), engine.Config{})
		var err error
		sent := log.During(func() { err = do(t.Context(), e, c.Lease) })
		if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != "23505" || !errors.Is(err, fferr.ErrTransport) ||
			errors.Is(err, fferr.ErrContention) {
			t.Errorf("%s: got %v, want the server's error", call, err)
		}
		counted := make(map[string]int)
		for _, name := range fixture.Names(sent) {
			if counted[name]++; counted[name] > 1 && !fixture.IsSettings(name) {
				t.Errorf("%s sends %s again", call, name)
			}
		}
	}
	f.WantState(t, c.ID, fixture.StateRunning)
}

// The reference's events of leases mostly name none, and always say that an operator took them.
func TestLeaseEventsNameTheLeaseAndItsHolder_I23(t *testing.T) {
	f := fixture.NewCloned(t)
	for _, c := range []struct {
		name, want string
		end        func(engine.Claimed) error
	}{
		{"its holder", "revoked by backend", func(c engine.Claimed) error { return writers["complete"](t.Context(), f.Engine, c.Lease) }},
		{"its holder, for later", "revoked by backend", func(c engine.Claimed) error { return writers["delay"](t.Context(), f.Engine, c.Lease) }},
		{"an operator", "revoked by operator", func(c engine.Claimed) error { return writers["revoke"](t.Context(), f.Engine, c.Lease) }},
		{"who cancels it", "revoked by operator", func(c engine.Claimed) error { return writers["cancel"](t.Context(), f.Engine, c.Lease) }},
		{"nobody", "expired by -", func(engine.Claimed) error {
			f.Advance(fixture.LeaseTTL)
			_, err := upkeep.Of(f.Engine).ExpireLeases(t.Context(), 10)
			return err
		}},
	} {
		held := f.Start(t)
		if err := c.end(held); err != nil {
			t.Fatal(err)
		}
		got := fixture.Texts(t, f.Pool, `SELECT concat_ws(' ', event_type, 'by', coalesce(ffx_revoked_by, '-'), 'of', ffx_worker_instance_id, lease_id)
			FROM ff_lease_event WHERE partition_key = $1 AND execution_id = ($2::uuid)::text ORDER BY event_id DESC LIMIT 1`,
			held.ID.Partition(), held.ID.UUID())
		if want := fmt.Sprintf("%s of %s %s", c.want, f.Name, held.Lease.ID); len(got) != 1 || got[0] != want {
			t.Errorf("taken by %s: %q, want %q", c.name, got, want)
		}
		if err := f.CancelExecution(t.Context(), engine.CancelSpec{ID: held.ID}); err != nil && !errors.Is(err, fferr.ErrEnded) {
			t.Fatal(err)
		}
	}
}
