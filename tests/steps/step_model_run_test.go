package steps

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

// walk calls a function for each step and wait of a program, in the order in which they run.
func walk(ops []op, path []any, visit func(o op, name string)) {
	for _, o := range ops {
		name := worker.Key(o.name, path...)
		switch o.kind {
		case "loop":
			for i := range o.times {
				walk(o.children, append(path, i), visit)
			}
			continue
		case "nested":
			walk(o.children, path, visit)
		}
		visit(o, name)
	}
}

// interpret returns the results of a program from those of its stored steps.
func (m *stepModel) interpret(ops []op, path ...any) (results []string) {
	for _, o := range ops {
		name := worker.Key(o.name, path...)
		switch o.kind {
		case "plain", "tx":
			results = append(results, strings.Trim(string(m.stored[name].Result), `"`))
		case "wait":
			results = append(results, "signal "+name)
		case "turn":
			if o.end == "await" {
				results = append(results, "signal "+name)
			}
		case "call":
			results = append(results, strings.Join(slices.Repeat([]string{strings.ToUpper(name)}, o.times), "+"))
		case "nested":
			results = append(results, "("+strings.Join(m.interpret(o.children, path...), " ")+")")
		case "loop":
			for i := range o.times {
				results = append(results, m.interpret(o.children, append(path, i)...)...)
			}
		}
	}
	return results
}

// run lets a worker run until it has settled an execution, or is stopped. A claim that the drain interrupted leaves a
// lease behind.
func (m *stepModel) run() error {
	jobs := upkeep.Of(m.later)
	for _, job := range []func(context.Context, int) (int, error){jobs.ExpireLeases, jobs.PromoteDelayed, jobs.ResumeCallers} {
		if _, err := job(m.t.Context(), 10); err != nil {
			return err
		}
	}
	ctx, stop := context.WithCancel(m.t.Context())
	defer stop()
	w, err := worker.New(m.eng, worker.Config{
		Lanes: []worker.Lane{{Name: m.c.Lane}}, Concurrency: 1, DrainTimeout: time.Millisecond, PollInterval: 20 * time.Millisecond, NoReconcile: true, SharePool: true,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Observer: hookFunc(func(_ id.ExecutionID, report worker.Report) {
			m.note("  settled: %s %v", report.Settlement, report.Err)
			stop()
		}),
	})
	if err != nil {
		return err
	}
	worker.Handle(w, singer(m.c.Lane), loud)
	fixture.HandleKind(w, "program", func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
		p := &playing{stepModel: m, job: job, stop: stop}
		m.playing.Add(1)
		defer m.playing.Add(-1)
		m.mu.Lock()
		if m.runs < len(m.crashes) {
			p.crash = m.crashes[m.runs]
		}
		m.runs++
		m.mu.Unlock()
		m.note("run %d, epoch %d", m.runs, job.Lease.Epoch)
		results, err := p.do(ctx, m.program)
		return strings.Join(results, " "), err
	})
	var beside sync.WaitGroup
	beside.Go(func() { m.expireOrphans(ctx) })
	err = w.Run(ctx)
	stop()
	beside.Wait()
	return err
}

// expireOrphans expires a lease that no handler has, until ctx ends: a cut connection may have lost the answer to a claim.
// Expiring the lease of a handler that is about to begin is one more crash.
func (m *stepModel) expireOrphans(ctx context.Context) {
	looks := time.NewTicker(100 * time.Millisecond)
	defer looks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-looks.C:
		}
		if m.playing.Load() == m.rivals.Load() {
			if _, err := upkeep.Of(m.later).ExpireLeases(ctx, 10); err != nil {
				return
			}
		}
	}
}

// playing is a run of a handler.
type playing struct {
	*stepModel
	job    worker.Job[struct{}]
	stop   func()
	crash  crash
	places int
	lost   bool     // a rival has gone on with the execution
	sofar  []string // results of the program
}

var errCrash = errors.New("the attempt fails")

