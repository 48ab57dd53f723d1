package schedules

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/schedule"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// calls are the operations on one schedule that lock it.
func calls(f *fixture.Fixture, e *engine.Engine, name string) map[string]func(context.Context) error {
	of := schedule.Name{Name: name}
	return map[string]func(context.Context) error{
		"set": func(ctx context.Context) error { return schedule.Put(ctx, e, every(f, name, time.Hour)) },
		"declare": func(ctx context.Context) error {
			_, err := schedule.Declare(ctx, e, schedule.Set{
				Name: "set " + name, Vanished: schedule.RemoveVanished, Schedules: []schedule.Spec{every(f, name, 2*time.Hour)},
			})
			return err
		},
		"pause":  func(ctx context.Context) error { return schedule.Pause(ctx, e, of, "") },
		"resume": func(ctx context.Context) error { return schedule.Resume(ctx, e, of) },
		"trigger": func(ctx context.Context) error {
			_, err := schedule.Trigger(ctx, e, of)
			return err
		},
		"delete": func(ctx context.Context) error { return schedule.Delete(ctx, e, of) },
	}
}

// While another transaction holds a schedule, calls on it give up after a time and change nothing, and the job goes on with
// other schedules.
func TestHeldSchedule(t *testing.T) {
	f := fixture.NewCloned(t)
	set(t, f, every(f, "held", time.Minute))
	set(t, f, every(f, "free", time.Minute))
	f.Advance(time.Minute)
	tx := f.BeginTx(t)
	fixture.ExecIn(t, tx, "SELECT FROM ffx_schedule WHERE name = 'held' FOR UPDATE")
	before := fixture.Texts(t, f.Pool, "SELECT to_jsonb(s)::text FROM ffx_schedule AS s WHERE name = 'held'")
	rival, _ := f.ShortWaitRival(t)
	for name, call := range calls(f, rival.Engine, "held") {
		if err := call(t.Context()); !errors.Is(err, fferr.ErrContention) {
			t.Errorf("%s: error %v, want ErrContention", name, err)
		}
	}
	if got := fixture.Texts(t, f.Pool, "SELECT to_jsonb(s)::text FROM ffx_schedule AS s WHERE name = 'held'"); got[0] != before[0] {
		t.Errorf("%s, want %s", got, before)
	}
	if s := describe(t, f, "held"); s.Name != "held" { // reads don't wait
		t.Errorf("%+v", s)
	}
	run(t, f, 1)
	fixture.Commit(t, tx)
	run(t, f, 1)
	wantCreated(t, f, "1m0s 1m0s")
}

// A pool of one connection suffices for all calls, however many are made at once.
func TestSchedulesOnAPoolOfOneConnection(t *testing.T) {
	f := fixture.NewCloned(t)
	rival := f.Rival(t, func(config *pgxpool.Config) { config.MaxConns = 1 })
	var waits []func() error
	for i := range 4 {
		name := fmt.Sprint("s", i)
		set(t, f, every(f, name, time.Minute))
		for _, call := range calls(f, rival.Engine, name) {
			waits = append(waits, fixture.Async(t, call))
		}
		waits = append(waits, fixture.Async(t, func(ctx context.Context) error {
			_, err := upkeep.Of(rival.Engine).RunSchedules(ctx, 10)
			return err
		}))
	}
	for _, wait := range waits {
		if err := wait(); err != nil && !errors.Is(err, fferr.ErrNotFound) { // deleted before
			t.Error(err)
		}
	}
}
