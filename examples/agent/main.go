// Command agent is a loop of an agent: it asks a model for the next action, calls tools, and asks a person before it does something
// that can't be undone. Each answer of the model is a step, so the model is paid once for it, although the first worker
// dies while the person thinks. A worker may also die between an answer and the end of its step: then the question is
// repeated with the same key, by which the model recognises it.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/worker"
)

// Clean lets the agent clean up an account.
var Clean = engine.Kind[string, string]{Name: "clean"}

// Approved is a person's consent.
var Approved = engine.Signal[string]{Name: "approved"}

func main() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	pool := must(pgxpool.New(ctx, os.Getenv("DATABASE_URL")))
	defer pool.Close()
	eng := must(engine.New(pool, engine.Config{}))
	must(pool.Exec(ctx, "CREATE TABLE deleted (account text NOT NULL)"))
	server := httptest.NewServer(&model{answers: make(map[string]string)})
	defer server.Close()
	modelURL = server.URL

	asked := make(chan struct{}, 1)
	running, kill := context.WithCancel(ctx)
	first := start(running, eng, asked)
	created := must(Clean.Create(ctx, eng, "old account"))
	<-asked
	kill() // the first worker ends while the execution waits
	first.Wait()

	second := start(ctx, eng, asked)
	defer second.Wait()
	defer stop()
	must(0, Approved.Send(ctx, eng, created.ID, "ada"))
	fmt.Println("done:", must(Clean.Await(ctx, eng, created.ID)))
	for _, step := range must(eng.Steps(ctx, created.ID)) {
		fmt.Println("step:", step.Name)
	}
}

// start runs a worker. asked gets a value when an execution begins to wait for a person.
func start(ctx context.Context, eng *engine.Engine, asked chan<- struct{}) *sync.WaitGroup {
	w := must(worker.New(eng, worker.Config{Observer: waiting(asked)}))
	worker.Handle(w, Clean, clean)
	var working sync.WaitGroup
	working.Go(func() { must(0, w.Run(ctx)) })
	return &working
}

func clean(ctx context.Context, job worker.Job[string]) (string, error) {
	wait := engine.Wait{Asked: "Delete the " + job.Args + "?"}
	var history []string
	for turn := range 10 {
		tool, err := worker.Step(ctx, job, worker.Key("model", turn), func(ctx context.Context) (string, error) {
			return ask(ctx, history)
		})
		if err != nil {
			return "", err
		}
		result := "looked at the " + job.Args
		switch tool {
		case "ask":
			err = worker.Turn(ctx, job, "ask", func(_ context.Context, _ pgx.Tx, t *worker.TurnTx) error {
				return t.Await(Approved.Received(), wait)
			})
			if err != nil {
				return "", err
			}
			by, err := Approved.Await(ctx, job, wait)
			if err != nil {
				return "", err
			}
			result = "approved by " + by
		case "delete":
			// The deletion and the end of the execution are one commit.
			return "", worker.Turn(ctx, job, "delete", func(ctx context.Context, tx pgx.Tx, t *worker.TurnTx) error {
				if _, err := tx.Exec(ctx, "INSERT INTO deleted (account) VALUES ($1)", job.Args); err != nil {
					return err
				}
				return t.Complete(job.Args + " is deleted, " + history[len(history)-1])
			})
		}
		history = append(history, result)
	}
	return "", fmt.Errorf("no end after %d answers", len(history))
}

// modelURL is the address of the model.
var modelURL string

// ask asks the model for the next action.
func ask(ctx context.Context, history []string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, modelURL, strings.NewReader(strings.Join(history, "\n")))
	if err != nil {
		return "", err
	}
	request.Header.Set("Idempotency-Key", worker.IdempotencyKey(ctx))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("the model: %s: %s", response.Status, answer)
	}
	return string(answer), err
}

// model takes the place of a language model, which costs money, except for a repeated question.
type model struct {
	mu      sync.Mutex
	answers map[string]string // by key
}

func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	history, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	answer, repeated := m.answers[r.Header.Get("Idempotency-Key")]
	if !repeated {
		answer = "look"
		switch {
		case strings.Contains(string(history), "approved"):
			answer = "delete"
		case len(history) > 0:
			answer = "ask"
		}
		m.answers[r.Header.Get("Idempotency-Key")] = answer
		fmt.Println("paid for:", answer)
	}
	fmt.Fprint(w, answer)
}

// waiting is an observer that reports executions that begin to wait.
type waiting chan<- struct{}

func (w waiting) BeginRun(ctx context.Context, _ *engine.Claimed) (context.Context, func(worker.Report)) {
	return ctx, func(r worker.Report) {
		if r.Settlement == worker.Suspended {
			w <- struct{}{}
		}
	}
}

func (waiting) BeginPart(ctx context.Context, _ worker.Part) (context.Context, func(worker.PartReport)) {
	return ctx, nil
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
