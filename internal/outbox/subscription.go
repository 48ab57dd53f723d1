package outbox

import (
	"context"
	"errors"
	"sync"
	"time"
)

const maxPage = 1024 // of events read by a subscription itself

// Subscription is one reader of an outbox. Next and Batch must be called by one goroutine at a time; other methods by
// any.
type Subscription struct {
	tailer  *tailer
	filter  Filter
	buffer  int
	notices bool
	stop    func() bool // watching the context of Subscribe

	// Guarded by t.mu of the tailer: whether the tailer delivers to s.
	attached bool

	mu     sync.Mutex
	queue  []*Row
	seen   int64 // the last event examined
	given  int64 // the last event returned, or a later one examined while none waited
	notice bool
	err    error // the reason for the end, once queue is empty
	closed error // the reason for the end
	ready  chan struct{}
	over   chan struct{}
	left   chan struct{} // closed after the tailer's last use

	interrupt context.CancelFunc // of a read by the subscription itself
	reading   sync.Mutex         // held during such a read

	retry time.Duration // only for the reader
}

// Next waits for the next event and returns it. An event is returned at most once; a call whose ctx ends takes none.
//
// Errors: [*DisconnectedError], after which the subscription continues. [*GapError], [*NotKeptError], [*AheadError],
// [*UnreadableError], [ErrClosed] and the error of the context of Subscribe end it. Or ctx's.
func (s *Subscription) Next(ctx context.Context) (*Row, error) {
	for {
		row, err := s.pop()
		if row != nil || err != nil {
			return row, err
		}
		if err := s.fill(ctx); err != nil {
			return nil, err
		}
	}
}

// Batch is [Subscription.Next] for all waiting events, at least one and at most limit.
func (s *Subscription) Batch(ctx context.Context, limit int) ([]*Row, error) {
	for {
		s.mu.Lock()
		rows, err := s.take(limit)
		s.mu.Unlock()
		if len(rows) > 0 || err != nil {
			return rows, err
		}
		if err := s.fill(ctx); err != nil {
			return nil, err
		}
	}
}

func (s *Subscription) pop() (*Row, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows, err := s.take(1)
	if len(rows) == 0 {
		return nil, err
	}
	return rows[0], nil
}

// take returns waiting events, or an error before or after them.
func (s *Subscription) take(limit int) ([]*Row, error) {
	switch {
	case s.closed != nil:
		return nil, s.closed
	case s.notice:
		s.notice = false
		return nil, &DisconnectedError{Outbox: s.tailer.source.name, Position: s.given}
	case len(s.queue) == 0:
		return nil, s.err
	}
	rows := s.queue[:min(limit, len(s.queue)):min(limit, len(s.queue))]
	s.queue = s.queue[len(rows):]
	s.given = rows[len(rows)-1].ID
	if len(s.queue) == 0 {
		s.queue, s.given = nil, s.seen
	}
	return rows, nil
}

