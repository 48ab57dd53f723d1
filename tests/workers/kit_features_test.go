package workers_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fftest"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/stream"
	"github.com/flowfabric/flowfabric-go/tests/internal/soak"
	"github.com/flowfabric/flowfabric-go/worker"
)

// feature is a handler that uses features of a job.
type feature struct {
	name   string
	uses   []string
	handle func(ctx context.Context, kit *fftest.Kit, job worker.Job[string]) (string, error)
}

var (
	featured  = engine.Kind[string, string]{Name: "featured", Limits: []engine.Limit[string]{engine.Concurrency[string](1000)}}
	called    = engine.Kind[string, string]{Name: "featured_called"}
	upstream  = engine.Kind[string, string]{Name: "featured_upstream"}
	approval  = engine.Signal[string]{Name: "approval"}
	corrected = engine.Signal[string]{Name: "correction"}
	token     = stream.Frame[string]{Type: "token"}
)

var features = []feature{
	{"stream", []string{
		"Job.Stream", "Stream.WriteFrame", "Stream.Writer", "Stream.LogHandler", "Stream.Flush", "Job.Progress", "Job.Tick", "Job.Complete", "Step",
	}, func(ctx context.Context, kit *fftest.Kit, job worker.Job[string]) (string, error) {
		if err := token.Write(ctx, job.Stream(), "a"); err != nil {
			return "", err
		}
		if _, err := job.Stream().Writer(stream.Stdout).Write([]byte("b")); err != nil {
			return "", err
		}
		slog.New(job.Stream().LogHandler(nil)).Info("c")
		if at := job.Tick(); !at.IsZero() {
			return "", fmt.Errorf("created by the tick of %v", at)
		}
		if err := job.Progress(ctx, 50, "half"); err != nil {
			return "", err
		}
		out, err := worker.Step(ctx, job, "step", func(ctx context.Context) (string, error) {
			return "done", job.Stream().Flush(ctx)
		})
		if err != nil {
			return "", err
		}
		if err := token.Write(ctx, job.Stream(), "d"); err != nil {
			return "", err
		}
		return out, kit.Engine.InTx(ctx, func(tx pgx.Tx, _ *engine.Engine) error { return job.Complete(ctx, tx, out) })
	}},
	{"unflushed stream", []string{"Job.Stream"}, func(ctx context.Context, _ *fftest.Kit, job worker.Job[string]) (string, error) {
		for range 3 * worker.MaxStreamFrames / 2 {
			if err := token.Write(ctx, job.Stream(), "a"); err != nil {
				return "", err
			}
		}
		return "done", nil
	}},
	{"budget", []string{
		"Job.ReportUsage", "Job.Reserve", "Reservation.Settle", "Reservation.SettleIn", "Job.Delay", "StepTx",
	}, func(ctx context.Context, kit *fftest.Kit, job worker.Job[string]) (string, error) {
		budgets, err := worker.StepTx(ctx, job, "create", func(ctx context.Context, tx pgx.Tx) (id.BudgetID, error) {
			created, err := budget.Create(ctx, kit.Engine.WithTx(tx), budget.Spec{Limits: map[string]budget.Limit{"a": {Hard: 1_000}}})
			return created.ID, err
		})
		if err != nil {
			return "", err
		}
		if _, err := job.ReportUsage(ctx, budget.Usage{Budget: budgets, Amounts: map[string]int64{"a": 1}}); err != nil {
			return "", err
		}
		held, err := job.Reserve(ctx, budgets, map[string]int64{"a": 2})
		if err != nil {
			return "", err
		}
		if _, err := held.Settle(ctx, map[string]int64{"a": 1}); err != nil {
			return "", err
		}
		if held, err = job.Reserve(ctx, budgets, map[string]int64{"a": 2}); err != nil {
			return "", err
		}
		err = kit.Engine.InTx(ctx, func(_ pgx.Tx, eng *engine.Engine) error {
			_, err := held.SettleIn(ctx, eng, map[string]int64{"a": 1})
			return err
		})
		if err != nil || job.Resumed {
			return "done", err
		}
		return "", job.Delay(0)
	}},
	{"hold", []string{"Job.HoldLimit", "Job.Delay"}, func(ctx context.Context, kit *fftest.Kit, job worker.Job[string]) (string, error) {
		if job.Resumed {
			return "done", nil
		}
		now, err := kit.Engine.Now(ctx)
		if err != nil {
			return "", err
		}
		if err := job.HoldLimit(ctx, engine.LimitKey{Name: "featured/concurrency", Key: "another"}, now.Add(time.Minute)); err != nil {
			return "", err
		}
		return "", job.Delay(0)
	}},
	{"waits", []string{
		"Job.AwaitSignals", "Job.Waitpoint", "Sleep", "Call", "CallAll", "Job.Stream",
	}, func(ctx context.Context, kit *fftest.Kit, job worker.Job[string]) (string, error) {
		if err := token.Write(ctx, job.Stream(), "a"); err != nil {
			return "", err
		}
		one, err := worker.Call(ctx, job, "call", called, "b")
		if err != nil {
			return "", err
		}
		more, err := worker.CallAll(ctx, job, "calls", called, []string{"c", "d"})
		if err != nil {
			return "", err
		}
		if err := worker.Sleep(ctx, job, "sleep", 0); err != nil {
			return "", err
		}
		if _, err := job.Waitpoint(ctx, "hook", time.Hour); err != nil {
			return "", err
		}
		if _, err := worker.Step(ctx, job, "answer", func(ctx context.Context) (string, error) {
			return "", approval.Send(ctx, kit.Engine, job.ID, "e", engine.Once("answer"))
		}); err != nil {
			return "", err
		}
		by, err := approval.Await(ctx, job, engine.Wait{})
		return one + strings.Join(more, "") + by, err
	}},
	{"turn", []string{
		"Turn", "TurnTx.Engine", "TurnTx.TakeSignal", "TurnTx.WriteFrame", "TurnTx.Sleep", "TurnTx.Await", "TurnTx.Complete",
	}, func(ctx context.Context, _ *fftest.Kit, job worker.Job[string]) (string, error) {
		err := worker.Turn(ctx, job, "send", func(ctx context.Context, _ pgx.Tx, t *worker.TurnTx) error {
			if err := approval.Send(ctx, t.Engine(), job.ID, "a"); err != nil {
				return err
			}
			if err := corrected.Send(ctx, t.Engine(), job.ID, "b"); err != nil {
				return err
			}
			return t.Sleep(0)
		})
		if err != nil {
			return "", err
		}
		if err := token.Write(ctx, job.Stream(), "c"); err != nil {
			return "", err
		}
		err = worker.Turn(ctx, job, "take", func(ctx context.Context, _ pgx.Tx, t *worker.TurnTx) error {
			if _, _, err := corrected.Take(ctx, t); err != nil {
				return err
			}
			if err := t.WriteFrame(ctx, stream.FrameSpec{Payload: []byte("d")}); err != nil {
				return err
			}
			return t.Await(approval.Received(), engine.Wait{})
		})
		if err != nil {
			return "", err
		}
		by, err := approval.Await(ctx, job, engine.Wait{})
		if err != nil {
			return "", err
		}
		return "", worker.Turn(ctx, job, "end", func(_ context.Context, _ pgx.Tx, t *worker.TurnTx) error { return t.Complete(by) })
	}},
	{"upstreams", []string{"Job.Upstreams", "Job.WaitForChildren"}, func(ctx context.Context, _ *fftest.Kit, job worker.Job[string]) (string, error) {
		upstreams, err := job.Upstreams(ctx)
		if err != nil {
			return "", err
		}
		if !job.Resumed {
			return "", job.WaitForChildren()
		}
		return upstream.ResultOf(upstreams[0])
	}},
}

