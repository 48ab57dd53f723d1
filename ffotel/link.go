package ffotel

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"github.com/flowfabric/flowfabric-go/engine"
)

// LinkUpstreams links the span in ctx to the last runs of upstreams, as [worker.Job.Upstreams] returns them. A handler that
// reads its upstreams calls it with its context.
func LinkUpstreams(ctx context.Context, upstreams []engine.UpstreamResult) {
	span := trace.SpanFromContext(ctx)
	for i := range upstreams {
		if link, ok := linkTo(upstreams[i].Trace, linkUpstream); ok {
			span.AddLink(link)
		}
	}
}
