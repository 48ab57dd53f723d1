package scenario

import (
	"context"
	"fmt"

	"github.com/flowfabric/flowfabric-go/bench/internal/contender"
)

// history compares the library with itself on a database that keeps no lease events, and on one whose server drops the
// inserts into lease history and outbox. The difference between 1 and the ratios is their cost.
func history(ctx context.Context, b *Bench) error {
	measured := fmt.Sprintf("burn-down of %d executions; the peer is the same library with no lease event kept; the floor on a server that drops what its statements insert into lease history and outbox", b.N)
	return b.compare(ctx, measured, b.Rounds, lineup{ours: b.Field.Worker, peer: b.Field.Lean, floor: b.Field.Forgetful}, burn("burn-down, beside one without lease history and outbox", b.N, contender.Work{}))
}
