package contender

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/console"
	"github.com/flowfabric/flowfabric-go/engine"
)

// Watched is a worker beside open live pages of the console, which has a pool of its own.
type Watched struct {
	*Worker
	Pages int
}

// Name implements [Contender].
func (w *Watched) Name() string {
	return fmt.Sprintf("%s, beside %d open pages", w.Worker.Name(), w.Pages)
}

// Run implements [Contender]. The pages are open while the worker runs.
func (w *Watched) Run(ctx context.Context, work Work) error {
	pool, err := pgxpool.NewWithConfig(ctx, w.Pool().Config())
	if err != nil {
		return err
	}
	defer pool.Close()
	eng, err := engine.New(pool, engine.Config{Log: w.log})
	if err != nil {
		return err
	}
	server := httptest.NewServer(console.Handler(eng, console.Config{Path: "/", Log: w.log, Authorize: func(*http.Request) (console.Access, error) {
		return console.Access{Name: "bench", Actions: console.Actions()}, nil
	}}))
	defer server.Close()
	reading, stop := context.WithCancel(ctx)
	var clients sync.WaitGroup
	defer clients.Wait()
	defer stop()
	pages := []string{"lanes", "executions", "flows", "waits", "workers"}
	for i := range w.Pages {
		request, err := http.NewRequestWithContext(reading, http.MethodGet, server.URL+"/live/"+pages[i%len(pages)], nil)
		if err != nil {
			return err
		}
		clients.Go(func() {
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				return // the run has ended
			}
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
		})
	}
	return w.Worker.Run(ctx, work)
}
