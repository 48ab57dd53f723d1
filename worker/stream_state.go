package worker

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/backoff"
	"github.com/flowfabric/flowfabric-go/stream"
)

// appendState is a stream's knowledge about its frames in the database. Only the holder of the lease appends to the
// stream, and each append says how many frames it expects there. If the answer to an append is lost, the next append
// with the same expectation shows the outcome. If the new append succeeds, the lost one was not committed, and never
// will be. If the new append is refused, the number of frames shows which of the lost ones was committed.
type appendState struct {
	count     int64 // frames that the database had after the last known append
	uncounted bool  // count is not known: an earlier lease may have written to the stream
	tries     []try // appends behind count whose outcome is unknown

	queued bool // in the appender's queue
	flying bool // a call of the appender has frames of the stream
	held   bool // a transaction of the handler appends to the stream
	busy   bool // the attempt was locked at the last append
	alone  int  // frames to append one by one, after the server refused one
	lost   error

	pause backoff.Backoff
	due   time.Time

	completing bool // a transaction of the handler ends the lease, and may have been committed
}

// try is an append that may have been committed.
type try struct {
	frames int   // that leave the buffer
	stored int   // that the stream has more then
	joint  bool  // in a transaction of the handler, which locks the attempt until its end
	turn   *turn // whose transaction it is; nil for other transactions

	refused error // of a frame left out of the leaving ones
}

// tried notes an append whose outcome is unknown. The caller holds the mutex.
func (s *appendState) tried(t try) {
	if t.joint || !slices.ContainsFunc(s.tries, func(known try) bool { return known.frames == t.frames && !known.joint }) {
		s.tries = append(s.tries, t)
	}
}

// probing is the number of frames that an append expects in order to be refused.
const probing = math.MaxInt64

// behind returns how many frames the appender's next append expects. If a transaction of the handler may have been
// committed, that is a number which the stream never has: the refusal shows the outcome of the transaction. Without it two
// appends of the same size could be unknown, one by the transaction and one by the appender. The caller holds the mutex.
func (s *appendState) behind() int64 {
	if slices.ContainsFunc(s.tries, isJoint) {
		return probing
	}
	return s.count
}

func isJoint(t try) bool { return t.joint }

// locked notes that an append behind count has locked the attempt in a transaction of the handler: earlier transactions of
// the handler have ended without a commit. The caller holds the mutex.
func (s *appendState) locked() { s.tries = slices.DeleteFunc(s.tries, isJoint) }

// appended notes that the first n frames of the buffer are stored, and the stream has count frames. The caller holds the
// mutex.
func (s *Stream) appended(n int, count int64) {
	s.count, s.uncounted, s.tries = count, false, nil
	s.alone = max(0, s.alone-n)
	s.pause.Reset()
	s.due = time.Time{}
	s.leave(n)
}

// committed notes that a try was committed, and the stream has count frames. The caller holds the mutex.
func (s *Stream) committed(t try, count int64) {
	s.appended(t.frames, count)
	s.refused = cmp.Or(s.refused, t.refused)
}

// moved records a refused append to a stream with count frames. It returns the earlier, committed append; ok is false
// if there is none. The caller holds the mutex.
func (s *Stream) moved(count int64) (committed try, ok bool) {
	for _, t := range slices.Backward(s.tries) {
		if s.count+int64(t.stored) == count {
			s.committed(t, count)
			return t, true
		}
	}
	if count == s.count {
		s.locked() // an append outside a transaction may still arrive
		return try{}, false
	}
	s.count, s.tries = count, nil
	return try{}, false
}

// answered notes the outcome of an append of the first n frames behind a number of others. It returns an error that is worth
// a log entry: the frames stay in the buffer for another try.
func (s *Stream) answered(n int, behind int64, appended stream.Appended, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.change()
	s.flying, s.busy = false, errors.Is(err, fferr.ErrBusy)
	if s.lost != nil {
		return nil
	}
	moved, isMoved := errors.AsType[*fferr.StreamMovedError](err)
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
	case errors.Is(err, fferr.ErrInvalidInput):
		s.refuse(n, err)
		return nil
	case behind != probing && !isRefused(err):
		s.tried(try{frames: n, stored: n})
	}
	s.due = time.Now().Add(s.pause.Next())
	return err
}

// isRefused reports whether an error means for certain that nothing was appended.
func isRefused(err error) bool {
	refusal, ok := errors.AsType[*pgconn.PgError](err)
	return ok && isRefusal(refusal.Code) || errors.Is(err, fferr.ErrBusy)
}

// refuse records that the server refused some of the first n frames. The frames are appended one by one, leaving out
// each refused one.
func (s *Stream) refuse(n int, err error) {
	if n > 1 {
		s.alone = n
		return
	}
	s.alone = max(0, s.alone-1)
	s.refused = cmp.Or(s.refused, err)
	s.leave(1)
}

// next returns the frames to append next: at most so many, with at most so many bytes. The caller holds the mutex.
func (s *Stream) next(most, bytes int) []stream.FrameSpec {
	if s.alone > 0 || s.behind() == probing {
		most = min(most, 1)
	}
	n := fitting(s.frames, most, bytes)
	return s.frames[:n:n]
}

// fitting returns how many of the first frames fit into one append.
func fitting(frames []stream.FrameSpec, most, bytes int) (n int) {
	summaries := stream.MaxSummaryFrames
	for n < min(most, len(frames)) {
		if frames[n].Mode == stream.Summary {
			summaries--
		}
		bytes -= sizeOf(frames[n : n+1])
		if bytes < 0 || summaries < 0 {
			break
		}
		n++
	}
	return n
}
