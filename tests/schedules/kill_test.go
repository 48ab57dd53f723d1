package schedules

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/schedule"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

var asRunner = flag.Bool("schedules.runner", false, "be a process that a test kills, with orders on its standard input")

// orders are the parameters of a process, as JSON.
type orders struct {
	DatabaseURL string
	Lane        id.LaneID
	NowMs       int64
}

// beRunner runs the schedules that are due.
func beRunner(input io.Reader) error {
	var given orders
	if err := json.NewDecoder(input).Decode(&given); err != nil {
		return err
	}
	config, err := pgxpool.ParseConfig(given.DatabaseURL)
	if err != nil {
		return err
	}
	config.ConnConfig.RuntimeParams["application_name"] = string(given.Lane)
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // one round trip for each statement
	ctx := context.Background()
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	eng, err := engine.New(pool, engine.Config{Now: func() time.Time { return time.UnixMilli(given.NowMs) }})
	if err != nil {
		return err
	}
	_, err = upkeep.Of(eng).RunSchedules(ctx, 10)
	return err
}

// A process is killed between any two of its round trips while it acts on ticks: of a plain schedule, one that catches up, one
// that cancels and one that lets a tick wait. Another one goes on. Each tick has one execution.
func TestProcessesKilledBetweenRoundTrips(t *testing.T) {
	const fewestMoments = 8
	f := fixture.NewCloned(t)
	for name, change := range map[string]func(*schedule.Spec){
		"plain": func(*schedule.Spec) {},
		"all": func(s *schedule.Spec) {
			s.Missed, s.Window, s.Every = schedule.MissedAll, time.Hour, 20*time.Second
		},
		"cancel": func(s *schedule.Spec) { s.Overlap = schedule.OverlapCancel },
		"queue":  func(s *schedule.Spec) { s.Overlap = schedule.OverlapQueue },
	} {
		set(t, f, every(f, name, time.Minute, change))
	}
	moments := 0
	for cut := true; cut; {
		moments++
		f.Advance(time.Minute)
		cut = fixture.RunCut(t, f.Url, "-schedules.runner", moments, func(url string) any {
			return orders{url, f.Lane, f.Time().UnixMilli()}
		})
		fixture.Await(t, "the server to end the sessions of the process", func() bool {
			return len(fixture.Texts(t, f.Pool, "SELECT pid::text FROM pg_stat_activity WHERE application_name = $1", string(f.Lane))) == 0
		})
		if _, err := upkeep.Of(f.Engine).RunSchedules(t.Context(), 10); err != nil {
			t.Fatal(err)
		}
		var wrong []string
		for _, line := range fixture.Texts(t, f.Pool, `SELECT raw_fields #>> '{tags,ffx.schedule}' || ' ' || count(*) || ' of '
			|| count(DISTINCT raw_fields #>> '{tags,ffx.scheduled_for}') FROM ff_exec_core GROUP BY raw_fields #>> '{tags,ffx.schedule}' ORDER BY 1`) {
			want := map[string]bool{"queue 1 of 1": true}
			for name, n := range map[string]int{"plain": moments, "cancel": moments, "all": 3 * moments} {
				want[fmt.Sprintf("%s %d of %d", name, n, n)] = true
			}
			if !want[line] {
				wrong = append(wrong, line)
			}
		}
		if running := fixture.Texts(t, f.Pool, `SELECT execution_id::text FROM ff_exec_core
			WHERE raw_fields #>> '{tags,ffx.schedule}' = 'cancel' AND lifecycle_phase NOT IN ('terminal', 'cancelled')`); len(running) != 1 || wrong != nil {
			t.Fatalf("killed at moment %d: executions and ticks %q, and %d run beside each other", moments, wrong, len(running))
		}
	}
	t.Logf("killed at %d moments", moments-1)
	if moments <= fewestMoments {
		t.Errorf("there were %d moments, want more than %d", moments-1, fewestMoments)
	}
}
