package contender

import (
	"context"
	"errors"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/explain"
	"github.com/flowfabric/flowfabric-go/id"
)

// probePriority puts the executions of a [Probe] in front of all others of their lane.
const probePriority = 9

// Probe does each operation of the life of an execution on its own, in a database with other work.
type Probe struct {
	o       *ours
	claimer *engine.Claimer
	claimed []engine.Claimed
	last    id.ExecutionID // waits
}

// Probe returns a probe with n executions to claim.
func (o *ours) Probe(ctx context.Context, n int) (*Probe, error) {
	claimer, err := o.claimer()
	if err != nil {
		return nil, err
	}
	jobs := make([]Job, n)
	for i := range jobs {
		jobs[i].Priority = probePriority
	}
	if n > 0 {
		err = o.Insert(ctx, jobs)
	}
	return &Probe{o: o, claimer: claimer}, err
}

// Create creates an execution behind all others.
func (p *Probe) Create(ctx context.Context) error {
	created, err := p.o.eng.CreateExecution(ctx, spec(Job{}))
	p.last = created.ID
	return err
}

// Claim claims n executions.
func (p *Probe) Claim(ctx context.Context, n int) (err error) {
	if p.claimed, err = p.claimer.Claim(ctx, n); err == nil && len(p.claimed) == 0 {
		err = errors.New("nothing is left to claim")
	}
	return err
}

// Complete completes the claimed executions.
func (p *Probe) Complete(ctx context.Context) error {
	outcomes, err := p.o.eng.CompleteExecutions(ctx, completions(p.claimed))
	return errors.Join(append(outcomes, err)...)
}

// List reads the first page of all executions.
func (p *Probe) List(ctx context.Context) error {
	_, err := p.o.eng.ListExecutions(ctx, engine.ExecutionFilter{}, "", 50)
	return err
}

// Explain explains why the last created execution waits.
func (p *Probe) Explain(ctx context.Context) error {
	found, err := explain.Execution(ctx, p.o.eng, p.last)
	if err == nil && len(found.Causes) == 0 {
		err = errors.New("no cause is known")
	}
	return err
}
