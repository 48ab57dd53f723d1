// Command tokens shows a text in a web page while a worker writes it, word by word. Each word appears once, even if the
// connection breaks. If the worker dies, the text begins again. To look at the page, set LISTEN=localhost:8080 and open
// http://localhost:8080; without LISTEN the program reads the stream itself.
package main

import (
	"bufio"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/stream"
	"github.com/flowfabric/flowfabric-go/worker"
)

var (
	Story = engine.Kind[string, int]{Name: "story"}
	Token = stream.Frame[string]{Type: "token"}
	Begin = stream.Frame[struct{}]{Type: "begin"} // the text begins, perhaps again after the death of a worker
)

//go:embed page.html
var page []byte

func main() {
	ctx, stop := context.WithCancel(context.Background())
	pool := must(pgxpool.New(ctx, os.Getenv("DATABASE_URL")))
	defer pool.Close()
	eng := must(engine.New(pool, engine.Config{}))

	listen := os.Getenv("LISTEN")
	pause := time.Duration(0)
	if listen != "" {
		pause = 200 * time.Millisecond
	}
	w := must(worker.New(eng, worker.Config{}))
	worker.Handle(w, Story, func(ctx context.Context, job worker.Job[string]) (int, error) {
		if err := Begin.Write(ctx, job.Stream(), struct{}{}); err != nil {
			return 0, err
		}
		words := strings.SplitAfter(job.Args, " ") // from a model, in a real program
		for _, word := range words {
			if err := Token.Write(ctx, job.Stream(), word); err != nil {
				return 0, err
			}
			time.Sleep(pause)
		}
		return len(words), nil
	})
	var working sync.WaitGroup
	working.Go(func() { must(0, w.Run(ctx)) })
	defer working.Wait()
	defer stop()

	output := must(stream.Handler(eng, stream.Config{
		Authorize: func(r *http.Request) (id.ExecutionID, error) {
			return id.ParseExecutionID(r.FormValue("execution")) // your check of the user comes first
		},
		Show: func(f *stream.Entry) bool { return f.Type == Begin.Type || f.Type == Token.Type },
	}))
	mux := http.NewServeMux()
	mux.Handle("/output", output)
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("execution") != "" {
			_, _ = w.Write(page)
			return
		}
		created, err := Story.Create(r.Context(), eng, "Once upon a time there was a queue.")
		if err != nil {
			http.Error(w, "try again", http.StatusServiceUnavailable)
			return
		}
		http.Redirect(w, r, "/?execution="+created.ID.String(), http.StatusSeeOther)
	})
	listener := must(net.Listen("tcp", cmp.Or(listen, "localhost:0")))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	if listen != "" {
		log.Fatal(server.Serve(listener))
	}
	go func() { _ = server.Serve(listener) }()
	defer func() { _ = server.Close() }()

	opened := must(http.Get("http://" + listener.Addr().String())) // is redirected to the page of a new execution
	must(0, opened.Body.Close())
	query := opened.Request.URL.RawQuery
	answer := must(http.Get("http://" + listener.Addr().String() + "/output?" + query))
	defer func() { _ = answer.Body.Close() }()
	text := ""
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		var event struct{ Type, Data, Reason string }
		data, _ := strings.CutPrefix(lines.Text(), "data: ")
		if json.Unmarshal([]byte(data), &event) != nil {
			continue // another field
		}
		switch {
		case event.Reason != "":
			fmt.Println("ended:", event.Reason)
		case event.Type == Begin.Type:
			text = ""
		default:
			word, _, err := Token.Decode(stream.Entry{Type: Token.Type, Payload: []byte(event.Data)})
			text += must(word, err)
		}
	}
	fmt.Println(text)
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
