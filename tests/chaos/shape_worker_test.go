//go:build unix

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/worker"
)

// shapeTables has the rows that handlers of shapes write. A try is written by itself, before anything else: at least
// one for each lease under which a handler began. An effect is written in the transaction that completes the
// execution: one for each execution that completed, and none for any other.
const shapeTables = `
	CREATE TABLE shape_try (execution uuid, epoch bigint);
	CREATE TABLE shape_effect (id bigint GENERATED ALWAYS AS IDENTITY, execution uuid, epoch bigint)`

// The kinds of the nodes of shapes.
var (
	kindExact = kindOf("exact") // completes in a transaction of its own, with its effect
	kindMap   = kindOf("map")   // the same, and leaves a number
	kindFold  = kindOf("fold")  // returns the sum of its upstreams' results
	kindFails = kindOf("fails") // fails
	kindTwice = kindOf("twice") // fails once, then as exact
	kindGrow  = engine.Kind[generation, result]{Name: "grow"}
)

// generation is a node of a flow that grows itself: which one it is, and how many shall come after it.
type generation struct{ Number, Left int }

func (g generation) key() string         { return fmt.Sprintf("generation %d", g.Number) }
func (g generation) child(i int) string  { return fmt.Sprintf("child %d of %d", i, g.Number) }
func (g generation) next() generation    { return generation{g.Number + 1, g.Left - 1} }
func (g generation) node() engine.Node   { return shapeNode(g.key(), kindGrow.Spec(g)) }
func (g generation) leaf() string        { return fmt.Sprintf("leaf of %d", g.Number) }
func (g generation) waits() bool         { return g.Number%3 == 2 }
func (g generation) inTransaction() bool { return g.Number%3 == 1 }

const children = 3

// growth is the addition of a generation: the next one, and a leaf, or children that it waits for itself.
func (g generation) growth(flow id.FlowID) engine.Growth {
	growth := engine.Growth{Flow: flow}
	add := func(n engine.Node, edges ...engine.Edge) {
		growth.Nodes, growth.Edges = append(growth.Nodes, n), append(growth.Edges, edges...)
	}
	if g.Left > 0 {
		add(g.next().node(), engine.Edge{From: g.key(), To: g.next().key()})
	}
	if !g.waits() {
		add(shapeNode(g.leaf(), shapeSpec(kindExact)), engine.Edge{From: g.key(), To: g.leaf()})
		return growth
	}
	for i := range children {
		add(shapeNode(g.child(i), shapeSpec(kindMap)), engine.Edge{From: g.child(i), To: g.key(), AllowStarted: true})
	}
	return growth
}

// shapeWorker handles the nodes of shapes.
type shapeWorker struct {
	eng  *engine.Engine
	pool *pgxpool.Pool
	*reporter
}

func handleShapes(w *worker.Worker, s *shapeWorker) {
	handle := func(kind engine.Kind[struct{}, result], fn func(ctx context.Context, job worker.Job[struct{}]) (result, error)) {
		worker.Handle(w, kind, func(ctx context.Context, job worker.Job[struct{}]) (result, error) {
			if err := s.try(ctx, job.Lease); err != nil {
				return result{}, err
			}
			labour()
			return fn(ctx, job)
		})
	}
	exactly := func(sum int) func(ctx context.Context, job worker.Job[struct{}]) (result, error) {
		return func(_ context.Context, job worker.Job[struct{}]) (result, error) {
			r := resultOf(job.Lease)
			r.Sum = sum
			return s.exactly(job.Lease, r, nil, nil, job.Delay(0))
		}
	}
	handle(kindExact, exactly(0))
	handle(kindMap, exactly(1))
	handle(kindFold, func(ctx context.Context, job worker.Job[struct{}]) (result, error) {
		r := resultOf(job.Lease)
		upstreams, err := job.Upstreams(ctx)
		r.Sum = sumOf(upstreams)
		if err != nil {
			return r, err
		}
		return s.exactly(job.Lease, r, nil, nil, job.Delay(0))
	})
	handle(kindFails, func(context.Context, worker.Job[struct{}]) (result, error) {
		return result{}, worker.Permanent(errors.New("as it was meant to"))
	})
	handle(kindTwice, func(_ context.Context, job worker.Job[struct{}]) (result, error) {
		if job.Lease.Attempt == 0 {
			return result{}, errors.New("the first attempt fails")
		}
		return s.exactly(job.Lease, resultOf(job.Lease), nil, nil, job.Delay(0))
	})
	handle(kindWaits, s.await)
	handle(kindTimed, s.awaitBriefly)
	handle(kindSteps, s.steps)
	worker.Handle(w, kindGrow, s.grow)
	worker.Handle(w, kindTurns, s.turns)
	worker.Handle(w, kindReserves, s.reserve)
	worker.Handle(w, kindChild, func(_ context.Context, job worker.Job[int]) (int, error) { return job.Args, nil })
}

