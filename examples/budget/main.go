// Command budget stops an agent at its budget of tokens. Before each question the agent reserves the largest possible answer
// on the budget of its run and on the budget of its user. So the agent asks no question without the tokens for the answer,
// however many agents share the user's budget. A worker may die at any point: the tokens of an answer are counted once, and a
// reservation returns with its lease.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/worker"
)

// Run is an agent's run, with budgets of the run and of the user.
type Run struct {
	Topic     string
	Run, User id.BudgetID
}

// Research lets the agent work on a topic until a budget is used up. The result is the number of answers.
var Research = engine.Kind[Run, int]{Name: "research"}

// mostTokens is the most an answer may have.
const mostTokens = 40

func main() {
	ctx, stop := context.WithCancel(context.Background())
	pool := must(pgxpool.New(ctx, os.Getenv("DATABASE_URL")))
	defer pool.Close()
	eng := must(engine.New(pool, engine.Config{}))
	budgets := func(tokens int64) id.BudgetID {
		return must(budget.Create(ctx, eng, budget.Spec{
			Limits: map[string]budget.Limit{budget.OutputTokens: {Hard: tokens}},
		})).ID
	}

	w := must(worker.New(eng, worker.Config{}))
	worker.Handle(w, Research, research)
	var working sync.WaitGroup
	working.Go(func() { must(0, w.Run(ctx)) })
	defer working.Wait()
	defer stop()

	user := budgets(150)
	for _, topic := range []string{"tea", "salt"} {
		run := Run{Topic: topic, Run: budgets(100), User: user}
		created := must(Research.Create(ctx, eng, run))
		fmt.Println(topic, "answers:", must(Research.Await(ctx, eng, created.ID)))
	}
	left := must(budget.Get(ctx, eng, user))
	fmt.Println("the user has used", left.Usage[budget.OutputTokens], "of", left.Limits[budget.OutputTokens].Hard)
}

func research(ctx context.Context, job worker.Job[Run]) (int, error) {
	for n := 0; ; n++ {
		answer, err := worker.Step(ctx, job, worker.Key("ask", n), func(ctx context.Context) (string, error) {
			return pay(ctx, job, n)
		})
		if err != nil || answer == "" {
			return n, err
		}
	}
}

// pay returns an answer and takes the tokens from the budgets. If too little is left, pay returns "".
func pay(ctx context.Context, job worker.Job[Run], n int) (string, error) {
	held, err := job.Reserve(ctx, job.Args.Run, map[string]int64{budget.OutputTokens: mostTokens}, job.Args.User)
	if err != nil {
		return "", err
	}
	if held.Outcome == budget.HardBreach && held.ByReservations {
		return "", job.Delay(time.Second) // another run holds the rest, and may give it back
	}
	if held.Outcome == budget.HardBreach {
		fmt.Println(job.Args.Topic, "stops at", held.Current, "of", held.Limit)
		return "", nil
	}
	answer := ask(job.Args.Topic, n)
	held.Key = worker.IdempotencyKey(ctx) // counts once, even if the worker dies before the step is stored
	_, err = held.Settle(ctx, map[string]int64{budget.OutputTokens: int64(len(strings.Fields(answer)))})
	return answer, err
}

// ask replaces a language model, and uses a token for each word.
func ask(topic string, n int) string { return strings.Repeat(topic+" ", 20+10*(n%2)) }

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
