//go:build unix

package chaos

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/soak"
	"github.com/flowfabric/flowfabric-go/worker"
)

// reserving is an execution that uses tokens of a budget and of the one above it.
type reserving struct{ Run, User id.BudgetID }

var kindReserves = engine.Kind[reserving, result]{Name: "reserves"}

const (
	reserveRounds = 20
	reservedEach  = 3
	tokens        = "tokens"
)

// usedIn returns how much of a reservation a round uses, and false if it leaves it open.
func usedIn(round int) (int64, bool) { return int64(round % (reservedEach + 1)), round%7 != 3 }

// reserve reserves in each round, and settles with a key, so that a run after a kill counts nothing twice.
func (s *shapeWorker) reserve(ctx context.Context, job worker.Job[reserving]) (result, error) {
	for round := range reserveRounds {
		held, err := job.Reserve(ctx, job.Args.Run, map[string]int64{tokens: reservedEach}, job.Args.User)
		if err != nil {
			return result{}, err
		}
		used, settles := usedIn(round)
		if held.Outcome == budget.HardBreach || !settles {
			continue
		}
		held.Key = fmt.Sprintf("%s/%d/%d", job.ID.UUID(), round, used)
		settled, err := held.Settle(ctx, map[string]int64{tokens: used})
		if err != nil {
			return result{}, err
		}
		if settled.Outcome == budget.HardBreach {
			return result{}, worker.Permanent(fmt.Errorf("a settlement within its reservation was refused: %+v", settled))
		}
	}
	return resultOf(job.Lease), nil
}

