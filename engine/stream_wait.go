package engine

import (
	"context"
	"time"
)

// awaitStream waits until a stream has frames behind a position, or has ended, and returns them.
func (e *Engine) awaitStream(ctx context.Context, read streamRead) (streamAnswer, error) {
	woken := make(chan struct{}, 1)
	defer e.listener.Join(read.key.channel(), func(string) { remind(woken) })()
	for {
		answers, err := e.readStreams(ctx, []streamRead{read})
		if err != nil {
			return streamAnswer{}, err
		}
		if a := answers[0]; a.state == nil || a.closed != nil || len(a.frames) > 0 {
			return a, nil
		}
		select {
		case <-ctx.Done():
			return streamAnswer{}, ctx.Err()
		case <-woken:
		case <-time.After(250 * time.Millisecond):
		}
	}
}
