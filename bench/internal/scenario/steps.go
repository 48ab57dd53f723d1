package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/flowfabric/flowfabric-go/bench/internal/contender"
)

const (
	stepsOfJob = 10

	// Of the largest run.
	resumeSteps = 1000
	resumeJobs  = 20
	loneSteps   = 2000
)

var errNoSteps = errors.New("has no steps")

// steps measures jobs of ten steps, and lone steps.
func steps(ctx context.Context, b *Bench) error {
	l := lineup{ours: b.Field.Worker, peer: b.Field.DBOS, floor: b.Field.Raw}
	n := max(200, b.N/50)
	for _, atOnce := range []int{16, 200} {
		measured := fmt.Sprintf("%d jobs of %d steps that do nothing, %d at once, with their creation; the floor stores the steps of all jobs that run at once by one statement", n, stepsOfJob, atOnce)
		err := b.compare(ctx, measured, b.Rounds, l, func(ctx context.Context, c contender.Contender) ([]reading, error) {
			s, ok := c.(contender.Stepper)
			if !ok {
				return nil, errNoSteps
			}
			took, err := s.Steps(ctx, n, stepsOfJob, atOnce)
			return []reading{{
				name: fmt.Sprintf("steps, %d jobs at once", atOnce), unit: "steps/s", value: float64(n*stepsOfJob) / took.Seconds(),
			}}, err
		})
		if err != nil {
			return err
		}
	}
	for _, size := range []int{16, 200} {
		batches := max(20, b.N/10/size)
		measured := fmt.Sprintf("%d batches of %d steps of as many jobs, one after the other, without a worker", batches, size)
		err := b.compare(ctx, measured, b.Rounds, lineup{ours: b.Field.Engine, floor: b.Field.Raw}, func(ctx context.Context, c contender.Contender) ([]reading, error) {
			s, ok := c.(contender.StepBatcher)
			if !ok {
				return nil, errNoSteps
			}
			took, err := s.StepBatches(ctx, size, batches)
			return []reading{{
				name: fmt.Sprintf("steps in batches of %d, engine alone", size), unit: "steps/s", value: float64(size*batches) / took.Seconds(),
			}}, err
		})
		if err != nil {
			return err
		}
	}
	n = min(loneSteps, 2*warmSteps+b.N/50)
	measured := fmt.Sprintf("%d steps of one job, one after the other; the floor is an INSERT of the step's row alone", n)
	return b.compare(ctx, measured, b.Rounds, l, func(ctx context.Context, c contender.Contender) ([]reading, error) {
		s, ok := c.(contender.Stepper)
		if !ok {
			return nil, errNoSteps
		}
		took, err := s.LoneSteps(ctx, n)
		return afterFirst("a lone step", took, err)
	})
}

// resumes measures second runs behind many finished steps.
func resumes(ctx context.Context, b *Bench) error {
	jobs, finished := min(resumeJobs, 2+b.N/5000), min(resumeSteps, b.N/100)
	measured := fmt.Sprintf("%d jobs, one at a time, that run again behind %d finished steps; from the handler's start", jobs, finished)
	return b.compare(ctx, measured, b.Rounds, lineup{ours: b.Field.Worker}, func(ctx context.Context, c contender.Contender) ([]reading, error) {
		r, ok := c.(contender.Resumer)
		if !ok {
			return nil, errNoSteps
		}
		took, err := r.Resume(ctx, jobs, finished)
		return latencies(fmt.Sprintf("resumed behind %d steps", finished), took), err
	})
}

// turns measures transactions with a step.
func turns(ctx context.Context, b *Bench) error {
	measured, m := turnsOf(b, "a turn")
	return b.compare(ctx, measured, b.Rounds, lineup{ours: b.Field.Worker, floor: b.Field.Raw}, m)
}

// turnsOf returns a description and the measurement of turns.
func turnsOf(b *Bench, name string) (string, measure) {
	n := min(loneSteps, 2*warmSteps+b.N/50)
	measured := fmt.Sprintf("%d turns of one job, one after the other, each with an INSERT of the user's; the floor is the transaction with that INSERT alone", n)
	return measured, func(ctx context.Context, c contender.Contender) ([]reading, error) {
		t, ok := c.(contender.Turner)
		if !ok {
			return nil, errNoSteps
		}
		took, err := t.Turns(ctx, n)
		return afterFirst(name, took, err)
	}
}

// warmSteps open the connections and make the plans.
const warmSteps = 50

func afterFirst(name string, took []time.Duration, err error) ([]reading, error) {
	if err != nil {
		return nil, err
	}
	return latencies(name, took[min(len(took)-1, warmSteps):]), nil
}

// besideDBOS measures executions without steps beside queued workflows.
func besideDBOS(ctx context.Context, b *Bench) error {
	n := max(200, b.N/20)
	l := lineup{ours: b.Field.Worker, peer: b.Field.DBOS}
	measured := fmt.Sprintf("%d no-op executions; the peer's are workflows of a queue that is polled every 5 ms, counted every 20 ms", n)
	if err := b.compare(ctx, measured, b.Rounds, l, burn("burn-down beside queued workflows", n, contender.Work{})); err != nil {
		return err
	}
	n = max(5, min(idleTotal, b.N/20)/b.Rounds)
	measured = fmt.Sprintf("%d executions, one every %s while nothing else happens; from when the insert returned to the handler's start", n, idleFor)
	return b.compare(ctx, measured, b.Rounds, l, func(ctx context.Context, c contender.Contender) ([]reading, error) {
		waits, err := oneByOne(ctx, c, n)
		if err != nil {
			return nil, err
		}
		return latencies("commit to start, beside queued workflows", waits), nil
	})
}
