package stream_test

import (
	"context"
	"fmt"
	"log"
	"net/http"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/stream"
)

// Token is declared once, for the handlers that write and the programs that read.
var Token = stream.Frame[string]{Type: "token"}

// A program prints the tokens of an execution as its handler writes them, until the execution ends.
func Example() {
	ctx := context.Background()
	var eng *engine.Engine       // = engine.New(…)
	var execution id.ExecutionID // = of an execution, whose handler calls Token.Write(ctx, job.Stream(), token)
	for token, err := range Token.Tail(ctx, eng, execution, stream.TailOptions{}) {
		switch {
		case err != nil:
			fmt.Println(err)
			return
		case token.Closed != nil:
			fmt.Println("attempt", token.Attempt, "has ended:", token.Closed.Reason)
		default:
			fmt.Print(token.Value)
		}
	}
}

// The text of a position can be kept, and a program elsewhere continues there.
func ExampleParsePosition() {
	position, err := stream.ParsePosition("1.1764160000000.0.12.12.end")
	if err != nil {
		log.Fatal(err)
	}
	attempt, ended := position.Attempt()
	fmt.Println(attempt, ended, position)
	// Output: 1 true 1.1764160000000.0.12.12.end
}

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
		log.Fatal(err)
	}
	http.Handle("/output", output)
}
