package ffotel

import (
	"context"

	"github.com/flowfabric/flowfabric-go/observe"
)

// engineObserver gives an engine the trace contexts to store.
type engineObserver struct {
	next observe.Observer // nil: none
}

func (o *engineObserver) TraceContext(ctx context.Context) string {
	if text := traceparentOf(ctx); text != "" || o.next == nil {
		return text
	}
	return o.next.TraceContext(ctx)
}

func (o *engineObserver) Observe(ctx context.Context, event observe.Event) {
	if o.next != nil {
		o.next.Observe(ctx, event)
	}
}
