package transactions

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// levels are the isolation levels of callers' transactions.
var levels = []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}

// promises are the sentences of docs/transactions.md, in its order. TestOperationsIn… have all operations.
var promises = []struct {
	sentence string
	holds    func(p promised, t *testing.T)
}{
	{"the order and its execution exist together or not at all", promised.existTogether},
	{"a handler's effects and its completion are one transaction", promised.completesTogether},
	{"InTx begins the transaction, commits it and wakes the workers", promised.inTxWakes},
	{"a refusal leaves your transaction usable, and no lock behind", promised.refusalCostsNothing},
	{"in a batch the locks of the accepted ones are kept", promised.batchKeepsAccepted},
	{"a serialization failure is returned as ErrContention", promised.snapshotIsTooOld},
	{"a lock timeout is returned as ErrContention", promised.lockTimeout},
	{"a deadlock is returned as ErrContention", promised.deadlock},
	{"waiting is refused", promised.waitingIsRefused},
	{"LockFlows takes the locks of all the flows", promised.lockFlows},
	{"a claim skips a row that another session holds", promised.claimSkips},
	{"a batch has one outcome for each item, in input order", promised.batchInOrder},
	{"CreateExecutions creates one spec after the other", promised.creationsInOrder},
	{"a key of existing work is found again", promised.keyIsFound},
	{"a creation takes one round trip, and two more if something exists", promised.roundTrips},
}

// Each promise of docs/transactions.md holds at each isolation level of the caller's transaction. W7
func TestPromisesAtEachLevel(t *testing.T) {
	for _, promise := range promises {
		for _, level := range levels {
			t.Run(promise.sentence+", "+string(level), func(t *testing.T) {
				arrange := fixture.New
				if level == pgx.Serializable {
					arrange = fixture.NewCloned // other tests' transactions would abort this one
				}
				promise.holds(promised{arrange(t), level}, t)
			})
		}
	}
}

// promised is a fixture for a promise at a level.
type promised struct {
	*fixture.Fixture
	level pgx.TxIsoLevel
}

func (p promised) begin(t *testing.T) pgx.Tx {
	t.Helper()
	return fixture.BeginWith(t, p.Pool, pgx.TxOptions{IsoLevel: p.level})
}

// snapshot begins a transaction that has taken its snapshot.
func (p promised) snapshot(t *testing.T) pgx.Tx {
	t.Helper()
	tx := p.begin(t)
	fixture.ExecIn(t, tx, "SELECT FROM ff_lane_registry LIMIT 1")
	return tx
}

func (p promised) spec() engine.ExecutionSpec {
	return engine.ExecutionSpec{Kind: "test", Lane: p.Lane}
}

// note writes a row of the caller's own.
func (p promised) note(t *testing.T, tx pgx.Tx) {
	t.Helper()
	fixture.ExecIn(t, tx, "INSERT INTO ff_lane_registry VALUES ($1, 0, 'the caller')", p.Name+"-x")
}

// wantRows fails unless as many executions, and rows of the caller's own, are committed.
func (p promised) wantRows(t *testing.T, executions, notes int) {
	t.Helper()
	if n := len(fixture.Texts(t, p.Pool, "SELECT execution_id::text FROM ff_exec_core WHERE lane_id = $1", string(p.Lane))); n != executions {
		t.Errorf("%d executions, want %d", n, executions)
	}
	if n := len(fixture.Texts(t, p.Pool, "SELECT lane_id FROM ff_lane_registry WHERE lane_id = $1", p.Name+"-x")); n != notes {
		t.Errorf("%d rows of the caller's, want %d", n, notes)
	}
}

func wantContention(t *testing.T, err error, code string) {
	t.Helper()
	if !errors.Is(err, fferr.ErrContention) || pgtx.SQLState(err) != code {
		t.Errorf("%v, want ErrContention with %s", err, code)
	}
}

func wantUsable(t *testing.T, tx pgx.Tx) {
	t.Helper()
	fixture.ExecIn(t, tx, "SELECT 1")
}

func (p promised) existTogether(t *testing.T) {
	for _, commits := range []bool{false, true} {
		tx := p.snapshot(t)
		p.note(t, tx)
		if _, err := p.WithTx(tx).CreateExecution(t.Context(), p.spec()); err != nil {
			t.Fatal(err)
		}
		p.wantRows(t, 0, 0)
		if !commits {
			_ = tx.Rollback(t.Context())
			p.wantRows(t, 0, 0)
			continue
		}
		fixture.Commit(t, tx)
		p.wantRows(t, 1, 1)
	}
}

