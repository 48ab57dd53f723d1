package worker

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/backoff"
)

// RunForTest runs a handler for an execution claimed by the caller with eng, which may be bound to a transaction, and
// returns the handler's result and error. RunForTest settles nothing and renews no lease. The test kit (fftest.Run)
// rolls such a run back.
//
// Errors: the handler's; [*fferr.DecodeError] for a payload that can't be decoded.
func RunForTest[In, Out any](
	ctx context.Context, eng *engine.Engine, kind engine.Kind[In, Out], claimed engine.Claimed,
	fn func(ctx context.Context, job Job[In]) (Out, error),
) (Out, error) {
	var none Out
	asked := time.Now()
	w, err := newWorker(onEngine{eng}, Config{SharePool: true})
	if err != nil {
		return none, err
	}
	args, err := kind.DecodeArgs(claimed.Payload)
	if err != nil {
		return none, err
	}
	var recording sync.WaitGroup
	w.recorder, w.appender = newRecorder(), newAppender(w.eng)
	r := &run{Worker: w, base: ctx, settling: w.eng}
	// Beside the handler it would use the handler's transaction at the same time. A failure ends the streams: nothing is worth
	// another try in a transaction that is rolled back.
	r.appender.inline = func(ctx context.Context) { r.appendInline(ctx, false) }
	recording.Go(r.recordSteps)
	defer recording.Wait()
	defer close(r.recorder.stopped)
	job := newJob(w, &claimed, asked, kind, args)
	out, err := fn(ctx, job)
	err = job.steps.returned(err)
	job.steps.end()
	if stream := job.steps.written(); stream != nil {
		flushed := stream.Flush(ctx)
		if stream.isCompleting() && isLost(flushed) { // the completing transaction appended its frames
			flushed = nil
		}
		err = cmp.Or(err, flushed)
	}
	return out, err
}

// appendInline appends the frames in all buffers, while a handler or the end of one waits for that. A failed append is repeated
// until ctx or the run ends, or ends the streams unless repeat is set.
func (r *run) appendInline(ctx context.Context, repeat bool) {
	r.appender.appending.Lock()
	defer r.appender.appending.Unlock()
	for r.base.Err() == nil {
		batch, pause, _ := r.appender.take(time.Now())
		if len(batch) == 0 {
			if pause == 0 || !backoff.Wait(ctx, pause) {
				return
			}
			continue
		}
		if err := r.append(batch); err != nil && !repeat {
			for _, f := range batch {
				f.stream.lose(err)
			}
		}
	}
}
