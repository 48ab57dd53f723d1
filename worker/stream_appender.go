package worker

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/warn"
	"github.com/flowfabric/flowfabric-go/stream"
)

// StreamDelay is how long frames wait for others before they are appended together. A flush does not wait. Under load
// batches grow by themselves: each takes the frames that were written during the previous commit.
const StreamDelay = 5 * time.Millisecond

// appender appends the frames of all streams of a run, in batches, one call at a time.
type appender struct {
	eng     operations
	woken   chan struct{} // buffered; frames have come, or may be appended again
	hasty   chan struct{} // buffered; something waits for the frames
	stopped chan struct{} // closed when the run has ended
	open    atomic.Int64  // streams of running handlers
	failing warn.Repeated

	inline    func(ctx context.Context) // appends in the waiting goroutine; nil: the run appends beside its handlers
	appending sync.Mutex                // held by inline

	mu      sync.Mutex
	streams map[id.Fence]*Stream // of running handlers
	waiting []*Stream            // with frames, in the order of their first frames
	bytes   int                  // of all frames in buffers
	freed   chan struct{}        // closed and replaced when bytes have left a full buffer; nil until needed
}

func newAppender(eng operations) *appender {
	return &appender{
		eng: eng, woken: make(chan struct{}, 1), hasty: make(chan struct{}, 1), stopped: make(chan struct{}),
		streams: make(map[id.Fence]*Stream),
	}
}

func (a *appender) enter(s *Stream) {
	a.open.Add(1)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.streams[s.lease.Fence] = s
}

// stream returns the stream of a lease; nil if it has none.
func (a *appender) stream(f id.Fence) *Stream {
	if a.open.Load() == 0 {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.streams[f]
}

func (a *appender) exit(s *Stream) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.streams[s.lease.Fence] == s {
		delete(a.streams, s.lease.Fence)
		a.open.Add(-1)
	}
}

// reserve takes space for a frame, or returns a channel that is closed when the caller should try again. The first
// frame of a buffer always fits: otherwise jobs with locked attempts could use up the space for all others.
func (a *appender) reserve(bytes int, first bool) <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !first && a.bytes+bytes > MaxPendingBytes {
		if a.freed == nil {
			a.freed = make(chan struct{})
		}
		return a.freed
	}
	a.bytes += bytes
	return nil
}

func (a *appender) release(bytes int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.bytes -= bytes
	if a.freed != nil {
		close(a.freed)
		a.freed = nil
	}
}

// queue adds a stream that has got frames.
func (a *appender) queue(s *Stream) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiting = append(a.waiting, s)
	remind(a.woken)
}

// hasten makes the appender append the waiting frames at once. If nothing appends beside the handlers, hasten does it, until
// ctx ends.
func (a *appender) hasten(ctx context.Context) {
	if a.inline != nil {
		a.inline(ctx)
		return
	}
	remind(a.hasty)
}

