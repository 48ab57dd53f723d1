package contender

import (
	"context"
	"errors"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"golang.org/x/sync/errgroup"
)

// Steps implements [Stepper].
func (d *DBOS) Steps(ctx context.Context, n, steps, atOnce int) (took time.Duration, err error) {
	err = d.withWorkflow(ctx, func(ctx dbos.Context, _ int) (int, error) {
		for num := range steps {
			if _, err := dbos.RunAsStep(ctx, noStep(num)); err != nil {
				return 0, err
			}
		}
		return 0, nil
	}, timed(n, atOnce, &took))
	return took, err
}

// timed runs n workflows, so many at once, and notes the time.
func timed(n, atOnce int, took *time.Duration) func(dbos.Context, dbos.Workflow[int, int]) error {
	return func(c dbos.Context, workflow dbos.Workflow[int, int]) error {
		began := time.Now()
		var running errgroup.Group
		running.SetLimit(atOnce)
		for num := range n {
			running.Go(func() error {
				handle, err := dbos.RunWorkflow(c, workflow, num)
				if err != nil {
					return err
				}
				_, err = handle.GetResult()
				return err
			})
		}
		err := running.Wait()
		*took = time.Since(began)
		return err
	}
}

// LoneSteps implements [Stepper].
func (d *DBOS) LoneSteps(ctx context.Context, n int) (took []time.Duration, err error) {
	err = d.withWorkflow(ctx, func(ctx dbos.Context, _ int) (int, error) {
		for num := range n {
			began := time.Now()
			if _, err := dbos.RunAsStep(ctx, noStep(num)); err != nil {
				return 0, err
			}
			took = append(took, time.Since(began))
		}
		return 0, nil
	}, func(c dbos.Context, workflow dbos.Workflow[int, int]) error {
		handle, err := dbos.RunWorkflow(c, workflow, 0)
		if err != nil {
			return err
		}
		_, err = handle.GetResult()
		return err
	})
	return took, err
}

// withWorkflow calls do in a process of DBOS with the workflow.
func (d *DBOS) withWorkflow(ctx context.Context, workflow dbos.Workflow[int, int], do func(dbos.Context, dbos.Workflow[int, int]) error) error {
	c, err := d.open(ctx)
	if err != nil {
		return err
	}
	dbos.RegisterWorkflow(c, workflow, dbos.WithWorkflowName(dbosKind))
	if err = dbos.Launch(c); err == nil {
		err = do(c, workflow)
	}
	return errors.Join(err, dbos.Shutdown(c, time.Minute))
}