// fill waits until there may be events to take. If the tailer has detached s, fill reads them.
func (s *Subscription) fill(ctx context.Context) error {
	if !s.tailer.hands(s) {
		return s.catchUp(ctx)
	}
	select {
	case <-s.ready:
		return nil
	case <-s.over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// catchUp reads the next page of events between s and the tailer. If there are none left, it attaches s to the tailer
// again.
func (s *Subscription) catchUp(ctx context.Context) error {
	s.reading.Lock()
	defer s.reading.Unlock()
	t := s.tailer
	reading, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(t.living, cancel)()
	s.mu.Lock()
	s.interrupt = cancel
	closed := s.closed != nil
	s.mu.Unlock()
	if closed {
		return nil
	}
	var err error
	if low, unproven := t.final(s); low > s.position() {
		err = s.readOn(reading, low, unproven)
	}
	switch drift := isDrift(err); {
	case err == nil:
		s.retry = 0
		t.attach(s)
		return nil
	case drift:
		s.fail(&UnreadableError{t.source.name, s.position(), err})
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case reading.Err() != nil: // s.over will be closed soon
		select {
		case <-s.over:
			return nil
		case <-s.ready:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	_, isGap := errors.AsType[*GapError](err)
	_, isNotKept := errors.AsType[*NotKeptError](err)
	if isGap || isNotKept {
		s.fail(err)
		return nil
	}
	t.hub.outage(reading, s, err)
	return ctx.Err()
}

// readOn reads a page of events up to low. If an event may be open in between, readOn takes only events before the
// first hole; at a hole it waits for the writers whose ids may be missing.
func (s *Subscription) readOn(ctx context.Context, low, unproven int64) error {
	from, limit := s.position(), min(max(s.buffer, batch), maxPage)
	p, err := s.readPage(ctx, from, low, limit)
	if err != nil {
		return err
	}
	if unproven != 0 {
		n := 0
		for n < len(p.rows) && p.rows[n].ID == from+1+int64(n) {
			n++
		}
		if n == 0 {
			return s.tailer.proven(ctx, unproven)
		}
		p.rows, low = p.rows[:n], p.rows[n-1].ID
	}
	of, err := s.tailer.hub.lookUp(ctx, p.rows)
	if err != nil {
		return err
	}
	var rows []*Row
	for i, row := range p.rows {
		if s.filter.matches(row, of[i]) {
			rows = append(rows, row)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(s.queue, rows...)
	s.seen = low
	if len(p.rows) == limit {
		s.seen = p.rows[limit-1].ID
	}
	if len(s.queue) == 0 {
		s.given = s.seen
	}
	return nil
}

func (s *Subscription) readPage(ctx context.Context, from, low int64, limit int) (page, error) {
	reads := s.tailer.hub.reads
	select {
	case reads <- struct{}{}:
	case <-ctx.Done():
		return page{}, ctx.Err()
	}
	defer func() { <-reads }()
	p, err := s.tailer.page(ctx, from+1, low, limit)
	switch name := s.tailer.source.name; {
	case err != nil:
		return p, err
	case !s.filter.keeps(p.kept):
		return p, &NotKeptError{name, from, p.kept}
	case p.floor > from:
		return p, &GapError{Outbox: name, Position: from, Floor: p.floor}
	}
	return p, nil
}

// offer puts an event into the buffer, unless the event does not match or was seen. It returns false if the buffer is
// full.
func (s *Subscription) offer(row *Row, of instance) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case row.ID <= s.seen || s.err != nil || s.closed != nil:
		return true
	case !s.filter.isZero() && !s.filter.matches(row, of):
		s.seen = row.ID
		if len(s.queue) == 0 {
			s.given = s.seen
		}
		return true
	case len(s.queue) >= s.buffer:
		return false
	}
	s.queue = append(s.queue, row)
	s.seen = row.ID
	s.signal()
	return true
}

// reportLoss makes s report a disconnection.
func (s *Subscription) reportLoss() {
	if !s.notices {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notice = true
	s.signal()
}

// fail ends s after its waiting events.
func (s *Subscription) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
	s.signal()
}

func (s *Subscription) signal() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

func (s *Subscription) position() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

// Position returns the id of the last returned event, or of a later event that did not match, if none waited.
func (s *Subscription) Position() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.given
}

// Waiting returns how many events wait in the buffer.
func (s *Subscription) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue)
}

// Lag returns how many ids are between s and the last deliverable event.
func (s *Subscription) Lag() int64 {
	return max(s.tailer.reached()-s.Position(), 0)
}

// Close ends s. It returns once s has stopped, and makes a waiting Next return.
func (s *Subscription) Close() { s.end(ErrClosed) }

// watch ends s with ctx.
func (s *Subscription) watch(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop = context.AfterFunc(ctx, func() { s.end(context.Cause(ctx)) })
}

func (s *Subscription) end(err error) {
	s.mu.Lock()
	s.stop()
	first := s.closed == nil
	if first {
		s.closed, s.queue = err, nil
		close(s.over)
		if s.interrupt != nil {
			s.interrupt()
		}
	}
	s.mu.Unlock()
	if first {
		s.reading.Lock() // after its last statement
		s.tailer.leave(s)
		s.reading.Unlock()
		close(s.left)
	}
	<-s.left
}
