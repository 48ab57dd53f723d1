package console

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/console"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/tests/internal/soak"
)

// statement is a statement a page has sent.
type statement struct {
	sql  string
	args []any
}

// recorder records the statements of pages.
type recorder struct {
	mu   sync.Mutex
	sent []statement
}

func (r *recorder) record(sql string, args []any) {
	if !strings.HasPrefix(sql, "-- name:") && !strings.Contains(sql, "FROM") { // settings of the transaction
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = append(r.sent, statement{sql, args})
}

// take returns the statements since the last call.
func (r *recorder) take() []statement {
	r.mu.Lock()
	defer r.mu.Unlock()
	sent := r.sent
	r.sent = nil
	return sent
}

func (r *recorder) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	r.record(data.SQL, data.Args)
	return ctx
}

func (r *recorder) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (r *recorder) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (r *recorder) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	r.record(data.SQL, data.Args)
}

func (r *recorder) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// recorded serves the pages by another engine, whose statements are recorded.
func (w *world) recorded(t *testing.T) *recorder {
	t.Helper()
	var log recorder
	w.serve(t, fixture.OpenPool(t, w.url, func(config *pgxpool.Config) { config.ConnConfig.Tracer = &log }))
	return &log
}

// maxBuffers is the largest number of buffers a statement of a page reads.
const maxBuffers = 1000

// statements returns how many statements a page may need. The pages of an execution also explain it, by six.
func statements(page string) int {
	switch page {
	case "execution", "waiting", "asking":
		return 4 + 6
	}
	return 5
}

// searches returns paths of lists by filters, and of counts, which match few executions or many.
func searches() map[string]string {
	paths := make(map[string]string)
	for i, filter := range []string{
		"kind=none", "kind=broken", "kind=lonely", "state=failed", "state=active", "state=delayed&lane=mail", "tag=test.many%3D3", "instance=none", "worker=none",
		"since=1h",
	} {
		paths[fmt.Sprint("search ", i)] = "executions?" + filter
		paths[fmt.Sprint("count ", i)] = "executions/many?" + filter
		if !strings.Contains(filter, "none") || i == 0 {
			paths[fmt.Sprint("failures ", i)] = "executions?group=failures&" + filter
		}
	}
	paths["search flows"] = "flows?kind=none"
	return paths
}

// A page needs few statements.
func TestPagesNeedFewStatements(t *testing.T) {
	w := newWorld(t, "Ada")
	log := w.recorded(t)
	w.get(t, "lanes") // reads the clock and the rights, once a minute
	w.get(t, "database")
	for name, path := range w.pages() {
		log.take()
		status, _ := w.get(t, path)
		sent := log.take()
		if want := statements(name); status != http.StatusOK || len(sent) > want {
			t.Errorf("%s: status %d with %d statements, want at most %d:", name, status, len(sent), want)
			for _, s := range sent {
				t.Log(strings.SplitN(s.sql, "\n", 2)[0])
			}
		}
	}
}

// Clients of live pages share their reads: 100 clients see a change by fewer statements than clients.
func TestLivePagesShareTheirReads(t *testing.T) {
	w := newWorld(t, "Ada")
	log := w.recorded(t)
	const clients = 100
	rows := make(chan string, 10*clients)
	ctx, stop := context.WithCancel(t.Context())
	var open sync.WaitGroup
	for range clients {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.base+"live/executions?kind=greet", nil)
		must(t, err)
		response, err := http.DefaultClient.Do(request)
		must(t, err)
		open.Go(func() {
			defer func() { _ = response.Body.Close() }()
			for lines := bufio.NewScanner(response.Body); lines.Scan(); {
				select {
				case rows <- lines.Text():
				case <-ctx.Done():
					return
				}
			}
		})
	}
	defer open.Wait()
	defer stop()
	log.take()
	created, err := greet.Create(t.Context(), w.eng, "Grace")
	must(t, err)
	for seen := 0; seen < clients; {
		select {
		case line := <-rows:
			if strings.Contains(line, `href="/executions/`+created.ID.Short()) {
				seen++
			}
		case <-t.Context().Done():
			t.Fatalf("%d clients have seen the change", seen)
		}
	}
	if n := len(log.take()); n >= clients {
		t.Errorf("%d statements for %d clients", n, clients)
	}
}

