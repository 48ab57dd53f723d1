package scenario

import (
	"context"
	"fmt"

	"github.com/flowfabric/flowfabric-go/bench/internal/contender"
)

// mixed puts jobs first that no worker may take: at the highest priority, requiring a capability no worker has. For
// River they have a kind its client does not know and has to leave in the queue.
func mixed(ctx context.Context, b *Bench) error {
	const highest = 3
	reserved := b.N / 10
	jobs := make([]contender.Job, reserved+b.N)
	for i := range jobs {
		if i < reserved {
			jobs[i] = contender.Job{Num: i, Priority: highest, Reserved: true}
		} else {
			jobs[i] = contender.Job{Num: i, Priority: i % (highest + 1)}
		}
	}
	peer := contender.RiverBench()
	peer.Name += ", known kinds only"
	peer.KnownKindsOnly = true
	measured := fmt.Sprintf("%d executions of four priorities behind %d of the highest that fit nobody", b.N, reserved)
	return b.compare(ctx, measured, b.Rounds, lineup{b.Field.Worker, b.Field.River.Tuned(peer), b.Field.Raw}, func(ctx context.Context, c contender.Contender) ([]reading, error) {
		if err := enqueue(ctx, c, jobs); err != nil {
			return nil, err
		}
		rate, err := drain(ctx, c, contender.Work{}, b.N)
		if err != nil {
			return nil, err
		}
		return []reading{{name: "burn-down, first rows fit nobody", unit: "executions/s", value: rate}}, c.Check(ctx, b.N)
	})
}
