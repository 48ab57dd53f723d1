package transactions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/tests/internal/soak"
)

// defaultsTo makes a pool's transactions run at a level unless they ask for another one.
func defaultsTo(level pgx.TxIsoLevel) func(*pgxpool.Config) {
	return func(config *pgxpool.Config) {
		config.ConnConfig.RuntimeParams["default_transaction_isolation"] = string(level)
	}
}

var higherLevels = []pgx.TxIsoLevel{pgx.Serializable, pgx.RepeatableRead}

// With any default of a pool, the engine's transactions run at READ COMMITTED: above it, conflicting ones are aborted
// again and again.
func TestPoolsWithAnotherDefaultIsolation(t *testing.T) {
	for _, level := range higherLevels {
		t.Run(string(level), func(t *testing.T) {
			f := fixture.NewCloned(t)
			l := &labour{Fixture: f, eng: f.EngineOn(t, fixture.OpenPool(t, f.Url, defaultsTo(level)), engine.Config{})}
			const labourers = 8
			executions := soak.Size(t, 400, 2_000)
			var working sync.WaitGroup
			for range labourers {
				working.Go(func() {
					if err := l.work(t.Context(), executions/labourers); err != nil {
						t.Error(err)
					}
				})
			}
			working.Wait()
			if err := l.settleAll(t.Context()); err != nil {
				t.Error(err)
			}
			got := fixture.Texts(t, f.Pool, "SELECT count(*) || ' ' || public_state FROM ff_exec_core GROUP BY public_state")
			if want := []string{fmt.Sprint(executions, " completed")}; !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// labour is a lane on which everything goes on at once.
type labour struct {
	*fixture.Fixture
	eng *engine.Engine
}

// work creates n executions in all ways, and settles the executions of the lane in all ways.
func (l *labour) work(ctx context.Context, n int) error {
	claimer, err := l.eng.NewClaimer(l.Worker())
	if err != nil {
		return err
	}
	for round := 0; n > 0; round++ {
		created, err := l.createSome(ctx, round, n)
		if err != nil {
			return err
		}
		n -= created
		l.Advance(time.Millisecond)
		claimed, err := l.eng.Claim(ctx, l.spec(), 1+20*(round%2))
		if err != nil {
			return err
		}
		if err := l.settle(ctx, round, claimer, claimed); err != nil {
			return err
		}
		if err := l.job(ctx, round); err != nil {
			return err
		}
	}
	return nil
}

func (l *labour) spec() engine.ClaimSpec {
	spec := l.Worker()
	spec.LeaseTTL = time.Hour
	return spec
}

func (l *labour) createSome(ctx context.Context, round, atMost int) (int, error) {
	spec := engine.ExecutionSpec{Lane: l.Lane, Kind: "test", Policy: &policy.Execution{Retry: policy.ImmediateRetries(0)}}
	switch {
	case round%3 == 0 && atMost >= 20:
		specs := slices.Repeat([]engine.ExecutionSpec{spec}, 20)
		specs[0].IdempotencyKey = l.Key(id.NewLeaseID().String())
		specs[1].DelayUntil = l.Time().Add(time.Millisecond)
		specs[2].Deadline = l.Time().Add(24 * time.Hour)
		_, err := l.eng.CreateExecutions(ctx, specs)
		return len(specs), err
	case round%3 == 1 && atMost >= 3:
		flow := fixture.Chart(nil, "a>b", "a>c")
		for i := range flow.Nodes {
			flow.Nodes[i].Spec = spec
		}
		_, err := l.eng.CreateFlow(ctx, flow)
		return len(flow.Nodes), err
	}
	_, err := l.eng.CreateExecution(ctx, spec)
	return 1, err
}

func (l *labour) settle(ctx context.Context, round int, claimer *engine.Claimer, claimed []engine.Claimed) error {
	renewals := make([]engine.Renewal, len(claimed))
	for i, c := range claimed {
		renewals[i] = engine.Renewal{Lease: c.Lease, TTL: time.Hour}
	}
	if _, err := l.eng.RenewLeases(ctx, renewals); err != nil {
		return err
	}
	var rest []engine.Completion
	for i, c := range claimed {
		var err error
		switch {
		case i%4 == 0 && c.Lease.Attempt == 0:
			_, err = l.eng.FailExecution(ctx, c.Lease, engine.Failure{})
		case i%4 == 1:
			err = l.eng.CompleteExecution(ctx, c.Lease, []byte("out"))
		default:
			rest = append(rest, engine.Completion{Lease: c.Lease})
		}
		if err != nil {
			return err
		}
	}
	var outcomes []error
	var err error
	if round%2 == 0 {
		outcomes, claimed, err = claimer.CompleteAndClaim(ctx, rest, 2)
		for _, c := range claimed {
			err = errors.Join(err, l.eng.CompleteExecution(ctx, c.Lease, nil))
		}
	} else {
		outcomes, err = l.eng.CompleteExecutions(ctx, rest)
	}
	for i, outcome := range outcomes {
		if errors.Is(outcome, fferr.ErrBusy) { // a claim that looks at the row; a call for one queues
			outcomes[i] = l.eng.CompleteExecution(ctx, rest[i].Lease, nil)
		}
	}
	return errors.Join(append(outcomes, err)...)
}

func (l *labour) job(ctx context.Context, round int) error {
	jobs := []func(context.Context, int) (int, error){
		upkeep.Of(l.eng).PromoteDelayed, upkeep.Of(l.eng).ExpireLeases, upkeep.Of(l.eng).ExpireAttempts, upkeep.Of(l.eng).ExpireDeadlines, upkeep.Of(l.eng).PruneCreationKeys,
	}
	_, err := jobs[round%len(jobs)](ctx, 10)
	return err
}

// settleAll settles the rest.
func (l *labour) settleAll(ctx context.Context) error {
	l.Advance(time.Hour)
	for ctx.Err() == nil {
		promoted, err := upkeep.Of(l.eng).PromoteDelayed(ctx, 100)
		if err != nil {
			return err
		}
		claimed, err := l.eng.Claim(ctx, l.spec(), 100)
		if err != nil {
			return err
		}
		if promoted+len(claimed) == 0 {
			return nil
		}
		completions := make([]engine.Completion, len(claimed))
		for i, c := range claimed {
			completions[i].Lease = c.Lease
		}
		outcomes, err := l.eng.CompleteExecutions(ctx, completions)
		if err := errors.Join(append(outcomes, err)...); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func TestOperationsOnASerializablePool(t *testing.T) {
	eachOperation(t, func(t *testing.T, o fixture.Operation, f *fixture.Fixture, l engine.Lease, before string) {
		pool := fixture.OpenPool(t, f.Url, func(config *pgxpool.Config) {
			defaultsTo(pgx.Serializable)(config)
			config.MaxConns = 1
		})
		e := f.EngineOn(t, pool, engine.Config{})
		if err := o.Refused(t.Context(), f, e, l); !errors.Is(err, o.Reason) {
			t.Errorf("got %v, want %v", err, o.Reason)
		}
		f.WantUnchanged(t, l.Execution, before)
		if err := o.Do(t.Context(), f, e, l); err != nil {
			t.Fatal(err)
		}
		o.WantDone(t, f, l, before)
		if got := pool.Stat().NewConnsCount(); got != 1 {
			t.Errorf("it took %d connections, want 1", got)
		}
		if got := fixture.Texts(t, pool, "SHOW transaction_isolation")[0]; got != string(pgx.Serializable) {
			t.Errorf("the pool's other users run at %s", got)
		}
	})
}

func TestTransactionsRunAtReadCommitted(t *testing.T) {
	const refuse = `IF current_setting('transaction_isolation') <> 'read committed'
		AND current_setting('application_name') = 'watched' THEN RAISE EXCEPTION 'wrong level'; END IF`
	eachCommit(t, refuse, func(t *testing.T, o fixture.Operation, f *fixture.Fixture) {
		if o.Plain {
			return // whatever the level, it writes the row only if it can lock it at once
		}
		l := o.Arrange(t, f)
		before := f.Dump(t, l.Execution)
		e := f.EngineOn(t, fixture.OpenPool(t, f.Url, func(config *pgxpool.Config) {
			defaultsTo(pgx.RepeatableRead)(config)
			config.ConnConfig.RuntimeParams["application_name"] = "watched"
		}), engine.Config{})
		if err := o.Do(t.Context(), f, e, l); err != nil {
			t.Fatal(err)
		}
		o.WantDone(t, f, l, before)
	})
}

// A commit that the server refuses is not reported as done, and the connection stays usable.
func TestRefusedCommitIsReported(t *testing.T) {
	const refuse = "IF current_setting('test.refuse', true) = 'on' THEN RAISE EXCEPTION 'not today'; END IF"
	eachCommit(t, refuse, func(t *testing.T, o fixture.Operation, f *fixture.Fixture) {
		l := o.Arrange(t, f)
		before := f.Dump(t, l.Execution)
		pool := fixture.OpenPool(t, f.Url, func(config *pgxpool.Config) {
			defaultsTo(pgx.Serializable)(config)
			config.MaxConns = 1
		})
		e := f.EngineOn(t, pool, engine.Config{})
		if err := e.Prepare(t.Context()); err != nil { // and learns of the level
			t.Fatal(err)
		}
		if _, err := pool.Exec(t.Context(), "SET test.refuse = 'on'"); err != nil {
			t.Fatal(err)
		}
		err := o.Do(t.Context(), f, e, l)
		if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != "P0001" || !errors.Is(err, fferr.ErrTransport) {
			t.Errorf("got %v, want a transport error that says why", err)
		}
		f.WantUnchanged(t, l.Execution, before)
		if _, err := pool.Exec(t.Context(), "RESET test.refuse"); err != nil {
			t.Fatal(err)
		}
		o.Repeat(t, f, e, l)
		o.WantDone(t, f, l, before)
		if got := pool.Stat().NewConnsCount(); got != 1 {
			t.Errorf("it took %d connections, want 1", got)
		}
	})
}

// Saying which level is wanted takes no round trip; where the pool defaults to it, it is not said.
func TestIsolationTakesNoRoundTrip(t *testing.T) {
	for level, want := range map[pgx.TxIsoLevel][]string{
		pgx.ReadCommitted: {"select", "InsertAlike"},
		pgx.Serializable:  {"begin isolation level read committed", "select", "InsertAlike", "commit"},
	} {
		t.Run(string(level), func(t *testing.T) {
			f := fixture.New(t)
			log := new(fixture.RoundTripLog)
			e := f.EngineOn(t, fixture.OpenPool(t, f.Url, func(config *pgxpool.Config) {
				defaultsTo(level)(config)
				config.ConnConfig.Tracer = log
			}), engine.Config{})
			create := func() {
				if _, err := e.CreateExecution(t.Context(), engine.ExecutionSpec{Lane: f.Lane, Kind: "test"}); err != nil {
					t.Error(err)
				}
			}
			create() // the lane is known from now on
			create() // and the level
			if sent, trips := log.Of(create); trips != 1 || !slices.Equal(sent, want) {
				t.Errorf("takes %q in %d round trips, want %q in one", sent, trips, want)
			}
		})
	}
}
