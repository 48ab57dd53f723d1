package house

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/tests/internal/soak"
)

const (
	agentStrides = 4
	agentMoments = 80 // at least so many, so that the test tests something
)

// The agent of examples/agent is killed before and after each of its statements, and another process goes on. The model is
// paid once for each answer, and the account is deleted once. A soak kills at each moment, other tests at every fourth.
func TestKilledAgentPaysOnce(t *testing.T) {
	t.Parallel()
	added, err := os.ReadFile("testdata/agent/worker.go")
	if err != nil {
		t.Fatal(err)
	}
	program := buildWith(t, map[string]string{
		"examples/agent/main.go":   exampleAsPackage(t, "examples/agent/main.go"),
		"examples/agent/worker.go": string(added),
		"examples/killed/main.go":  fmt.Sprintf("package main\n\nimport example %q\n\nfunc main() { example.Work() }\n", fixture.Module+"/examples/agent"),
	}, "./examples/killed")
	for first := range soak.Size(t, 1, agentStrides) {
		t.Run(fmt.Sprintf("from moment %d", first+1), func(t *testing.T) {
			f := fixture.NewCloned(t)
			f.Exec(t, "CREATE TABLE deleted (account text NOT NULL)")
			moment := first + 1
			for ; killAgent(t, f, program, moment); moment += agentStrides {
				if t.Failed() {
					t.Fatalf("killed at moment %d", moment)
				}
			}
			t.Logf("there were about %d moments", moment-1)
			if moment < agentMoments {
				t.Errorf("there were about %d moments, want %d or more", moment-1, agentMoments)
			}
		})
	}
}

// killAgent runs an agent that is killed at a moment, and another one that finishes its work. It reports whether there was
// such a moment.
func killAgent(t *testing.T, f *fixture.Fixture, program string, moment int) bool {
	t.Helper()
	eng, err := engine.New(f.Pool, engine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	account := fmt.Sprintf("account %d", moment)
	created, err := engine.Kind[string, string]{Name: "clean"}.Create(t.Context(), eng, account)
	if err != nil {
		t.Fatal(err)
	}
	x := created.ID
	paid := &payments{pool: f.Pool, execution: x.UUID().String(), answers: make(map[string]string)}
	model := httptest.NewServer(paid)
	defer model.Close()
	run := func(moment int) bool {
		return fixture.RunProgramCut(t, []string{program}, f.Url, moment, func(url string) any {
			return map[string]string{"DatabaseURL": url, "ModelURL": model.URL, "Name": account}
		})
	}
	cut := run(moment)
	if f.Stored(t, x).State != fixture.StateCompleted {
		fixture.Await(t, "the server to end the sessions of the process", func() bool {
			return len(fixture.Texts(t, f.Pool, "SELECT pid::text FROM pg_stat_activity WHERE application_name = $1", account)) == 0
		})
		later, err := engine.New(f.Pool, engine.Config{Now: func() time.Time { return time.Now().Add(time.Hour) }})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := upkeep.Of(later).ExpireLeases(t.Context(), 10); err != nil {
			t.Fatal(err)
		}
		approved := engine.Signal[string]{Name: "approved"}
		if f.Stored(t, x).State == fixture.StateSuspended { // the person may have died with the process
			if err := approved.Send(t.Context(), eng, x, "ada", engine.Once("person")); err != nil {
				t.Fatal(err)
			}
		}
		run(0)
	}
	paid.want(t)
	if got := string(f.Stored(t, x).Result); got != fmt.Sprintf("%q", account+" is deleted, approved by ada") {
		t.Errorf("the result is %s", got)
	}
	if deleted := fixture.Texts(t, f.Pool, "SELECT account FROM deleted WHERE account = $1", account); len(deleted) != 1 {
		t.Errorf("deleted %d times", len(deleted))
	}
	steps, err := eng.Steps(t.Context(), x)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range steps {
		names = append(names, s.Name)
	}
	if want := []string{"model/0", "model/1", "ask", "signal approved", "model/2", "delete"}; !slices.Equal(names, want) {
		t.Errorf("steps %q, want %q", names, want)
	}
	return cut
}

// payments is a model that notes what it is paid for: a question with a new key.
type payments struct {
	pool      *pgxpool.Pool
	execution string

	mu      sync.Mutex
	answers map[string]string // by key
	paid    []string
	late    []string // questions whose answer was stored already
	failed  error
}

func (p *payments) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	history := strings.FieldsFunc(string(body), func(r rune) bool { return r == '\n' })
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil && len(history) < 3 {
		var stored bool
		err = p.pool.QueryRow(context.WithoutCancel(r.Context()), "SELECT EXISTS (SELECT FROM ffx_step WHERE execution_id = $1::uuid AND name = $2)",
			p.execution, fmt.Sprintf("model/%d", len(history))).Scan(&stored)
		if stored {
			p.late = append(p.late, fmt.Sprint(history))
		}
	}
	if p.failed = err; err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	key := r.Header.Get("Idempotency-Key")
	answer, repeated := p.answers[key]
	if !repeated {
		answer = []string{"look", "ask", "delete", "too much"}[min(len(history), 3)]
		p.answers[key] = answer
		p.paid = append(p.paid, answer)
	}
	fmt.Fprint(w, answer)
}

// want fails the test unless each answer was paid for once.
func (p *payments) want(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Equal(p.paid, []string{"look", "ask", "delete"}) || len(p.late) > 0 || p.failed != nil {
		t.Errorf("paid for %q; %q were asked after their answers were stored; error %v", p.paid, p.late, p.failed)
	}
}
