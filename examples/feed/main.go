// Command feed reports every new lease to another system over HTTP. It stores the position after the other system has
// answered. So after a crash an event may be reported twice, and none is missed; the other system recognises an event by
// its id.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/events"
	"github.com/flowfabric/flowfabric-go/state"
)

var Charge = engine.Kind[int, struct{}]{Name: "charge", Lane: "charges"}

func main() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	pool := must(pgxpool.New(ctx, os.Getenv("DATABASE_URL")))
	defer pool.Close()
	eng := must(engine.New(pool, engine.Config{}))
	audit := newAudit()
	defer audit.server.Close()
	cursor := filepath.Join(must(os.MkdirTemp("", "feed")), "cursor")
	must(0, os.WriteFile(cursor, []byte(events.Beginning.String()), 0o600))

	for euros := range 3 {
		must(Charge.Create(ctx, eng, euros))
	}
	must(eng.Claim(ctx, engine.ClaimSpec{Lane: "charges", Worker: "cashier", Instance: "cashier-1", LeaseTTL: time.Minute}, 3))

	audit.failAt = 3 // the other system breaks down once
	fmt.Println("feed:", feed(ctx, eng, cursor, audit.server.URL, 3))
	fmt.Println("feed:", feed(ctx, eng, cursor, audit.server.URL, 2)) // the second event was reported, but its position was not stored
	fmt.Println("audited:", len(audit.seen), "told twice:", audit.twice)
}

var errAudit = errors.New("the audit is down")

// feed reports n leases from after the stored position.
func feed(ctx context.Context, eng *engine.Engine, cursorFile, url string, n int) error {
	var after events.Cursor
	if err := after.UnmarshalText(must(os.ReadFile(cursorFile))); err != nil {
		return err
	}
	sub, err := events.Subscribe(ctx, eng, events.Leases(events.Filter{}), events.Options{After: after})
	if err != nil {
		return err
	}
	defer sub.Close()
	delivered := 0
	for lease, err := range sub.All() {
		if err != nil {
			return err
		}
		if lease.Type != state.LeaseEventAcquired {
			continue
		}
		body := must(json.Marshal(map[string]any{"id": lease.ID, "execution": lease.Execution, "worker": lease.Worker}))
		response, err := http.Post(url, "application/json", bytes.NewReader(body))
		if err != nil {
			return err
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return errAudit
		}
		if delivered++; delivered%2 == 1 { // store every second position, since a file is slow to write
			if err := os.WriteFile(cursorFile, []byte(sub.Position().String()), 0o600); err != nil {
				return err
			}
		}
		if delivered == n {
			break
		}
	}
	return nil
}

// audit is the other system.
type audit struct {
	server *httptest.Server
	failAt int

	mu    sync.Mutex
	asked int
	seen  map[int64]bool
	twice int
}

func newAudit() *audit {
	a := &audit{seen: make(map[int64]bool)}
	a.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var event struct {
			ID int64 `json:"id"`
		}
		must(0, json.Unmarshal(must(io.ReadAll(r.Body)), &event))
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.asked++; a.asked == a.failAt {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if a.seen[event.ID] {
			a.twice++
		}
		a.seen[event.ID] = true
	}))
	return a
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
