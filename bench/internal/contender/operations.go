package contender

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/flowfabric/flowfabric-go/engine"
)

// Operator is a contender whose operations can be called one at a time.
type Operator interface {
	Contender
	// Operations returns the operations, which use the given pool. Operations with the same name are comparable between
	// contenders.
	Operations(pool *pgxpool.Pool) ([]Operation, error)
}

// Operation is one call.
type Operation struct {
	Name string
	// Ready prepares the next call.
	Ready func(ctx context.Context) (Call, error)
}

// Call is a prepared operation and its cleanup.
type Call struct {
	Do    func(ctx context.Context) error
	After func(ctx context.Context) error // nil for no cleanup
}

// operations are the functions of one side. A nil function is an operation a contender lacks.
type operations struct {
	pool *pgxpool.Pool

	insert     func(ctx context.Context, jobs []Job) error
	insertTx   func(ctx context.Context, tx pgx.Tx, job Job) error
	insertFlow func(ctx context.Context) error
	claim      func(ctx context.Context, n int) (held, error)
	cancel     func(ctx context.Context) (func(context.Context) error, error) // of a created job
}

// held is claimed jobs.
type held struct {
	complete   func(ctx context.Context) error
	completeTx func(ctx context.Context, tx pgx.Tx) error
	renew      func(ctx context.Context) error
	next       func(ctx context.Context) error // completes, and claims as many again
}

// list returns the operations, in the order of a user's needs.
func (o operations) list() []Operation {
	numbered := func(n int) []Job {
		jobs := make([]Job, n)
		for i := range jobs {
			jobs[i].Num = i
		}
		return jobs
	}
	all := []Operation{
		{"create one", func(context.Context) (Call, error) {
			return Call{Do: func(ctx context.Context) error { return o.insert(ctx, numbered(1)) }}, nil
		}},
		{"create one in the caller's transaction", func(ctx context.Context) (Call, error) {
			return o.within(ctx, func(ctx context.Context, tx pgx.Tx) error { return o.insertTx(ctx, tx, Job{}) })
		}},
	}
	for _, n := range []int{100, 1000, 10_000} {
		all = append(all, Operation{fmt.Sprintf("create %d", n), func(context.Context) (Call, error) {
			jobs := numbered(n)
			return Call{Do: func(ctx context.Context) error { return o.insert(ctx, jobs) }}, nil
		}})
	}
	if o.insertFlow != nil {
		all = append(all, Operation{"create a flow of ten", func(context.Context) (Call, error) {
			return Call{Do: o.insertFlow}, nil
		}})
	}
	for _, n := range []int{1, 10, 100} {
		all = append(all, Operation{fmt.Sprintf("claim %d", n), func(ctx context.Context) (Call, error) {
			err := o.insert(ctx, numbered(n))
			var claimed held
			return Call{
				Do:    func(ctx context.Context) (err error) { claimed, err = o.claim(ctx, n); return err },
				After: func(ctx context.Context) error { return claimed.complete(ctx) },
			}, err
		}})
	}
	of := func(name string, n int, do func(held) func(context.Context) error) {
		all = append(all, Operation{name, func(ctx context.Context) (Call, error) {
			if err := o.insert(ctx, numbered(2*n)); err != nil { // the next claim needs jobs too
				return Call{}, err
			}
			claimed, err := o.claim(ctx, n)
			return Call{Do: do(claimed)}, err
		}})
	}
	of("complete one", 1, func(h held) func(context.Context) error { return h.complete })
	of("complete 100", 100, func(h held) func(context.Context) error { return h.complete })
	all = append(all, Operation{"complete one in the caller's transaction", func(ctx context.Context) (Call, error) {
		if err := o.insert(ctx, numbered(1)); err != nil {
			return Call{}, err
		}
		claimed, err := o.claim(ctx, 1)
		if err != nil {
			return Call{}, err
		}
		return o.within(ctx, claimed.completeTx)
	}})
	if o.insertFlow != nil { // this library
		of("complete one and claim the next", 1, func(h held) func(context.Context) error { return h.next })
		of("renew 100", 100, func(h held) func(context.Context) error { return h.renew })
	}
	return append(all, Operation{"cancel one that waits", func(ctx context.Context) (Call, error) {
		do, err := o.cancel(ctx)
		return Call{Do: do}, err
	}})
}

// within is a call in a transaction begun before and committed after.
func (o operations) within(ctx context.Context, do func(context.Context, pgx.Tx) error) (Call, error) {
	tx, err := o.pool.Begin(ctx)
	return Call{Do: func(ctx context.Context) error { return do(ctx, tx) }, After: func(ctx context.Context) error { return tx.Commit(ctx) }}, err
}

