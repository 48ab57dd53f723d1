package contender

import (
	"context"
	"errors"

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
		return loop[engine.Claimed]{
			claim: c.Claim,
			complete: func(ctx context.Context, claimed []engine.Claimed) error {
				outcomes, err := e.eng.CompleteExecutions(ctx, completions(claimed))
				return errors.Join(append(outcomes, err)...)
			},
			completeAndClaim: func(ctx context.Context, claimed []engine.Claimed, n int) ([]engine.Claimed, error) {
				outcomes, next, err := c.CompleteAndClaim(ctx, completions(claimed), n)
				return next, errors.Join(append(outcomes, err)...)
			},
			payload: func(c engine.Claimed) []byte { return c.Payload },
		}, err
	})
}

func completions(claimed []engine.Claimed) []engine.Completion {
	completions := make([]engine.Completion, len(claimed))
	for i := range claimed {
		completions[i].Lease = claimed[i].Lease
	}
	return completions
}
