package upkeep

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/outbox"
)

// Readers of an outbox wait at a missing id while a transaction that may have taken the id is open. During the wait
// readers don't receive later events of other transactions, however old. So trimming stops at the first id that may
// still be open. The lock table shows the open ids, as for readers: first read the position of the sequence, then the
// possible writers. When all possible writers have ended, every id up to the position is final.

// finality has, for one outbox, the id below which nothing is open, and the next position, which writers may still be
// below.
type finality struct {
	upTo    int64
	next    int64
	writers map[string]bool // nil if there is no next position
}

// finalities has the finality of each outbox.
type finalities struct {
	mu sync.Mutex
	of map[string]finality
}

// writersPauses are the pauses between checks for open writers. Most end within one commit.
var writersPauses = [...]time.Duration{2 * time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond}

// finalEvents returns the ids below which nothing is open in the outboxes, as far as known. If writers have not ended
// after a moment, the result has the previous ids, and the next call checks the same writers.
func (u *Upkeep) finalEvents(ctx context.Context) (map[string]int64, error) {
	positions, err := u.c.Q.ListOutboxPositions(ctx, u.c.Reader())
	if err != nil {
		return nil, err
	}
	current := make(map[string]int64, len(positions))
	for _, p := range positions {
		if !p.Readable {
			return nil, fmt.Errorf("%w: %w", fferr.ErrDenied, &outbox.DeniedError{Role: p.RoleName, Sequence: p.SequenceName})
		}
		current[p.Outbox] = p.LastEventID
	}
	var now map[string]finality
	for look := 0; ; look++ {
		rows, err := u.c.Q.ListOutboxesWriters(ctx, u.c.Reader())
		if err != nil {
			return nil, err
		}
		writers := make(map[string][]db.ListOutboxesWritersRow)
		for _, row := range rows {
			writers[row.Outbox] = append(writers[row.Outbox], row)
		}
		if now == nil {
			now = u.trimmed.final.begin(current, writers)
		}
		open := false
		for name, f := range now {
			now[name] = f.settle(writers[name])
			open = open || now[name].writers != nil
		}
		if !open || look == len(writersPauses) || u.c.Tx != nil { // don't delay a caller's transaction
			break
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(writersPauses[look]):
		}
	}
	return u.trimmed.final.keep(now), nil
}

// begin returns the known positions, and records the present writers for outboxes that wait for none. A sequence that
// went back, after a crash or a restore, may assign final ids again.
func (p *finalities) begin(current map[string]int64, writers map[string][]db.ListOutboxesWritersRow) map[string]finality {
	p.mu.Lock()
	defer p.mu.Unlock()
	begun := make(map[string]finality, len(current))
	for outbox, position := range current {
		f := p.of[outbox]
		if position < f.upTo || position < f.next {
			f = finality{}
		}
		if f.writers != nil {
			f = f.settle(writers[outbox])
		}
		if f.writers == nil {
			f.next, f.writers = position, make(map[string]bool)
			for _, w := range writers[outbox] {
				f.writers[w.VirtualTransaction] = true
			}
		}
		begun[outbox] = f
	}
	return begun
}

// settle returns f with the next id as final if no recorded writer is among the present ones. A prepared transaction
// has another name, so it may be any recorded writer.
func (f finality) settle(now []db.ListOutboxesWritersRow) finality {
	if f.writers == nil {
		return f
	}
	for _, w := range now {
		if w.Prepared || f.writers[w.VirtualTransaction] {
			return f
		}
	}
	return finality{upTo: f.next}
}

func (p *finalities) keep(now map[string]finality) map[string]int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of = now
	upTo := make(map[string]int64, len(now))
	for outbox, f := range now {
		upTo[outbox] = f.upTo
	}
	return upTo
}

// trimPositions are where the next [Upkeep.TrimOutboxes] continues in each outbox. Until a vacuum, deleted events
// still precede the oldest one.
type trimPositions struct {
	mu    sync.Mutex
	after map[string]int64
	begun map[string]time.Time
	final finalities
}
