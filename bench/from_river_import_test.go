package main

import (
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/pgtest"
)

type welcomeArgs struct {
	User int64 `json:"user"`
}

func (welcomeArgs) Kind() string { return "welcome" }

// The statement of docs/from-river.md moves the waiting jobs of River's own tables, once each. F4
func TestJobsOfRiverAreMoved(t *testing.T) {
	page, err := os.ReadFile("../docs/from-river.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)```sql\n(WITH moved AS .*?)```").FindSubmatch(page)
	if found == nil {
		t.Fatal("docs/from-river.md has no statement that moves jobs")
	}
	move := string(found[1])
	ctx := t.Context()
	pool, err := pgxpool.New(ctx, pgtest.CloneURL(t))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		t.Fatal(err)
	}
	client, err := river.NewClient(driver, &river.Config{})
	if err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(48 * time.Hour).Truncate(time.Millisecond)
	for _, opts := range []*river.InsertOpts{
		{Queue: "mail", Priority: 1, Tags: []string{"free", "europe"}},
		{Queue: "mail", ScheduledAt: later},
		{Queue: "mail", Pending: true},
	} {
		if _, err := client.Insert(ctx, welcomeArgs{User: 7}, opts); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []int64{2, 0} {
		tag, err := pool.Exec(ctx, move)
		if err != nil || tag.RowsAffected() != want {
			t.Fatalf("moved %d jobs, want %d, %v", tag.RowsAffected(), want, err)
		}
	}
	var left int
	if err := pool.QueryRow(ctx, "SELECT count(*) FROM river_job").Scan(&left); err != nil || left != 1 {
		t.Errorf("%d jobs are left, want the pending one, %v", left, err)
	}
	eng, err := engine.New(pool, engine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var now, delayed int
	for x, err := range eng.Executions(ctx, engine.ExecutionFilter{Lane: "mail"}) {
		if err != nil {
			t.Fatal(err)
		}
		got, err := eng.DescribeExecution(ctx, x.ID)
		if err != nil {
			t.Fatal(err)
		}
		input, err := eng.ExecutionInput(ctx, x.ID)
		if err != nil || got.Kind != "welcome" || got.Tags["river.id"] == "" || string(input.Payload) != `{"user": 7}` {
			t.Errorf("moved as %+v, payload %s, %v", got, input.Payload, err)
		}
		switch {
		case got.DelayUntil.Equal(later):
			delayed++
		case got.DelayUntil.IsZero() && got.Priority == 3 && got.Tags["river.tags"] == "free,europe":
			now++
		}
	}
	if now != 1 || delayed != 1 {
		t.Errorf("%d claimable, %d delayed", now, delayed)
	}
}
