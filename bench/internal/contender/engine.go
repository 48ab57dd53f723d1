package contender

import (
	"context"

	"github.com/flowfabric/flowfabric-go/engine"
)

// Engine is package engine in a loop, without a worker.
type Engine struct{ *ours }

// Name implements [Contender].
func (*Engine) Name() string { return "engine, claimed and completed in a loop" }

// Run implements [Contender].
func (e *Engine) Run(ctx context.Context, w Work) error {
	return runLoops(ctx, w, func() (loop[engine.Claimed], error) {
		c, err := e.claimer()
		return loop[engine.Claimed]{claim: c.Claim, complete: e.complete, num: func(c engine.Claimed) int { return num(c.Payload) }}, err
	})
}

func (e *Engine) complete(ctx context.Context, claimed []engine.Claimed) error {
	completions := make([]engine.Completion, len(claimed))
	for i := range claimed {
		completions[i].Lease = claimed[i].Lease
	}
	outcomes, err := e.eng.CompleteExecutions(ctx, completions)
	if err != nil {
		return err
	}
	for _, err := range outcomes {
		if err != nil {
			return err
		}
	}
	return nil
}
