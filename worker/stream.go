package worker

import (
	"bytes"
	"context"
	"errors"
	"sync"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/backoff"
	"github.com/flowfabric/flowfabric-go/stream"
)

// Limits of the frames waiting to be appended. A write blocks at any of these limits.
const (
	MaxStreamFrames = 1_000    // frames of one job
	MaxStreamBytes  = 1 << 20  // bytes of one job's frames
	MaxPendingBytes = 64 << 20 // bytes of all frames in a process; a job without any may always write one
)

// ErrStreamOver reports a frame written after the handler had returned, or after a turn had ended the execution.
var ErrStreamOver = errors.New("stream is over: its handler has returned")

// Stream returns the output stream of the attempt, to which the handler writes frames for readers elsewhere: see
// [stream.Tail]. It is the same stream at each call.
//
//	err := job.Stream().WriteFrame(ctx, stream.FrameSpec{Payload: token, Type: "token"})
//
// Frames are buffered, and appended in the background together with the frames of other jobs. The worker appends the
// rest before it settles the attempt, also after an error or a panic. [stream.Frame] writes typed frames.
func (j Job[In]) Stream() *Stream {
	if j.steps == nil {
		return &Stream{err: errNoWorker}
	}
	j.steps.mu.Lock()
	defer j.steps.mu.Unlock()
	switch s := j.steps; {
	case s.stream != nil:
	case s.over:
		return &Stream{err: ErrStreamOver}
	case j.isForTest():
		s.stream = &Stream{forTest: true}
	default:
		s.stream = newStream(j.appender, j.Lease, isContinued(&j.Claimed))
		j.appender.enter(s.stream)
	}
	return j.steps.stream
}

// Stream is the output stream of a job. It is safe for concurrent use; frames of one goroutine keep their order.
type Stream struct {
	appender *appender
	lease    engine.Lease
	forTest  bool // keeps its frames locally

	mu      sync.Mutex
	changed chan struct{}      // closed and replaced at each change that something may wait for; nil until needed
	frames  []stream.FrameSpec // to be appended, in order
	bytes   int                // of these
	written int64              // frames taken so far
	gone    int64              // frames that have left the buffer: appended or refused
	err     error              // that ends the stream: the lease is lost, or the handler has returned
	refused error              // that the next flush returns: the server refused a frame

	writers []*frameWriter

	// The frames that the database is known to have.
	appendState
}

func newStream(a *appender, l engine.Lease, continued bool) *Stream {
	return &Stream{
		appender: a, lease: l,
		appendState: appendState{uncounted: continued, pause: backoff.Backoff{First: repeatFirst, Max: repeatMax}},
	}
}

// WriteFrame appends a frame to the stream. It checks and copies the frame and returns; the worker appends the frame a
// moment later. If the buffer is full, WriteFrame first waits, even until the end of a transaction of the handler that
// has locked the attempt.
//
// Errors: [fferr.ErrInvalidInput] for this frame; [ErrLeaseLost]; [ErrStreamOver]; ctx's cause if ctx ends while the
// buffer is full. Only [Stream.Flush] reports stored frames, or frames refused by the server.
func (s *Stream) WriteFrame(ctx context.Context, f stream.FrameSpec) error {
	if cause := context.Cause(ctx); errors.Is(cause, ErrLeaseLost) {
		return cause
	}
	if err := s.check(&f); err != nil {
		return err
	}
	f.Payload = bytes.Clone(f.Payload)
	for {
		wait, err := s.add(f)
		if wait == nil {
			return err
		}
		if err := s.appender.await(ctx, wait); err != nil {
			return err
		}
	}
}

// check returns the error for a frame that is refused at once. A job for a test has the default limits.
func (s *Stream) check(f *stream.FrameSpec) error {
	switch {
	case s.forTest:
		return stream.Check(nil, f)
	case s.appender == nil:
		return nil
	}
	return s.appender.eng.checkFrame(f)
}

// add puts a frame into the buffer. If the buffer is full, add returns a channel that is closed when the caller should
// try again.
func (s *Stream) add(f stream.FrameSpec) (wait <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	size := sizeOf([]stream.FrameSpec{f})
	switch {
	case s.err != nil:
		return nil, s.err
	case s.forTest:
	case len(s.frames) >= MaxStreamFrames, s.bytes > 0 && s.bytes+size > MaxStreamBytes:
		return s.nextChange(), nil
	default:
		if wait := s.appender.reserve(size, len(s.frames) == 0); wait != nil {
			return wait, nil
		}
	}
	s.put(f)
	return nil, nil
}

// put puts a frame into the buffer, which has space. The caller holds the mutex.
func (s *Stream) put(f stream.FrameSpec) {
	s.frames = append(s.frames, f)
	s.bytes += sizeOf([]stream.FrameSpec{f})
	s.written++
	if !s.forTest && !s.queued {
		s.queued = true
		s.appender.queue(s)
	}
}

// Flush waits until all frames written so far are stored. Call it outside a transaction of the handler that has locked
// the attempt. Inside, Flush and the transaction would wait for each other.
//
// Errors: [fferr.ErrInvalidInput] for a frame that the server has refused, which is left out; others of [Stream.WriteFrame].
// After an error some of the frames may be stored.
func (s *Stream) Flush(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, ErrLeaseLost) {
		return cause
	}
	s.mu.Lock()
	s.writeRests()
	through := s.written
	s.mu.Unlock()
	for {
		wait, err := s.flushed(through)
		if wait == nil {
			return err
		}
		if err := s.appender.await(ctx, wait); err != nil {
			return err
		}
	}
}

// flushed reports whether frames up to a number have left the buffer, by returning no channel.
func (s *Stream) flushed(through int64) (wait <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.appender == nil:
		return nil, s.err
	case s.lost != nil:
		return nil, s.lost
	case s.gone >= through && s.refused != nil:
		err, s.refused = s.refused, nil
		return nil, err
	case s.gone >= through:
		return nil, nil
	}
	return s.nextChange(), nil
}

// nextChange returns a channel that is closed at the next change. The caller holds the mutex.
func (s *Stream) nextChange() <-chan struct{} {
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.changed
}

// change notifies everything waiting for a change. The caller holds the mutex.
func (s *Stream) change() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// end refuses further frames.
func (s *Stream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writeRests()
	if s.err == nil {
		s.err = ErrStreamOver
	}
	s.change()
}

// lose drops the frames in the buffer: the lease is lost.
func (s *Stream) lose(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(reason)
}

// drop is lose for a caller that holds the mutex.
func (s *Stream) drop(reason error) {
	if s.lost != nil {
		return
	}
	s.lost, s.err = reason, reason
	s.appender.release(s.bytes)
	s.frames, s.bytes = nil, 0
	s.change()
}

// leave removes the first n frames from the buffer. The caller holds the mutex.
func (s *Stream) leave(n int) {
	n = min(n, len(s.frames))
	bytes := sizeOf(s.frames[:n])
	s.appender.release(bytes)
	clear(s.frames[:n])
	s.frames = s.frames[n:]
	if len(s.frames) == 0 {
		s.frames = nil
	}
	s.bytes -= bytes
	s.gone += int64(n)
	s.change()
}

// sizeOf returns the bytes of frames: of their payloads, types and correlations.
func sizeOf(frames []stream.FrameSpec) int {
	n := 0
	for i := range frames {
		n += len(frames[i].Payload) + len(frames[i].Type) + len(frames[i].Correlation)
	}
	return n
}