func (p promised) completesTogether(t *testing.T) {
	l := p.Start(t).Lease
	for _, commits := range []bool{false, true} {
		tx := p.snapshot(t)
		p.note(t, tx)
		if err := p.WithTx(tx).CompleteExecution(t.Context(), l, nil); err != nil {
			t.Fatal(err)
		}
		p.WantState(t, l.Execution, fixture.StateRunning)
		if commits {
			fixture.Commit(t, tx)
		}
		_ = tx.Rollback(t.Context())
	}
	p.WantState(t, l.Execution, fixture.StateCompleted)
	p.wantRows(t, 1, 1)
}

// inTxWakes has the level from the pool, as InTx takes it from there.
func (p promised) inTxWakes(t *testing.T) {
	pool := fixture.OpenPool(t, p.Url, defaultsTo(p.level))
	eng := p.EngineOn(t, pool, engine.Config{NoListener: true})
	lanes := fixture.WakesOf(t, eng, func() {
		if err := eng.InTx(t.Context(), func(tx pgx.Tx, bound *engine.Engine) error {
			if got := fixture.Texts(t, tx, "SHOW transaction_isolation")[0]; got != string(p.level) {
				t.Errorf("InTx runs at %s", got)
			}
			_, err := bound.CreateExecution(t.Context(), p.spec())
			return err
		}); err != nil {
			t.Error(err)
		}
	})
	if !slices.Contains(lanes, p.Lane) {
		t.Errorf("woke %q", lanes)
	}
	p.wantRows(t, 1, 0)
}

func (p promised) refusalCostsNothing(t *testing.T) {
	l := p.Start(t).Lease
	stale := l
	stale.Epoch--
	tx := p.snapshot(t)
	p.note(t, tx)
	set := plannerSettings(t, tx)
	fixture.WantLeaseError(t, p.WithTx(tx).CompleteExecution(t.Context(), stale, nil), fferr.ErrStaleLease)
	if now := plannerSettings(t, tx); now != set {
		t.Errorf("the caller's settings are %s, were %s", now, set)
	}
	// Another session can do at once what the refusal would lock.
	if err := p.CompleteExecution(t.Context(), l, nil); err != nil {
		t.Error(err)
	}
	fixture.Commit(t, tx)
	p.wantRows(t, 1, 1)
}

func (p promised) batchKeepsAccepted(t *testing.T) {
	started := p.StartMany(t, 2)
	good, refused := started[0].Lease, started[1].Lease
	stale := refused
	stale.Epoch--
	tx := p.begin(t)
	outcomes, err := p.WithTx(tx).CompleteExecutions(t.Context(), []engine.Completion{{Lease: stale}, {Lease: good}})
	if err != nil || outcomes[1] != nil {
		t.Fatal(outcomes, err)
	}
	fixture.WantLeaseError(t, outcomes[0], fferr.ErrStaleLease)
	if err := p.CompleteExecution(t.Context(), refused, nil); err != nil {
		t.Error(err)
	}
	others, err := p.CompleteExecutions(t.Context(), []engine.Completion{{Lease: good}})
	if err != nil || !errors.Is(others[0], fferr.ErrBusy) {
		t.Errorf("the accepted one is not locked: %v, %v", others, err)
	}
	fixture.Commit(t, tx)
	p.WantState(t, good.Execution, fixture.StateCompleted)
}

