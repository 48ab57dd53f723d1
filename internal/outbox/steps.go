package outbox

import (
	"context"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
)

// Stepper reads an outbox one pass at a time, with its own clock. Tests act between two statements, and make statements
// fail.
type Stepper struct {
	tailer *tailer
	before func(statement string) error
}

// Stepper returns a stepper starting like a subscription without a position. It calls before ahead of each statement of
// a pass, and treats an error of before as the statement's error.
func (h *Hub) Stepper(ctx context.Context, outbox Name, now func() time.Time, before func(statement string) error) (*Stepper, error) {
	t := &tailer{hub: h, source: sources[outbox]}
	if err := t.begin(ctx, nil); err != nil {
		return nil, err
	}
	s := &Stepper{t, before}
	t.follower.db, t.follower.now = s, now
	return s, nil
}

// Pass makes a pass. It returns the events to deliver, and whether there is nothing more to read now.
func (s *Stepper) Pass(ctx context.Context) (rows []*Row, idle bool, err error) {
	rows, again, err := s.tailer.follower.pass(ctx)
	return rows, again == whenWoken, err
}

// Low returns the id up to which every event has been handed on.
func (s *Stepper) Low() int64 { return s.tailer.follower.low }

func (s *Stepper) page(ctx context.Context, from, to int64, limit int) (page, error) {
	if err := s.before("page"); err != nil {
		return page{}, err
	}
	return s.tailer.page(ctx, from, to, limit)
}

func (s *Stepper) state(ctx context.Context) (db.GetOutboxStateRow, error) {
	if err := s.before("state"); err != nil {
		return db.GetOutboxStateRow{}, err
	}
	return s.tailer.state(ctx)
}

func (s *Stepper) writers(ctx context.Context) ([]db.ListOutboxWritersRow, error) {
	if err := s.before("writers"); err != nil {
		return nil, err
	}
	return s.tailer.writers(ctx)
}

func (s *Stepper) runs(ctx context.Context, w witness) (bool, error) {
	if err := s.before("runs"); err != nil {
		return false, err
	}
	return s.tailer.runs(ctx, w)
}
