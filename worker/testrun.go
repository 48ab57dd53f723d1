package worker

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/backoff"
)

// RunForTest runs a handler for an execution that the caller has claimed by eng, which may be bound to a transaction, and
// returns the handler's result and error. It settles nothing and renews no lease. The test kit (fftest.Run) uses it for a run
// that is rolled back.
//
// Errors: the handler's; [*engine.DecodeError] for a payload that can't be decoded.
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
	r.appender.inline = r.appendInline // beside the handler it would use the handler's transaction at the same time
	recording.Go(r.recordSteps)
	defer recording.Wait()
	defer close(r.recorder.stopped)
	job := newJob(w, &claimed, asked, kind, args)
	out, err := fn(ctx, job)
	job.steps.end()
	if stream := job.steps.written(); stream != nil {
		flushed := stream.Flush(ctx)
		if stream.isCompleting() && isLost(flushed) { // its frames were appended by the transaction that completed it
			flushed = nil
		}
		err = cmp.Or(err, flushed)
	}
	return out, err
}

// appendInline appends the frames in all buffers, while the handler waits for that. A failure ends the streams: nothing is
// worth another try in a transaction that is rolled back.
func (r *run) appendInline() {
	r.appender.appending.Lock()
	defer r.appender.appending.Unlock()
	for {
		batch, pause, _ := r.appender.take(time.Now())
		if len(batch) == 0 {
			if pause == 0 || !backoff.Wait(r.base, pause) {
				return
			}
			continue
		}
		if err := r.append(batch); err != nil {
			for _, f := range batch {
				f.stream.lose(err)
			}
		}
	}
}
