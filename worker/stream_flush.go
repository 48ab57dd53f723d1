package worker

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// written returns the stream if the handler has used it; nil otherwise.
func (s *steps) written() *Stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stream
}

// end refuses frames of a handler that has returned.
func (s *steps) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	if s.stream != nil {
		s.stream.end()
	}
}

// flush appends the frames in the buffer of a task's stream, before the task is settled. Without the lease the
// task is abandoned.
func (r *run) flush(t *task) {
	s := r.appender.stream(t.work.Lease.Fence)
	if s == nil {
		return
	}
	defer r.appender.exit(s)
	if reason := t.lostBy(); reason != nil {
		s.lose(reason)
	}
	s.end()
	err := r.await(s)
	if err == nil || t.verdict == abandon || s.isCompleting() && isLost(err) { // the settlement shows whether it was completed
		return
	}
	t.verdict, t.err = abandon, err
}

// await waits until a stream's buffer is empty. It gives up when the lease is lost, or, once the run has drained, after
// [Config.LeaseTTL], or once the run's own context has ended.
func (r *run) await(s *Stream) error {
	s.mu.Lock()
	through := s.written
	s.mu.Unlock()
	drained := r.drained.Done()
	var patience <-chan time.Time
	for {
		wait, err := s.flushed(through)
		switch {
		case err != nil && s.isLost():
			return err
		case err != nil:
			r.cfg.Log.LogAttrs(r.base, slog.LevelWarn, "the database refused a frame of an output stream; leaving it out",
				slog.Any("execution", s.lease.Execution), slog.Any("error", err))
			continue
		case wait == nil:
			return nil
		}
		r.appender.hasten(r.base)
		select {
		case <-wait:
		case <-r.base.Done():
			s.lose(context.Cause(r.base))
		case <-drained:
			drained, patience = nil, time.After(r.cfg.LeaseTTL)
		case <-patience:
			s.lose(fmt.Errorf("%w: its frames can't be stored", ErrShutdown))
		}
	}
}

// isCompleting reports whether a transaction of the handler may have ended the lease.
func (s *Stream) isCompleting() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.completing
}

func (s *Stream) isLost() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost != nil
}