func (p promised) snapshotIsTooOld(t *testing.T) {
	l := p.Start(t).Lease
	tx := p.snapshot(t)
	touch(t, p.Fixture, l.Execution)
	err := p.WithTx(tx).CompleteExecution(t.Context(), l, nil)
	wantUsable(t, tx)
	if p.level != pgx.ReadCommitted {
		wantContention(t, err, "40001")
		_ = tx.Rollback(t.Context())
		tx = p.begin(t) // as the page says
		err = p.WithTx(tx).CompleteExecution(t.Context(), l, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	fixture.Commit(t, tx)
	p.WantState(t, l.Execution, fixture.StateCompleted)
}

// hold locks the row of an execution until the transaction ends that it returns.
func (p promised) hold(t *testing.T, x id.ExecutionID) pgx.Tx {
	t.Helper()
	tx := p.BeginTx(t)
	fixture.ExecIn(t, tx, "SELECT FROM ff_exec_core WHERE partition_key = $1 AND execution_id = $2 FOR UPDATE", x.Partition(), x.UUID())
	return tx
}

func (p promised) lockTimeout(t *testing.T) {
	l := p.Start(t).Lease
	holder := p.hold(t, l.Execution)
	tx := p.snapshot(t)
	fixture.ExecIn(t, tx, "SET LOCAL lock_timeout = '1ms'")
	wantContention(t, p.WithTx(tx).CompleteExecution(t.Context(), l, nil), "55P03")
	wantUsable(t, tx)
	_ = holder.Rollback(t.Context())
	if err := p.WithTx(tx).CompleteExecution(t.Context(), l, nil); err != nil {
		t.Error(err)
	}
	fixture.Commit(t, tx)
}

func (p promised) deadlock(t *testing.T) {
	started := p.StartMany(t, 2)
	a, b := started[0].Lease, started[1].Lease
	holder := p.hold(t, b.Execution)
	rival := p.Rival(t, defaultsTo(p.level))
	tx := fixture.BeginWith(t, rival.Pool, pgx.TxOptions{})
	if err := rival.WithTx(tx).CompleteExecution(t.Context(), a, nil); err != nil {
		t.Fatal(err)
	}
	// The holder looks for a deadlock later than the caller.
	fixture.ExecIn(t, holder, "SET LOCAL deadlock_timeout = '1h'")
	fixture.ExecIn(t, tx, "SET LOCAL deadlock_timeout = '1ms'; SET LOCAL lock_timeout = 0")
	waiting := fixture.Async(t, func(ctx context.Context) error {
		_, err := holder.Exec(ctx, "SELECT FROM ff_exec_core WHERE partition_key = $1 AND execution_id = $2 FOR UPDATE", a.Execution.Partition(), a.Execution.UUID())
		return err
	})
	fixture.Await(t, "the holder to wait", func() bool {
		return len(fixture.Texts(t, p.Pool, "SELECT 1::text FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Lock'", holder.Conn().PgConn().PID())) == 1
	})
	wantContention(t, rival.WithTx(tx).CompleteExecution(t.Context(), b, nil), "40P01")
	wantUsable(t, tx)
	_ = tx.Rollback(t.Context())
	if err := waiting(); err != nil {
		t.Error(err)
	}
}

func (p promised) waitingIsRefused(t *testing.T) {
	x := p.Create(t)
	tx := p.begin(t)
	if _, err := p.WithTx(tx).AwaitExecution(t.Context(), x); !errors.Is(err, fferr.ErrInvalidInput) {
		t.Errorf("AwaitExecution: %v", err)
	}
	if _, err := p.WithTx(tx).AwaitFlow(t.Context(), id.NewFlowID()); !errors.Is(err, fferr.ErrInvalidInput) {
		t.Errorf("AwaitFlow: %v", err)
	}
	wantUsable(t, tx)
}

func (p promised) lockFlows(t *testing.T) {
	f := fixture.FlowsOn(p.Fixture)
	flow := f.Draw(t, nil, "a", "b")
	a, b := f.Lease(t, flow, "a"), f.Lease(t, flow, "b")
	growth := func(node string) engine.Growth { return f.Growth(flow, nil, node) }
	first, second := growth("n"), growth("m")
	tx := p.begin(t)
	if err := p.WithTx(tx).LockFlows(t.Context(), flow); err != nil {
		t.Fatal(err)
	}
	rival := p.Rival(t, defaultsTo(p.level))
	both := func(ctx context.Context, eng *engine.Engine, l engine.Lease, growth engine.Growth) error {
		if err := eng.CompleteExecution(ctx, l, nil); err != nil {
			return err
		}
		_, err := eng.GrowFlow(ctx, growth)
		return err
	}
	other := fixture.Async(t, func(ctx context.Context) error {
		return rival.InTx(ctx, func(_ pgx.Tx, bound *engine.Engine) error {
			if err := bound.LockFlows(ctx, flow); err != nil {
				return err
			}
			return both(ctx, bound, b, second)
		})
	})
	rival.AwaitBlocked(t, p.Fixture)
	if err := both(t.Context(), p.WithTx(tx), a, first); err != nil {
		t.Error(err)
	}
	fixture.Commit(t, tx)
	err := other()
	if p.level == pgx.ReadCommitted {
		if err != nil {
			t.Error(err)
		}
		return
	}
	wantContention(t, err, "40001") // its snapshot is older than the commit that it waited for
}

func (p promised) claimSkips(t *testing.T) {
	held, free := p.Create(t), p.Create(t)
	holder := p.hold(t, held)
	tx := p.begin(t)
	claimed, err := p.WithTx(tx).Claim(t.Context(), p.Worker(), 2)
	if got := fixture.ExecutionsOf(claimed); err != nil || !slices.Equal(got, []id.ExecutionID{free}) {
		t.Errorf("claimed %v, %v; want %v", got, err, free)
	}
	_ = holder.Rollback(t.Context())
	fixture.Commit(t, tx)
}

func (p promised) batchInOrder(t *testing.T) {
	tx := p.begin(t)
	outcomes, err := p.WithTx(tx).CreateExecutions(t.Context(), []engine.ExecutionSpec{
		{Kind: "first", Lane: p.Lane}, {Lane: p.Lane}, {Kind: "third", Lane: p.Lane},
	})
	if err != nil || outcomes[0].Err != nil || !errors.Is(outcomes[1].Err, fferr.ErrInvalidInput) || outcomes[2].Err != nil {
		t.Fatalf("%+v, %v", outcomes, err)
	}
	fixture.Commit(t, tx)
	for i, kind := range map[int]string{0: "first", 2: "third"} {
		if x := p.Describe(t, outcomes[i].Value.ID); x.Kind != kind {
			t.Errorf("%d is of the kind %q", i, x.Kind)
		}
	}
}

func (p promised) creationsInOrder(t *testing.T) {
	exists := p.Create(t)
	withKey := func(name string, x id.ExecutionID) engine.ExecutionSpec {
		return engine.ExecutionSpec{ID: x, Kind: "test", Lane: p.Lane, IdempotencyKey: p.Key(name)}
	}
	tx := p.begin(t)
	outcomes, err := p.WithTx(tx).CreateExecutions(t.Context(), []engine.ExecutionSpec{
		withKey("a", id.ExecutionID{}), withKey("a", id.ExecutionID{}), withKey("b", exists), withKey("b", id.ExecutionID{}),
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []bool
	for _, outcome := range outcomes {
		if outcome.Err != nil {
			t.Error(outcome.Err)
		}
		got = append(got, outcome.Value.Duplicate)
	}
	if want := []bool{false, true, true, false}; !slices.Equal(got, want) || outcomes[1].Value.ID != outcomes[0].Value.ID {
		t.Errorf("duplicates %v, want %v: %+v", got, want, outcomes)
	}
	fixture.Commit(t, tx)
	p.wantRows(t, 3, 0)
}

func (p promised) keyIsFound(t *testing.T) {
	spec := p.spec()
	spec.IdempotencyKey = p.Key("k")
	first, err := p.CreateExecution(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	tx := p.begin(t)
	second, err := p.WithTx(tx).CreateExecution(t.Context(), spec)
	if err != nil || !second.Duplicate || second.ID != first.ID {
		t.Errorf("%+v, %v", second, err)
	}
	fixture.Commit(t, tx)
	p.wantRows(t, 1, 0)
}

func (p promised) roundTrips(t *testing.T) {
	log := new(fixture.RoundTripLog)
	pool := fixture.OpenPool(t, p.Url, func(config *pgxpool.Config) {
		config.ConnConfig.Tracer, config.MaxConns = log, 1
	})
	eng := p.EngineOn(t, pool, engine.Config{})
	for range 2 { // the lane, and statements, are known from now on
		if _, err := eng.CreateExecution(t.Context(), p.spec()); err != nil {
			t.Fatal(err)
		}
	}
	spec := p.spec()
	spec.ID = id.NewExecutionID(p.Lane, id.Partitions{})
	for _, want := range []int{1, 3} { // the second one finds it
		tx := fixture.BeginWith(t, pool, pgx.TxOptions{IsoLevel: p.level})
		sent, trips := log.Of(func() {
			if _, err := eng.WithTx(tx).CreateExecution(t.Context(), spec); err != nil {
				t.Error(err)
			}
		})
		if trips != want {
			t.Errorf("%d round trips for %q, want %d", trips, sent, want)
		}
		fixture.Commit(t, tx)
	}
}