var errTooFew = errors.New("claimed too few")

// Operations implements [Operator]. Notifications use connections of the engine's first pool.
func (o *ours) Operations(pool *pgxpool.Pool) ([]Operation, error) {
	eng := o.eng.WithPool(pool)
	bound := &ours{store: o.store, eng: eng, log: o.log}
	claimer, err := bound.claimer()
	if err != nil {
		return nil, err
	}
	return operations{
		pool:     pool,
		insert:   bound.Insert,
		insertTx: bound.InsertTx,
		insertFlow: func(ctx context.Context) error {
			return bound.InsertFlow(ctx, Graph{Nodes: 10})
		},
		claim: func(ctx context.Context, n int) (held, error) {
			claimed, err := claimer.Claim(ctx, n)
			if err == nil && len(claimed) < n {
				err = errTooFew
			}
			return bound.held(claimer, claimed), err
		},
		cancel: func(ctx context.Context) (func(context.Context) error, error) {
			created, err := eng.CreateExecution(ctx, spec(Job{}))
			return func(ctx context.Context) error {
				return eng.CancelExecution(ctx, engine.CancelSpec{ID: created.ID})
			}, err
		},
	}.list(), nil
}

func (o *ours) held(claimer *engine.Claimer, claimed []engine.Claimed) held {
	complete := func(ctx context.Context, eng *engine.Engine) error {
		outcomes, err := eng.CompleteExecutions(ctx, completions(claimed))
		return errors.Join(append(outcomes, err)...)
	}
	return held{
		complete:   func(ctx context.Context) error { return complete(ctx, o.eng) },
		completeTx: func(ctx context.Context, tx pgx.Tx) error { return complete(ctx, o.eng.WithTx(tx)) },
		renew: func(ctx context.Context) error {
			renewals := make([]engine.Renewal, len(claimed))
			for i := range claimed {
				renewals[i].Lease = claimed[i].Lease
			}
			_, err := o.eng.RenewLeases(ctx, renewals)
			return err
		},
		next: func(ctx context.Context) error {
			outcomes, next, err := claimer.CompleteAndClaim(ctx, completions(claimed), len(claimed))
			if err == nil && len(next) < len(claimed) {
				err = errTooFew
			}
			return errors.Join(append(outcomes, err)...)
		},
	}
}

// Operations implements [Operator]. Fetches and completions are the calls of River's client.
func (r *River) Operations(pool *pgxpool.Pool) ([]Operation, error) {
	driver := riverpgxv5.New(pool)
	client, err := river.NewClient(driver, &river.Config{Logger: r.log})
	if err != nil {
		return nil, err
	}
	bound := &River{pool: pool, log: r.log, insert: client, tuning: r.tuning}
	return operations{
		pool:     pool,
		insert:   bound.Insert,
		insertTx: bound.InsertTx,
		claim: func(ctx context.Context, n int) (held, error) {
			found, err := driver.GetExecutor().JobGetAvailable(ctx, riverFetch(n))
			if err != nil {
				return held{}, err
			}
			if len(found.Jobs) < n {
				return held{}, errTooFew
			}
			complete := func(ctx context.Context, exec riverdriver.Executor) error {
				many := &riverdriver.JobSetStateIfRunningManyParams{}
				for _, job := range found.Jobs {
					one := riverdriver.JobSetStateCompleted(job.ID, time.Now(), nil)
					many.ID = append(many.ID, one.ID)
					many.Attempt = append(many.Attempt, one.Attempt)
					many.ErrData = append(many.ErrData, one.ErrData)
					many.FinalizedAt = append(many.FinalizedAt, one.FinalizedAt)
					many.MetadataDoMerge = append(many.MetadataDoMerge, one.MetadataDoMerge)
					many.MetadataUpdates = append(many.MetadataUpdates, one.MetadataUpdates)
					many.ScheduledAt = append(many.ScheduledAt, one.ScheduledAt)
					many.State = append(many.State, one.State)
				}
				_, err := exec.JobSetStateIfRunningMany(ctx, many)
				return err
			}
			return held{
				complete:   func(ctx context.Context) error { return complete(ctx, driver.GetExecutor()) },
				completeTx: func(ctx context.Context, tx pgx.Tx) error { return complete(ctx, driver.UnwrapExecutor(tx)) },
			}, nil
		},
		cancel: func(ctx context.Context) (func(context.Context) error, error) {
			job := riverJob(Job{})
			inserted, err := client.Insert(ctx, job.Args, job.InsertOpts)
			if err != nil {
				return nil, err
			}
			return func(ctx context.Context) error { _, err := client.JobCancel(ctx, inserted.Job.ID); return err }, nil
		},
	}.list(), nil
}
