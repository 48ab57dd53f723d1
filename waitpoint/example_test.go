package waitpoint_test

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/waitpoint"
	"github.com/flowfabric/flowfabric-go/worker"
)

// A server shows the page of a link with two buttons.
func ExampleHandler() {
	var eng *engine.Engine // = engine.New(…)
	http.Handle("/waitpoints/", http.StripPrefix("/waitpoints/", waitpoint.Handler(eng, waitpoint.Config{
		Actions: []waitpoint.Action{{Signal: "approved", Label: "Approve"}, {Signal: "rejected", Label: "Reject"}},
	})))
}

// A server takes the calls of a service that got a link as its callback URL. The body of each is the payload of a signal.
func ExampleCallback() {
	var eng *engine.Engine // = engine.New(…)
	http.Handle("/callbacks/", http.StripPrefix("/callbacks/", waitpoint.Callback(eng, "rendered", waitpoint.Config{})))
}

// A handler mails a link once, in a step, and waits for the decision. The step's result is empty: it is stored as plain
// text, so the token must not be a part of it.
func ExampleLink() {
	const decision = id.WaitpointKey("decision")
	_ = func(ctx context.Context, job worker.Job[string]) (string, error) {
		_, err := worker.Step(ctx, job, "ask", func(ctx context.Context) (struct{}, error) {
			w, err := job.Waitpoint(ctx, decision, 7*24*time.Hour)
			if err == nil {
				fmt.Println("to", job.Args, waitpoint.Link("https://example.com/waitpoints/", w)) // the mail
			}
			return struct{}{}, err
		})
		if err != nil {
			return "", err
		}
		won, err := engine.AwaitAny(ctx, job, engine.Wait{},
			engine.Received("approved").At(decision), engine.Received("rejected").At(decision))
		return won.Name, err
	}
}
