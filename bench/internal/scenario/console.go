package scenario

import (
	"context"
	"fmt"

	"github.com/flowfabric/flowfabric-go/bench/internal/contender"
)

// openPages is the number of live pages of the console.
const openPages = 20

// watched measures no-op work beside open pages of the console, and without.
func watched(ctx context.Context, b *Bench) error {
	with := fmt.Sprintf("beside %d pages", openPages)
	measured := fmt.Sprintf("%d no-op executions burnt down by a worker, while %d live pages of the console are open; the peer is the same without them", b.N, openPages)
	l := lineup{ours: &contender.Watched{Worker: b.Field.Worker, Pages: openPages}, peer: b.Field.Worker}
	return b.compare(ctx, measured, b.Rounds, l, b.createAndBurn(with))
}