// grow makes the flow grow by the next generation: before it completes, in the transaction that completes it, or before
// it waits for its children.
func (s *shapeWorker) grow(ctx context.Context, job worker.Job[generation]) (result, error) {
	if err := s.try(ctx, job.Lease); err != nil {
		return result{}, err
	}
	labour()
	r, g := resultOf(job.Lease), job.Args
	growth := g.growth(*job.Flow)
	if g.inTransaction() {
		return s.exactly(job.Lease, r, &growth.Flow, func(_ pgx.Tx, eng *engine.Engine) error {
			_, err := eng.GrowFlow(context.Background(), growth)
			return err
		}, job.Delay(0))
	}
	if _, err := s.eng.GrowFlow(ctx, growth); err != nil {
		return r, err
	}
	if g.waits() {
		upstreams, err := job.Upstreams(ctx)
		if err != nil {
			return r, err
		}
		for _, u := range upstreams {
			if !u.State.Terminal() {
				return r, job.WaitForChildren()
			}
		}
		r.Sum = sumOf(upstreams)
	}
	return s.exactly(job.Lease, r, nil, nil, job.Delay(0))
}

func sumOf(upstreams []engine.UpstreamResult) (sum int) {
	for _, u := range upstreams {
		var r result
		if json.Unmarshal(u.Result, &r) == nil && u.Kind == kindMap.Name {
			sum += r.Sum
		}
	}
	return sum
}

func (s *shapeWorker) try(ctx context.Context, l engine.Lease) error {
	_, err := s.pool.Exec(ctx, "INSERT INTO shape_try VALUES ($1, $2)", l.Execution.UUID(), l.Epoch)
	return err
}

// exactly completes an execution in one transaction with its effect and other writes, without checking the lease:
// only the engine prevents it. If that transaction met a lock it is tried again.
func (s *shapeWorker) exactly(
	l engine.Lease, r result, locked *id.FlowID, also func(pgx.Tx, *engine.Engine) error, again error,
) (result, error) {
	ctx := context.Background()
	bytes, err := json.Marshal(r)
	if err != nil {
		return r, err
	}
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		eng := s.eng.WithTx(tx)
		if locked != nil {
			if err := eng.LockFlows(ctx, *locked); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, "INSERT INTO shape_effect (execution, epoch) VALUES ($1, $2)", l.Execution.UUID(), l.Epoch)
		if err != nil {
			return err
		}
		if also != nil {
			if err := also(tx, eng); err != nil {
				return err
			}
		}
		return eng.CompleteExecution(ctx, l, bytes)
	})
	switch {
	case err == nil:
		return r, nil
	case errors.Is(err, fferr.ErrStaleLease), errors.Is(err, fferr.ErrLeaseExpired), errors.Is(err, fferr.ErrNotActive),
		errors.Is(err, fferr.ErrLeaseRevoked):
		s.line(refusedLine)
		return r, err
	}
	fmt.Fprintln(os.Stderr, err)
	return r, again
}