// await waits for a channel that appended frames close, and makes the appender append the waiting frames at once.
func (a *appender) await(ctx context.Context, wait <-chan struct{}) error {
	a.hasten(ctx)
	select {
	case <-wait:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func remind(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// appendFrames appends frames until the run has ended, when no stream has any.
func (r *run) appendFrames() {
	a := r.appender
	timer := time.NewTimer(0)
	<-timer.C
	defer timer.Stop()
	for {
		select {
		case <-a.stopped:
			return
		case <-a.hasty:
		case <-timer.C:
		case <-a.woken:
			if !a.collect(timer) {
				return
			}
		}
		for {
			runtime.Gosched() // let handlers that write now add their frames
			began := time.Now()
			batch, pause, more := a.take(began)
			if len(batch) == 0 {
				if pause > 0 {
					timer.Reset(pause)
				}
				break
			}
			_ = r.append(batch) // logged
			if !more && time.Since(began) < StreamDelay && !a.collect(timer) {
				return
			}
		}
	}
}

// collect waits for more frames, unless something waits for the present ones. It reports whether the run continues.
func (a *appender) collect(timer *time.Timer) bool {
	timer.Reset(StreamDelay)
	select {
	case <-a.stopped:
		return false
	case <-a.hasty:
		timer.Stop()
	case <-timer.C:
	}
	return true
}

// flight is the frames of one stream in a call.
type flight struct {
	stream *Stream
	frames []stream.FrameSpec
	behind int64
}

// maxAlone is how many streams in a call may have frames appended one stream after the other, each in a transaction of
// its own: all but durable frames, and frames of busy rows. The other streams of a call share an earlier statement. So
// few delay the next call little, and no call comes near its timeout.
const maxAlone = 4

// isAlone reports whether frames of a stream are probably appended in a transaction of their own. The caller holds the mutex.
func (s *Stream) isAlone(frames []stream.FrameSpec) bool {
	return s.busy || s.behind() == probing || slices.ContainsFunc(frames, func(f stream.FrameSpec) bool {
		return f.Mode != "" && f.Mode != stream.Durable
	})
}

// take returns the frames for the next call, and whether more are ready. Without any it returns the time until some may be
// appended again; 0: none. Streams take turns.
func (a *appender) take(now time.Time) (batch []flight, pause time.Duration, more bool) {
	a.mu.Lock()
	waiting := a.waiting
	a.waiting = nil
	a.mu.Unlock()
	frames, bytes, alone := stream.MaxFrames, stream.MaxBytes, maxAlone
	var left, taken []*Stream
	for _, s := range waiting {
		s.mu.Lock()
		switch wait := s.due.Sub(now); {
		case len(s.frames) == 0:
			s.queued = false
			s.mu.Unlock()
			continue
		case s.held || s.flying: // taken again later
		case wait > 0:
			if pause == 0 || wait < pause {
				pause = wait
			}
		default:
			next := s.next(frames, bytes)
			more = more || len(next) < len(s.frames)
			isAlone := s.isAlone(next)
			if isAlone && alone == 0 {
				more = true
				break
			}
			if len(next) > 0 {
				if isAlone {
					alone--
				}
				s.flying = true
				batch = append(batch, flight{s, next, s.count})
				taken = append(taken, s)
				frames, bytes = frames-len(next), bytes-sizeOf(next)
				s.mu.Unlock()
				continue
			}
		}
		s.mu.Unlock()
		left = append(left, s)
	}
	a.mu.Lock()
	a.waiting = append(append(left, taken...), a.waiting...)
	a.mu.Unlock()
	return batch, pause, more
}

// append appends the frames of a batch, and records the outcomes. It returns an error if the batch should be repeated,
// except for busy rows.
func (r *run) append(batch []flight) error {
	calling, cancel := context.WithTimeout(r.base, callTimeout)
	defer cancel()
	err := r.count(calling, batch)
	if err != nil {
		for _, f := range batch {
			f.stream.postpone()
		}
		r.appender.failing.Log(r.cfg.Log, "cannot append frames of output streams; retrying: check the database", "error", err)
		return err
	}
	batches := make([]stream.Batch, len(batch))
	for i := range batch {
		f := &batch[i]
		f.stream.mu.Lock()
		f.behind = f.stream.behind()
		f.stream.mu.Unlock()
		batches[i] = stream.Batch{Lease: f.stream.lease, Frames: f.frames, Behind: &f.behind}
	}
	outcomes, err := r.settling.appendEach(calling, batches)
	var reason error
	for i, f := range batch {
		outcome := fferr.Outcome[stream.Appended]{Err: err}
		if err == nil {
			outcome = outcomes[i]
		}
		if open := f.stream.answered(len(f.frames), f.behind, outcome.Value, outcome.Err); open != nil && !errors.Is(open, fferr.ErrBusy) {
			reason = open
		}
	}
	if reason != nil {
		r.appender.failing.Log(r.cfg.Log, "cannot append frames of output streams; retrying: check the database and the rights of its role", "error", reason)
	}
	return reason
}

// count reads the number of frames of streams that an earlier lease may have written to.
func (r *run) count(ctx context.Context, batch []flight) error {
	var leases []engine.Lease
	var streams []*Stream
	for _, f := range batch {
		if f.stream.uncounted { // only set before the first append
			leases, streams = append(leases, f.stream.lease), append(streams, f.stream)
		}
	}
	if len(leases) == 0 {
		return nil
	}
	counts, err := r.settling.countFrames(ctx, leases)
	if err != nil {
		return err
	}
	for i, s := range streams {
		s.mu.Lock()
		s.count, s.uncounted = counts[i], false
		s.mu.Unlock()
	}
	return nil
}

// postpone schedules another try for frames that were not sent.
func (s *Stream) postpone() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flying = false
	s.due = time.Now().Add(s.pause.Next())
	s.change()
}
