package stream_test

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/stream"
	"github.com/flowfabric/flowfabric-go/worker"
)

// TestMain runs the examples on the migrated database that FF_EXAMPLES names. A test in the tests module sets it; this module
// cannot start a server and only compiles them.
func TestMain(m *testing.M) {
	databaseURL := os.Getenv("FF_EXAMPLES")
	_ = os.Setenv("DATABASE_URL", databaseURL)
	if databaseURL == "" {
		flag.Parse()
		_ = flag.Set("test.skip", "^Example$")
	}
	m.Run()
}

// connect opens a pool and an engine on it.
func connect(ctx context.Context) (*pgxpool.Pool, *engine.Engine) {
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	eng, err := engine.New(pool, engine.Config{})
	if err != nil {
		log.Fatal(err)
	}
	return pool, eng
}

var Greet = engine.Kind[string, string]{Name: "greet", Lane: "greetings"}

// Token is declared once, for the handlers that write and the programs that read.
var Token = stream.Frame[string]{Type: "token"}

// A handler writes tokens, and a program prints the tokens until the execution ends.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	pool, eng := connect(ctx)
	defer pool.Close()
	w, err := worker.New(eng, worker.Config{})
	if err != nil {
		log.Fatal(err)
	}
	worker.Handle(w, Greet, func(ctx context.Context, job worker.Job[string]) (string, error) {
		for _, token := range []string{"Hello", ", ", job.Args} {
			if err := Token.Write(ctx, job.Stream(), token); err != nil {
				return "", err
			}
		}
		return "greeted", nil
	})
	var working sync.WaitGroup
	working.Go(func() {
		if err := w.Run(ctx); err != nil {
			log.Fatal(err)
		}
	})
	defer working.Wait()
	defer stop()

	created, err := Greet.Create(ctx, eng, "Ada")
	if err != nil {
		log.Fatal(err)
	}
	for token, err := range Token.Tail(ctx, eng, created.ID, stream.TailOptions{}) {
		switch {
		case err != nil:
			log.Fatal(err)
		case token.Closed != nil:
			fmt.Println()
			fmt.Println(token.Closed.Reason)
		default:
			fmt.Print(token.Value)
		}
	}
	// Output:
	// Hello, Ada
	// attempt_success
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