// People with the same rights share the rows of a page, so that rows hold no name of a reader.
func TestLiveRowsNameNoReader(t *testing.T) {
	w := newWorld(t, "Ada")
	for _, path := range []string{"lanes", "executions", "executions/" + w.asking.Short(), "flows", "flows/" + w.flow.String(), "waits", "workers"} {
		for _, name := range []string{"Lovelace", "Hopper"} {
			w.person.Store(&console.Access{Name: name, Actions: console.Actions()})
			ctx, stop := context.WithCancel(t.Context())
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.base+"live/"+path, nil)
			must(t, err)
			response, err := http.DefaultClient.Do(request)
			must(t, err)
			lines, rows := bufio.NewScanner(response.Body), 0
			for lines.Scan() && (rows == 0 || lines.Text() != "") {
				if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
					if rows++; strings.Contains(text, name) {
						t.Errorf("%s: %s", path, text)
					}
				}
			}
			stop()
			_ = response.Body.Close()
			if rows == 0 {
				t.Errorf("%s has no live rows: %v", path, lines.Err())
			}
		}
	}
}

// Pages cost the same on a large database: each statement has an index or a bound. A soak creates 1,000,000 executions.
func TestPagesAreBoundedOnALargeDatabase(t *testing.T) {
	w := newWorld(t, "Ada")
	pages := w.pages()
	maps.Copy(pages, searches())
	w.grow(t, soak.Size(t, 2_000, 1_000_000))
	log := w.recorded(t)
	w.get(t, "lanes")
	w.get(t, "database")
	for _, analyzed := range []bool{false, true} {
		// As autovacuum does: before, a million entries of the queue and the claimed ones are looked up in the table.
		_, err := w.pool.Exec(t.Context(), map[bool]string{false: "VACUUM", true: "VACUUM ANALYZE"}[analyzed])
		must(t, err)
		for name, path := range pages {
			log.take()
			var times []time.Duration
			visits := soak.Size(t, 1, 100)
			for range visits {
				began := time.Now()
				status, body := w.get(t, path)
				times = append(times, time.Since(began))
				if status != http.StatusOK {
					t.Fatalf("%s: status %d: %s", name, status, main(body))
				}
			}
			slices.Sort(times)
			sent := log.take()
			most := 0
			if want := visits * statements(name); len(sent) > want {
				t.Errorf("%s, analyzed %t: %d statements by %d visits, want at most %d", name, analyzed, len(sent), visits, want)
			}
			for _, s := range sent[:len(sent)/visits] {
				n := w.buffers(t, s)
				if most = max(most, n); n > maxBuffers {
					t.Errorf("%s, analyzed %t: %d buffers by %s", name, analyzed, n, s.sql)
				}
			}
			t.Logf("%s, analyzed %t: %d statements, at most %d buffers, p99 %s", name, analyzed, len(sent)/visits, most, times[len(times)*99/100])
		}
	}
}

// grow creates executions on several lanes: waiting, delayed and ended.
func (w *world) grow(t *testing.T, n int) {
	t.Helper()
	for begun := 0; begun < n; begun += engine.MaxBatch {
		specs := make([]engine.ExecutionSpec, min(engine.MaxBatch, n-begun))
		for i := range specs {
			specs[i] = lonely.Spec("many")
			specs[i].Tags = map[string]string{"test.many": fmt.Sprint(i % 100)}
			switch i % 10 {
			case 0:
				specs[i] = greet.Spec("many")
			case 1:
				specs[i].DelayUntil = time.Now().Add(time.Hour)
			case 2:
				specs[i] = broken.Spec("many")
			case 3, 4: // one of each key runs
				specs[i] = keyed.Spec(fmt.Sprint(begun + i - i%10))
			}
		}
		outcomes, err := w.eng.CreateExecutions(t.Context(), specs)
		must(t, err)
		for _, o := range outcomes {
			must(t, o.Err)
		}
	}
	fixture.Await(t, "the ends", func() bool {
		return w.text(t, "SELECT count(*)::text FROM ffx_ready WHERE lane_id = 'mail'") == "0"
	})
}

// buffers returns how many buffers a statement reads.
func (w *world) buffers(t *testing.T, s statement) int {
	t.Helper()
	args := slices.DeleteFunc(slices.Clone(s.args), func(arg any) bool {
		_, mode := arg.(pgx.QueryExecMode)
		return mode
	})
	var text string
	must(t, w.pool.QueryRow(t.Context(), "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+s.sql, args...).Scan(&text))
	var plans []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	must(t, json.Unmarshal([]byte(text), &plans))
	return plans[0].Plan.Hit + plans[0].Plan.Read
}
