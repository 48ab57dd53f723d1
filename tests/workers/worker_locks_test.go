package workers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/progress"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

// gated is handlers that end when they are released, and the executions they saw.
type gated struct {
	started chan id.ExecutionID
	free    chan struct{}

	mu        sync.Mutex
	runs      map[id.ExecutionID]int
	cancelled []error
}

func newGated() *gated {
	return &gated{started: make(chan id.ExecutionID, 100), free: make(chan struct{}), runs: make(map[id.ExecutionID]int)}
}

// register makes handlers of the kinds "test", which succeeds, and "bad", which fails.
func (g *gated) register(w *worker.Worker) {
	run := func(ctx context.Context, job worker.Job[struct{}]) (id.ExecutionID, error) {
		g.mu.Lock()
		g.runs[job.ID]++
		g.mu.Unlock()
		g.started <- job.ID
		select {
		case <-g.free:
		case <-ctx.Done():
			g.mu.Lock()
			g.cancelled = append(g.cancelled, context.Cause(ctx))
			g.mu.Unlock()
		}
		return job.ID, nil
	}
	fixture.HandleKind(w, "test", run)
	fixture.HandleKind(w, "bad", func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
		_, _ = run(ctx, job)
		return "", worker.Permanent(errors.New("bad"))
	})
}

// await waits for n handlers to have started.
func (g *gated) await(t *testing.T, n int) {
	t.Helper()
	for range n {
		progress.Receive(t, "a handler to start", g.started)
	}
}

// wantOnce fails the test when a handler ran again or was cancelled.
func (g *gated) wantOnce(t *testing.T, n int) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.runs) != n {
		t.Errorf("%d executions were handled, want %d", len(g.runs), n)
	}
	for x, runs := range g.runs {
		if runs != 1 {
			t.Errorf("%s ran %d times", x, runs)
		}
	}
	for _, cause := range g.cancelled {
		t.Errorf("a handler was cancelled: %v", cause)
	}
}

// leaseUntil returns when the lease of an execution's first attempt runs out.
func leaseUntil(t *testing.T, f *fixture.Fixture, x id.ExecutionID) int64 {
	t.Helper()
	if until := f.StoredAttempts(t, x)[0].LeaseExpiresAtMs; until != nil {
		return *until
	}
	return 0
}

// One locked row and one locked flow keep nothing else from being settled. The attempts that wait for them are
// settled when they are free: later than their first leases would have run out, and without being handled again.
func TestWorkerSettlesBesideALockedRowAndFlow(t *testing.T) {
	const ttl = time.Second
	for _, way := range []struct {
		name string
		cfg  worker.Config
	}{
		{"in batches", worker.Config{LeaseTTL: ttl}},
		{"one by one", worker.Config{LeaseTTL: ttl, FetchBatch: 1}},
	} {
		t.Run(way.name, func(t *testing.T) {
			c := fixture.NewLoneCrew(t)
			var solos []id.ExecutionID
			for i := range 15 {
				solos = append(solos, c.Create(t, func(s *engine.ExecutionSpec) {
					if i == 1 {
						s.Kind = "bad"
					}
				}))
			}
			f := fixture.FlowsOn(c.Fixture)
			var flows []id.FlowID
			for range 2 {
				spec := engine.FlowSpec{ID: id.NewFlowID(), Nodes: []engine.Node{
					{Key: "0", Spec: engine.ExecutionSpec{Kind: "test"}},
					{Key: "1", Spec: engine.ExecutionSpec{Kind: "test"}},
					{Key: "2", Spec: engine.ExecutionSpec{Kind: "bad"}},
				}}
				f.NewFlowOf(t, spec)
				flows = append(flows, spec.ID)
			}
			locked := map[id.ExecutionID]bool{solos[0]: true}
			for i := range 3 {
				locked[f.NodeID(flows[0], fmt.Sprint(i))] = true
			}
			g := newGated()
			stop := c.Work(t, way.cfg, g.register)
			g.await(t, 21)
			member := f.NodeID(flows[0], "0")
			before := [2]int64{leaseUntil(t, c.Fixture, solos[0]), leaseUntil(t, c.Fixture, member)}

			tx := c.BeginTx(t)
			fixture.LockExecution(t, tx, solos[0])
			fixture.ExecIn(t, tx, "SELECT pg_advisory_xact_lock(ffx_flow_key($1))", flows[0])
			close(g.free)
			for _, s := range c.Next(t, 17) {
				if locked[s.ID] {
					t.Errorf("%s settled as %v while it is locked", s.ID, s.Report)
				}
			}
			later := c.Create(t)
			if s := c.Next(t, 1)[0]; s.ID != later || s.Settlement != worker.Completed {
				t.Errorf("%s settled as %v, want what came later", s.ID, s.Report)
			}
			fixture.Await(t, "the leases of what is locked to be renewed twice over", func() bool {
				return leaseUntil(t, c.Fixture, solos[0]) > before[0]+2*ttl.Milliseconds() &&
					leaseUntil(t, c.Fixture, member) > before[1]+2*ttl.Milliseconds()
			})
			fixture.Commit(t, tx)
			for _, s := range c.Next(t, 4) {
				want := worker.Completed
				if s.Kind == "bad" {
					want = worker.Failed
				}
				if !locked[s.ID] || s.Settlement != want {
					t.Errorf("%s settled as %v, want %v", s.ID, s.Report, want)
				}
			}
			stop()
			g.wantOnce(t, 22)
			if wrong := fixture.Texts(t, c.Pool, `SELECT execution_id || ' ' || public_state FROM ff_exec_core
				WHERE public_state <> CASE raw_fields ->> 'execution_kind' WHEN 'bad' THEN 'failed' ELSE 'completed' END
				OR lease_reclaim_count > 0`); len(wrong) > 0 {
				t.Errorf("ended wrong: %v", wrong)
			}
		})
	}
}

// One locked attempt, locked for longer than half of a lease, keeps no other lease from being renewed, and its own is
// renewed as soon as it is free.
func TestWorkerRenewsBesideALockedAttempt(t *testing.T) {
	c := fixture.NewLoneCrew(t)
	const ttl = 6 * time.Second
	var all []id.ExecutionID
	for range 20 {
		all = append(all, c.Create(t))
	}
	g := newGated()
	stop := c.Work(t, worker.Config{LeaseTTL: ttl}, g.register)
	g.await(t, 20)
	tx := c.BeginTx(t)
	fixture.LockAttempt(t, tx, all[0], 0)
	before := leaseUntil(t, c.Fixture, all[0])
	fixture.Await(t, "the other leases to be renewed twice", func() bool {
		for _, x := range all[1:] {
			if leaseUntil(t, c.Fixture, x) < before+(ttl*6/10).Milliseconds() {
				return false
			}
		}
		return true
	})
	if until := leaseUntil(t, c.Fixture, all[0]); until != before {
		t.Errorf("the locked lease was renewed until %d", until)
	}
	fixture.Commit(t, tx)
	fixture.Await(t, "the lease that was locked to be renewed", func() bool { return leaseUntil(t, c.Fixture, all[0]) > before })
	close(g.free)
	for _, s := range c.Next(t, 20) {
		if s.Settlement != worker.Completed {
			t.Errorf("%s settled as %v", s.ID, s.Report)
		}
	}
	stop()
	g.wantOnce(t, 20)
	if lost := fixture.Texts(t, c.Pool, "SELECT execution_id::text FROM ff_exec_core WHERE lease_reclaim_count > 0"); len(lost) > 0 {
		t.Errorf("lost leases: %v", lost)
	}
}