// run creates the execution of a feature, runs everything by drain and returns its result.
func (f feature) run(t *testing.T, kit *fftest.Kit, w *worker.Worker, drain func()) string {
	t.Helper()
	if _, err := operator.SeedKey(t.Context(), kit.Engine, "k1", wire.NewSecret()); err != nil { // for links
		t.Fatal(err)
	}
	worker.Handle(w, featured, func(ctx context.Context, job worker.Job[string]) (string, error) { return f.handle(ctx, kit, job) })
	echo := func(_ context.Context, job worker.Job[string]) (string, error) { return job.Args, nil }
	worker.Handle(w, called, echo)
	worker.Handle(w, upstream, echo)
	var created id.ExecutionID
	if slices.Contains(f.uses, "Job.Upstreams") {
		flow, err := kit.Engine.CreateFlow(t.Context(), engine.FlowSpec{
			Nodes: []engine.Node{{Key: "upstream", Spec: upstream.Spec("up")}, {Key: "featured", Spec: featured.Spec("")}},
			Edges: []engine.Edge{{From: "upstream", To: "featured"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		created = kit.Engine.NodeID(flow.ID, "featured")
	} else {
		created = fftest.Create(kit, featured, "").ID
	}
	drain()
	result, err := featured.Result(t.Context(), kit.Engine, created)
	if err != nil {
		t.Errorf("%s: %v", f.name, err)
	}
	return result
}

// W16.
func TestEveryFeatureOfAJobRunsInTheKit(t *testing.T) {
	t.Parallel()
	want := map[string]string{"stream": "done", "unflushed stream": "done", "budget": "done", "hold": "done", "waits": "bcde", "turn": "a", "upstreams": "up"}
	for _, f := range features {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			kit := fftest.New(t)
			if got := f.run(t, kit, kit.Worker, kit.Drain); got != want[f.name] {
				t.Errorf("by Drain the result is %q, want %q", got, want[f.name])
			}
			kit = fftest.New(t)
			w, err := worker.New(kit.Engine, worker.Config{})
			if err != nil {
				t.Fatal(err)
			}
			got := f.run(t, kit, w, func() {
				for n := 1; n > 0; {
					if n, err = w.RunUntilIdle(t.Context()); err != nil {
						t.Fatal(err)
					}
					kit.Drain() // the background work
				}
			})
			if got != want[f.name] {
				t.Errorf("by RunUntilIdle the result is %q, want %q", got, want[f.name])
			}
		})
	}
}

// W16. Each round trip of a feature takes two kits, so all features die only in a soak. Frames aren't compared: a handler that
// runs again writes them again.
func TestEveryFeatureOfAJobSurvivesCrashes(t *testing.T) {
	t.Parallel()
	for _, f := range features[:soak.Size(t, 1, len(features))] {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			fftest.Crashes(t, func(kit *fftest.Kit) any { return f.run(t, kit, kit.Worker, kit.Drain) })
		})
	}
}

