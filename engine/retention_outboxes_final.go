package engine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/internal/outbox"
)

// Readers of an outbox wait at an id that is missing while a transaction that may have taken it is open. What was committed
// behind it by others they have not been handed yet, however old it has become. So trimming goes up to an id only below
// which nothing is open any more. As for readers, the lock table tells: the position of the sequence is read first, then
// who may have written; once all of those have ended, every id up to that position is final.

// finality is, of one outbox, the id up to which nothing is open, and the next one, which the writers may still be below.
type finality struct {
	upTo    int64
	next    int64
	writers map[string]bool // nil: there is no next
}

// finalities are those of the four outboxes.
type finalities struct {
	mu sync.Mutex
	of map[string]finality
}

// writersPauses are between the looks at writers that have not ended yet. Most do within one commit.
var writersPauses = [...]time.Duration{2 * time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond}

// finalEvents returns the ids up to which nothing is open in the outboxes, as far as is known. Where writers have not ended
// after a moment it is what was known before, and the next call asks for the same writers.
func (e *Engine) finalEvents(ctx context.Context) (map[string]int64, error) {
	positions, err := e.q.ListOutboxPositions(ctx, e.reader())
	if err != nil {
		return nil, err
	}
	current := make(map[string]int64, len(positions))
	for _, p := range positions {
		if !p.Readable {
			return nil, fmt.Errorf("%w: %w", ErrDenied, &outbox.DeniedError{Role: p.RoleName, Sequence: p.SequenceName})
		}
		current[p.Outbox] = p.LastEventID
	}
	var now map[string]finality
	for look := 0; ; look++ {
		rows, err := e.q.ListOutboxesWriters(ctx, e.reader())
		if err != nil {
			return nil, err
		}
		writers := make(map[string][]db.ListOutboxesWritersRow)
		for _, row := range rows {
			writers[row.Outbox] = append(writers[row.Outbox], row)
		}
		if now == nil {
			now = e.trimmed.final.begin(current, writers)
		}
		open := false
		for name, f := range now {
			now[name] = f.settle(writers[name])
			open = open || now[name].writers != nil
		}
		if !open || look == len(writersPauses) || e.tx != nil { // a caller's transaction is not to be held up
			break
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(writersPauses[look]):
		}
	}
	return e.trimmed.final.keep(now), nil
}

// begin returns what is known, and asks for the writers of now where nobody is waited for. A sequence that has stepped
// back, by a crash or a restore, may give out ids again that were final.
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

// settle returns f with its next id as final when none of its writers is among those of now. One that is prepared may be
// any of them: it has another name then.
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
