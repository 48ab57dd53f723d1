package worker

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
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
	recording.Go(r.recordSteps)
	recording.Go(r.appendFrames)
	defer recording.Wait()
	defer close(r.recorder.stopped)
	defer close(r.appender.stopped)
	job := newJob(w, &claimed, asked, kind, args)
	out, err := fn(ctx, job)
	if stream := job.steps.written(); stream != nil {
		err = cmp.Or(err, stream.Flush(ctx))
	}
	return out, err
}
