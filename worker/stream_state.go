package worker

import (
	"errors"
	"slices"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/backoff"
)

// appendState is the knowledge of a stream about its frames in the database. Only the holder of the lease appends, so the number of
// stored frames says which appends were committed. Each append says how many frames it expects before it. If the answer to
// one is lost, another append with the same expectation either succeeds, and the lost one never will, or is refused with
// the number of frames, which shows which one was committed.
type appendState struct {
	count     int64 // frames that the database had after the last known append
	uncounted bool  // count is not known: the attempt had begun before this lease
	tries     []try // appends behind count that may have been committed

	queued bool // in the appender's queue
	flying bool // a call of the appender has frames of it
	held   bool // a transaction of the handler appends to it
	alone  int  // frames to append one by one, since one of them was refused
	lost   error

	pause backoff.Backoff
	due   time.Time

	completing bool // a transaction of the handler ends the lease, and may have been committed
}

// try is an append that may have been committed.
type try struct {
	frames int // of the buffer
	others int // of a turn, behind them
}

// tried notes an append. The caller holds the mutex.
func (s *appendState) tried(t try) {
	if !slices.Contains(s.tries, t) {
		s.tries = append(s.tries, t)
	}
}

// appended notes that the first n frames of the buffer are stored, and the stream has count frames. The caller holds the
// mutex.
func (s *Stream) appended(n int, count int64) {
	s.count, s.uncounted, s.tries = count, false, nil
	s.alone = max(0, s.alone-n)
	s.pause.Reset()
	s.due = time.Time{}
	s.leave(n)
}

// moved notes that the stream has another number of frames than count. It returns the append that explains it; ok is false
// if none does. The caller holds the mutex.
func (s *Stream) moved(count int64) (committed try, ok bool) {
	for _, t := range slices.Backward(s.tries) {
		if s.count+int64(t.frames+t.others) == count {
			s.appended(t.frames, count)
			return t, true
		}
	}
	s.count, s.tries = count, nil
	return try{}, false
}

// answered notes the outcome of an append of the first n frames. It returns an error that is worth a log entry: the frames
// stay in the buffer for another try.
func (s *Stream) answered(n int, appended engine.Appended, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.change()
	s.flying = false
	if s.lost != nil {
		return nil
	}
	moved, isMoved := errors.AsType[*engine.StreamMovedError](err)
	switch {
	case err == nil:
		s.appended(n, appended.Frames)
		return nil
	case isMoved:
		s.moved(moved.Frames)
		return nil
	case isLost(err):
		s.drop(lossOf(err))
		return nil
	case errors.Is(err, engine.ErrInvalidInput):
		s.forget(n)
		s.refuse(n, err)
		return nil
	case errors.Is(err, engine.ErrBusy):
		s.forget(n)
	}
	s.due = time.Now().Add(s.pause.Next())
	return err
}

// forget drops an append that was refused for certain.
func (s *Stream) forget(n int) {
	s.tries = slices.DeleteFunc(s.tries, func(t try) bool { return t == try{frames: n} })
}

// refuse notes that the server refused some of the first n frames. They are appended one by one, and the one that is refused
// alone is left out.
func (s *Stream) refuse(n int, err error) {
	if n > 1 {
		s.alone = n
		return
	}
	s.alone = max(0, s.alone-1)
	s.refused = err
	s.leave(1)
}

// next returns the frames to append next: at most so many, with at most so many bytes. The caller holds the mutex.
func (s *Stream) next(most, bytes int) []engine.FrameSpec {
	if s.alone > 0 {
		most = min(most, 1)
	}
	n := 0
	for n < min(most, len(s.frames)) && bytes >= len(s.frames[n].Payload) {
		bytes -= len(s.frames[n].Payload)
		n++
	}
	return s.frames[:n:n]
}
