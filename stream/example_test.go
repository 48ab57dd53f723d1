package stream_test

import (
	"net/http"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/stream"
)

// A server shows the tokens of an execution, and nothing else of its output, to users who are logged in.
func ExampleHandler() {
	var eng *engine.Engine                                 // = engine.New(…)
	var executionOf func(user, chat string) id.ExecutionID // = your table of chats
	output, err := stream.Handler(eng, stream.Config{
		Authorize: func(r *http.Request) (id.ExecutionID, error) {
			user, _, ok := r.BasicAuth()
			if !ok {
				return id.ExecutionID{}, stream.ErrUnauthorized
			}
			return executionOf(user, r.FormValue("chat")), nil
		},
		Show: func(f *stream.Entry) bool { return f.Type == "begin" || f.Type == "token" },
	})
	if err != nil {
		panic(err)
	}
	http.Handle("/output", output)
}