// come comes to the next place of a run, where it may crash.
func (p *playing) come(ctx context.Context, where string) error {
	if p.places++; p.places != p.crash.place {
		return nil
	}
	p.note("  %s %s", p.crash.how, where)
	switch p.crash.how {
	case "panic":
		panic(errCrash)
	case "failure":
		return errCrash
	case "lost lease":
		_, err := upkeep.Of(p.later).ExpireLeases(p.t.Context(), 10)
		return err
	case "rival":
		p.rivals.Add(1)
		defer p.rivals.Add(-1)
		_, err := upkeep.Of(p.later).ExpireLeases(p.t.Context(), 10)
		p.lost = true
		return errors.Join(err, p.run())
	case "cut connections":
		_, err := p.c.Pool.Exec(p.t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1", string(p.c.Lane))
		return err
	}
	p.stop()
	<-ctx.Done()
	return nil
}

// do runs a program and returns its results.
func (p *playing) do(ctx context.Context, ops []op, path ...any) (results []string, err error) {
	for _, o := range ops {
		if o.kind == "loop" {
			for i := range o.times {
				some, err := p.do(ctx, o.children, append(path, i)...)
				if results = append(results, some...); err != nil {
					return nil, err
				}
			}
			continue
		}
		name := worker.Key(o.name, path...)
		if err := p.come(ctx, "before "+name); err != nil {
			return nil, err
		}
		p.sofar = results
		result, err := p.step(ctx, o, name, path)
		if err != nil {
			return nil, err
		}
		if o.kind != "sleep" && (o.kind != "turn" || o.end == "await") {
			results = append(results, result)
		}
		if err := p.come(ctx, "after "+name); err != nil {
			return nil, err
		}
	}
	return results, nil
}

func (p *playing) step(ctx context.Context, o op, name string, path []any) (string, error) {
	var options []worker.StepOption
	if o.retried {
		options = append(options, worker.Retry(*policy.ImmediateRetries(2)))
	}
	switch o.kind {
	case "plain":
		return worker.Step(ctx, p.job, name, func(ctx context.Context) (string, error) {
			_, err := p.c.Pool.Exec(p.t.Context(), `INSERT INTO effect SELECT $1, $2, $3, NOT $5 AND EXISTS (
				SELECT FROM ffx_step WHERE partition_key = $4 AND execution_id = $1 AND name = $2)`,
				p.x.UUID(), name, worker.IdempotencyKey(ctx), p.x.Partition(), p.lost)
			if err != nil {
				return "", err
			}
			return p.call(ctx, o, name)
		}, options...)
	case "tx":
		return worker.StepTx(ctx, p.job, name, func(ctx context.Context, tx pgx.Tx) (string, error) {
			if _, err := tx.Exec(ctx, "INSERT INTO booked VALUES ($1, $2, '')", p.x.UUID(), name); err != nil {
				return "", err
			}
			return p.call(ctx, o, name)
		}, options...)
	case "sleep":
		return "", worker.Sleep(ctx, p.job, name, time.Millisecond)
	case "wait":
		return goOn(name).Await(ctx, p.job, engine.Wait{})
	case "call":
		if o.times == 1 {
			return worker.Call(ctx, p.job, name, singer(p.c.Lane), name)
		}
		all, err := worker.CallAll(ctx, p.job, name, singer(p.c.Lane), slices.Repeat([]string{name}, o.times))
		return strings.Join(all, "+"), err
	case "turn":
		return p.turn(ctx, o, name, options)
	}
	return worker.Step(ctx, p.job, name, func(ctx context.Context) (string, error) {
		results, err := p.do(ctx, o.children, path...)
		return "(" + strings.Join(results, " ") + ")", err
	})
}

// turn is a turn, and the wait behind it, if it asks for one.
func (p *playing) turn(ctx context.Context, o op, name string, options []worker.StepOption) (string, error) {
	err := worker.Turn(ctx, p.job, name, func(ctx context.Context, tx pgx.Tx, t *worker.TurnTx) error {
		if _, err := p.call(ctx, o, name); err != nil { // first, so that no rival waits for a lock of the turn
			return err
		}
		if _, err := tx.Exec(ctx, "INSERT INTO booked VALUES ($1, $2, '')", p.x.UUID(), name); err != nil {
			return err
		}
		if _, err := t.Engine().CreateExecution(ctx, engine.ExecutionSpec{Lane: beside(p.c.Lane), Kind: "child of " + name}); err != nil {
			return err
		}
		if err := goOn(name).Send(ctx, t.Engine(), p.other, "", engine.From("turn", name)); err != nil {
			return err
		}
		switch o.end {
		case "sleep":
			return t.Sleep(time.Millisecond)
		case "await":
			return t.Await(goOn(name).Received(), engine.Wait{})
		case "complete":
			return t.Complete(strings.Join(p.sofar, " "))
		}
		return nil
	}, options...)
	if err != nil || o.end != "await" {
		return "", err
	}
	return goOn(name).Await(ctx, p.job, engine.Wait{})
}

// call is the end of a step's function: it fails in its first calls, and returns another result each time.
func (p *playing) call(ctx context.Context, o op, name string) (string, error) {
	p.mu.Lock()
	p.calls[name]++
	n := p.calls[name]
	p.mu.Unlock()
	if n <= o.fails {
		return "", fmt.Errorf("call %d of %s", n, name)
	}
	return fmt.Sprintf("%s#%d", name, n), p.come(ctx, "in "+name)
}
