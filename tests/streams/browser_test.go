package streams

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/stream"
	"github.com/flowfabric/flowfabric-go/tests/internal/browser"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

var token = engine.Frame[string]{Type: "token"}

// appender is an [engine.FrameWriter] that holds a lease.
type appender struct {
	*fixture.Fixture
	engine.Lease
}

func (a appender) WriteFrame(ctx context.Context, f engine.FrameSpec) error {
	_, err := a.AppendFrames(ctx, a.Lease, []engine.FrameSpec{f})
	return err
}

func (a appender) say(t *testing.T, words ...string) {
	t.Helper()
	for _, word := range words {
		if err := token.Write(t.Context(), a, word); err != nil {
			t.Fatal(err)
		}
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
	work := f.Start(t)
	visit := func() {
		b.Call(t, "Page.navigate", map[string]any{"url": server.URL + "/?execution=" + work.ID.String()}, nil)
	}

	visit()
	fixture.Received(t, opened)
	first := appender{f, work.Lease}
	first.say(t, "Once ", "upon ")
	b.Await(t, shown, "Once upon ")

	server.CloseClientConnections()
	if after := fixture.Received(t, opened); after == "" {
		t.Error("the browser reconnects without a position")
	}
	first.say(t, "a ")
	b.Await(t, shown, "Once upon a ")
	b.Await(t, being, "open")

	f.Advance(f.Worker().LeaseTTL + time.Millisecond) // the worker is dead
	fixture.Run(t, f.Maintenance().ExpireLeases, 1)
	second := appender{f, f.ClaimOne(t).Lease}
	second.say(t, "Twice ")
	b.Await(t, shown, "Twice ")

	f.RetryAtOnce(t, work.ID)
	f.Fail(t, second.Lease, engine.Failure{})
	third := appender{f, f.ClaimOne(t).Lease}
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
