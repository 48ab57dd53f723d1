package streams

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/stream"
	"github.com/flowfabric/flowfabric-go/tests/internal/browser"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

var (
	token = stream.Frame[string]{Type: "token"}
	begin = stream.Frame[struct{}]{Type: "begin"}
)

// appender is a [stream.FrameWriter] that holds a lease.
type appender struct {
	*fixture.Fixture
	engine.Lease
}

func (a appender) WriteFrame(ctx context.Context, f stream.FrameSpec) error {
	_, err := stream.Append(ctx, a.Fixture.Engine, a.Lease, []stream.FrameSpec{f})
	return err
}

func (a appender) begin(t *testing.T) {
	t.Helper()
	if err := begin.Write(t.Context(), a, struct{}{}); err != nil {
		t.Fatal(err)
	}
}

func (a appender) say(t *testing.T, words ...string) {
	t.Helper()
	for _, word := range words {
		if err := token.Write(t.Context(), a, word); err != nil {
			t.Fatal(err)
		}
	}
}

// runWordWriter runs a worker that writes words, one by one, until it is killed.
func runWordWriter(ctx context.Context, pool *pgxpool.Pool, lane id.LaneID, words *json.Decoder) error {
	eng, err := engine.New(pool, engine.Config{})
	if err != nil {
		return err
	}
	w, err := worker.New(eng, worker.Config{
		Lanes: []worker.Lane{{Name: lane}}, NoReconcile: true, SharePool: true, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	fixture.HandleKind(w, "tell", func(ctx context.Context, job worker.Job[struct{}]) (struct{}, error) {
		if err := begin.Write(ctx, job.Stream(), struct{}{}); err != nil {
			return struct{}{}, err
		}
		for {
			var word string
			if err := words.Decode(&word); err != nil {
				return struct{}{}, err
			}
			if err := token.Write(ctx, job.Stream(), word); err != nil {
				return struct{}{}, err
			}
		}
	})
	return w.Run(ctx)
}

// wordWriter is a worker process that writes given words.
type wordWriter struct {
	*exec.Cmd
	words *json.Encoder
}

func startWordWriter(t *testing.T, f *fixture.Fixture) wordWriter {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	process := exec.CommandContext(t.Context(), program, "-streams.worker")
	process.Stderr = os.Stderr
	input, err := process.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	words := json.NewEncoder(input)
	if err := words.Encode(orders{DatabaseURL: f.Url, Lane: f.Lane, Words: true}); err != nil {
		t.Fatal(err)
	}
	return wordWriter{process, words}
}

func (p wordWriter) say(t *testing.T, words ...string) {
	t.Helper()
	for _, word := range words {
		if err := p.words.Encode(word); err != nil {
			t.Fatal(err)
		}
	}
}

// kill kills the process, which can do nothing more.
func (p wordWriter) kill(t *testing.T) {
	t.Helper()
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err == nil || p.ProcessState.Exited() {
		t.Fatalf("the worker was not killed: %v", p.ProcessState)
	}
}

const (
	shown = "document.getElementById('text') && document.getElementById('text').textContent"
	being = "document.getElementById('state') && document.getElementById('state').textContent"
)

// The page of examples/tokens shows each token once: after a cut connection, after the death of a worker, after a failed
// attempt, after a reload, and long after the end.
func TestTokensInABrowser(t *testing.T) {
	b := browser.Open(t)
	f := fixture.NewCloned(t)
	output, err := stream.Handler(f.Engine, stream.Config{
		Authorize: func(r *http.Request) (id.ExecutionID, error) { return id.ParseExecutionID(r.FormValue("execution")) },
		Show:      func(f *stream.Entry) bool { return f.Type == begin.Type || f.Type == token.Type },
		Reconnect: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	opened := make(chan string, 1000) // the position of each request
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, "../../examples/tokens/page.html") })
	mux.HandleFunc("/output", func(w http.ResponseWriter, r *http.Request) {
		opened <- r.Header.Get("Last-Event-ID")
		output.ServeHTTP(w, r)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	x := f.Create(t, func(s *engine.ExecutionSpec) { s.Kind, s.Payload = "tell", []byte("{}") })
	visit := func() {
		b.Visit(t, server.URL+"/?execution="+x.String())
	}

	visit()
	fixture.Received(t, opened)
	first := startWordWriter(t, f)
	first.say(t, "Once ", "upon ")
	b.Await(t, shown, "Once upon ")

	server.CloseClientConnections()
	if after := fixture.Received(t, opened); after == "" {
		t.Error("the browser reconnects without a position")
	}
	first.say(t, "a ")
	b.Await(t, shown, "Once upon a ")
	b.Await(t, being, "open")

	first.kill(t)
	f.Advance(time.Hour) // its lease has expired
	fixture.Run(t, upkeep.Of(f.Engine).ExpireLeases, 1)
	second := appender{f, f.ClaimOne(t).Lease}
	appendTo(t, f.Engine, second.Lease, stream.FrameSpec{Type: stream.Log, Payload: []byte("not for the page")})
	second.say(t, "hill ") // a handler with turns that begins again goes on behind them
	b.Await(t, shown, "Once upon a hill ")
	second.begin(t)
	second.say(t, "Twice ")
	b.Await(t, shown, "Twice ")

	f.RetryAtOnce(t, x)
	f.Fail(t, second.Lease, engine.Failure{})
	third := appender{f, f.ClaimOne(t).Lease}
	third.begin(t)
	third.say(t, "Long ", "ago ")
	b.Await(t, shown, "Long ago ")

	visit() // reloaded
	if after := fixture.Received(t, opened); after != "" {
		t.Errorf("a reloaded page begins at %q", after)
	}
	b.Await(t, shown, "Long ago ")
	third.say(t, "it ", "was")
	finish(t, f, third.Lease)
	b.Await(t, being, "finished")
	b.Await(t, shown, "Long ago it was")

	visit() // opened late
	fixture.Received(t, opened)
	b.Await(t, being, "finished")
	b.Await(t, shown, "Long ago it was")
	if n := len(opened); n > 0 {
		t.Errorf("the browser has opened the finished stream %d times more", n)
	}
}