// Handlers reserve and settle on two levels of budgets while processes are killed and frozen. No budget is overspent at any
// moment, and in the end the usage is the sum of the settlements, and nothing is reserved. In a soak it makes a million reservations.
func TestReservationsNeverOverspendUnderKills(t *testing.T) {
	t.Parallel()
	url := pgtest.CloneURL(t)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	eng, err := engine.New(pool, engine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	executions := soak.Size(t, 200, 1_000_000/reserveRounds)
	users, runs := createTrees(t, eng, executions)
	if _, err := pool.Exec(t.Context(), "ANALYZE"); err != nil {
		t.Fatal(err)
	}
	f := &fleet{t: t, pool: pool, url: url, dangers: dangers{
		killOneIn: soak.Size(t, 30, 3_000), maxKills: soak.Size(t, 4, 16), freezeOneIn: soak.Size(t, 60, 8_000), maxFreezes: soak.Size(t, 2, 6),
		within: leaseTTL / 10,
	}}
	for range processes / 2 {
		f.start()
	}
	watching, stop := context.WithCancel(t.Context())
	watched := make(chan int, 1)
	go func() { watched <- watchBudgets(watching, t, eng, append(users, runs...)) }()
	f.awaitNone("executions that have not ended", `SELECT count(*) FROM ff_exec_core WHERE lifecycle_phase NOT IN ('terminal', 'cancelled')`)
	stop()
	looks := <-watched
	f.stop()
	t.Logf("%d reservations or more, %d handlers started, %d processes killed, %d frozen, %d outcomes refused, %d looks",
		executions*reserveRounds, f.started, f.kills, f.freezes, f.refused, looks)
	if f.kills < f.maxKills/2 || f.freezes == 0 || looks == 0 {
		t.Error("that was too little chaos to prove anything")
	}
	if _, err := pool.Exec(t.Context(), "ANALYZE"); err != nil {
		t.Fatal(err)
	}
	wantNone(t, pool, "an execution has not completed", `SELECT execution_id::text FROM ff_exec_core WHERE public_state <> 'completed' LIMIT 10`)
	checkSettlements(t, pool, eng, users, runs)
}

// createTrees creates budgets of users, each with those of four runs, and executions under them that want more than they have.
func createTrees(t *testing.T, eng *engine.Engine, executions int) (users, runs []id.BudgetID) {
	t.Helper()
	const perUser, manyUsers = 4, 4
	var each int64
	for round := range reserveRounds {
		if used, settles := usedIn(round); settles {
			each += used
		}
	}
	demand := each * int64(executions) / (perUser * manyUsers)
	budget := func(limit int64) id.BudgetID {
		created, err := budget.Create(t.Context(), eng, budget.Spec{Limits: map[string]budget.Limit{tokens: {Hard: limit}}})
		if err != nil {
			t.Fatal(err)
		}
		return created.ID
	}
	var args []reserving
	for range manyUsers {
		user := budget(demand * perUser * 8 / 10)
		users = append(users, user)
		for range perUser {
			run := budget(demand * 9 / 10)
			runs = append(runs, run)
			args = append(args, reserving{Run: run, User: user})
		}
	}
	specs := make([]engine.ExecutionSpec, executions)
	for i := range specs {
		specs[i] = kindReserves.Spec(args[i%len(args)])
		specs[i].Lane = lane
		specs[i].Policy = &policy.Execution{Retry: &policy.Retry{MaxRetries: 100, Backoff: policy.Exponential(time.Second, time.Minute)}, MaxReclaims: 1_000}
	}
	for len(specs) > 0 {
		n := min(len(specs), engine.MaxBatch)
		if _, err := eng.CreateExecutions(t.Context(), specs[:n]); err != nil {
			t.Fatal(err)
		}
		specs = specs[n:]
	}
	return users, runs
}

// watchBudgets looks at budgets until ctx ends: usage and reservations together never exceed the limit. It returns the number
// of its looks.
func watchBudgets(ctx context.Context, t *testing.T, eng *engine.Engine, budgets []id.BudgetID) (looks int) {
	for ; ctx.Err() == nil; looks++ {
		b := budgets[looks%len(budgets)]
		found, err := budget.Get(ctx, eng, b)
		if err == nil && found.Usage[tokens]+found.Reserved[tokens] > found.Limits[tokens].Hard {
			t.Errorf("%s is overspent: used %d, reserved %d of %d", b, found.Usage[tokens], found.Reserved[tokens], found.Limits[tokens].Hard)
		}
	}
	return looks
}

// checkSettlements compares the usage of budgets with the settlements under their keys, once all leases are over.
func checkSettlements(t *testing.T, pool *pgxpool.Pool, eng *engine.Engine, users, runs []id.BudgetID) {
	t.Helper()
	for {
		// Those of leases that were lost are due at the former end of the lease.
		var left int
		if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM ffx_budget_reservation").Scan(&left); err != nil {
			t.Fatal(err)
		}
		if left == 0 {
			break
		}
		if _, err := upkeep.Of(eng).ReleaseReservations(t.Context(), engine.MaxBatch); err != nil {
			t.Fatal(err)
		}
	}
	settled := make(map[string]int64)
	rows, err := pool.Query(t.Context(), `
		SELECT split_part(dedup_key, '|', 1), sum(split_part(split_part(dedup_key, '|', 3), '/', 3)::bigint)
		FROM ff_budget_usage_dedup
		WHERE split_part(dedup_key, '|', 2) = 'settle' AND outcome_json ->> 'kind' = 'Ok'
		GROUP BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var b string
		var n int64
		if err := rows.Scan(&b, &n); err != nil {
			t.Fatal(err)
		}
		settled[b] = n
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	check := func(b id.BudgetID, want int64) {
		t.Helper()
		found, err := budget.Get(t.Context(), eng, b)
		if err != nil {
			t.Fatal(err)
		}
		if found.Usage[tokens] != want || want > found.Limits[tokens].Hard || len(found.Reserved) != 0 {
			t.Errorf("%s: %+v, want a usage of %d", b, found, want)
		}
	}
	perUser := len(runs) / len(users)
	for i, user := range users {
		var sum int64
		for _, run := range runs[i*perUser : (i+1)*perUser] {
			check(run, settled[run.String()])
			sum += settled[run.String()]
		}
		check(user, sum)
	}
}