// takesJob matches a function whose parameter is a job, with its name.
var takesJob = regexp.MustCompile(`(?m)^pkg worker, func (\w+)\[[^(]*\(context\.Context, Job\[`)

// W16. The table above has each method of a job and of what a job returns, and each function that takes a job.
func TestTheTableHasEveryFeatureOfAJob(t *testing.T) {
	t.Parallel()
	var exist []string
	for name, typ := range map[string]reflect.Type{
		"Job": reflect.TypeFor[worker.Job[string]](), "Stream": reflect.TypeFor[*worker.Stream](),
		"Reservation": reflect.TypeFor[*worker.Reservation](), "TurnTx": reflect.TypeFor[*worker.TurnTx](),
	} {
		for m := range typ.Methods() {
			exist = append(exist, name+"."+m.Name)
		}
	}
	api, err := os.ReadFile("../../api/worker.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range takesJob.FindAllSubmatch(api, -1) {
		exist = append(exist, string(match[1]))
	}
	var used []string
	for _, f := range features {
		used = append(used, f.uses...)
	}
	slices.Sort(used)
	slices.Sort(exist)
	if used = slices.Compact(used); !slices.Equal(used, exist) {
		t.Errorf("the features in the table are\n%v, but there are\n%v", used, exist)
	}
}
