package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/operator"
)

// workersView is the JSON of `ff worker list`.
type workersView struct {
	Workers []workerView  `json:"workers"` // by namespace and instance, in byte order
	Drained []drainedView `json:"drained"` // in byte order, registered or not
}

type drainedView struct {
	Instance id.WorkerInstanceID `json:"instance"`
	Since    string              `json:"since"`
}

// workerView is the JSON of a worker.
type workerView struct {
	Instance     id.WorkerInstanceID `json:"instance"`
	Pool         id.WorkerID         `json:"pool"`
	Namespace    id.Namespace        `json:"namespace"`
	State        string              `json:"state"` // running, draining, drained, stopping or gone
	Running      int                 `json:"running"`
	Concurrency  int                 `json:"concurrency"`
	FullKinds    []string            `json:"full_kinds,omitempty"` // all handlers of the kind are taken
	Stuck        int                 `json:"stuck,omitempty"`      // handlers that ignore the end of their context
	Lanes        []id.LaneID         `json:"lanes"`
	Kinds        []string            `json:"kinds"`
	Capabilities []string            `json:"capabilities"`
	RegisteredAt string              `json:"registered_at"`
	HeartbeatAt  string              `json:"heartbeat_at"`
	TTLSeconds   float64             `json:"ttl_seconds"`
	DrainedSince string              `json:"drained_since,omitempty"`

	heartbeat time.Time
}

func newWorkerView(w *engine.RegisteredWorker) workerView {
	return workerView{
		Instance: w.Instance, Pool: w.Worker, Namespace: w.Namespace, State: workerStateOf(w), Running: w.Running, Concurrency: w.Concurrency,
		FullKinds: w.FullKinds, Stuck: w.Stuck,
		Lanes: w.Lanes, Kinds: w.Kinds, Capabilities: w.Capabilities, RegisteredAt: timestamp(w.RegisteredAt),
		HeartbeatAt: timestamp(w.HeartbeatAt), TTLSeconds: w.TTL.Seconds(), DrainedSince: timestamp(w.DrainedSince), heartbeat: w.HeartbeatAt,
	}
}

// workerStateOf returns the state of a worker in a word.
func workerStateOf(w *engine.RegisteredWorker) string {
	switch {
	case !w.Live:
		return "gone"
	case w.Stopping:
		return "stopping"
	case w.DrainedSince.IsZero():
		return "running"
	case w.Running > 0:
		return "draining"
	}
	return "drained"
}

func (v *workerView) load() string {
	load := fmt.Sprint(v.Running)
	if v.Concurrency > 0 {
		load += fmt.Sprintf("/%d", v.Concurrency)
	}
	if v.Stuck > 0 {
		load += fmt.Sprintf(", %d stuck", v.Stuck)
	}
	return load
}

func (a *app) workerListCommand() *cobra.Command {
	var asJSON, wide, gone bool
	var pool, lane string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the running workers with their load, and drained instances",
		Long: `list prints the workers that have reported within the last half minute: their pool,
lanes, how many executions they run of how many at most, when they reported, and
their state. A draining worker finishes its executions; a drained one runs nothing
and claims nothing. Drained instances that aren't registered are printed below.`,
		Example: `  ff worker list
  ff worker list --lane images
  ff worker list --json | jq -r '.workers[] | .instance + " " + .state'`,
		Args: noArgs,
		RunE: a.does(func(ctx context.Context, _ []string) error {
			return a.withEngine(ctx, func(eng *engine.Engine) error {
				now, err := eng.Now(ctx)
				if err != nil {
					return err
				}
				filter := engine.WorkerFilter{Worker: id.WorkerID(pool), Lane: id.LaneID(lane), Gone: gone}
				view, err := workersOf(ctx, eng, filter)
				if err != nil {
					return asUsage(err)
				}
				if asJSON {
					return a.writeJSON(view)
				}
				return view.print(a.stdout, now, wide)
			})
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&wide, "wide", false, "print more than 80 columns: whole names and lanes")
	cmd.Flags().BoolVar(&gone, "gone", false, "list workers too that no longer report, until they are deleted")
	cmd.Flags().StringVar(&pool, "pool", "", "only those of a `POOL`, the name in worker.Config.Worker")
	cmd.Flags().StringVar(&lane, "lane", "", "only those that claim from a `LANE`")
	return cmd
}

// workersOf reads the workers matching a filter, and all drained instances.
func workersOf(ctx context.Context, eng *engine.Engine, filter engine.WorkerFilter) (*workersView, error) {
	view := &workersView{Workers: []workerView{}, Drained: []drainedView{}}
	for w, err := range eng.Workers(ctx, filter) {
		if err != nil {
			return nil, err
		}
		view.Workers = append(view.Workers, newWorkerView(&w))
	}
	for w, err := range operator.DrainedWorkers(ctx, eng) {
		if err != nil {
			return nil, err
		}
		view.Drained = append(view.Drained, drainedView{w.Instance, timestamp(w.Since)})
	}
	return view, nil
}

func (v *workersView) print(to io.Writer, now time.Time, wide bool) error {
	fit := shortened
	if wide {
		fit = func(text string, _ int) string { return text }
	}
	var text strings.Builder
	listed := make(map[id.WorkerInstanceID]bool)
	t := newTable(table.Row{"INSTANCE", "POOL", "LANES", "RUNS", "SEEN", "STATE"})
	for i := range v.Workers {
		w := &v.Workers[i]
		listed[w.Instance] = true
		t.AppendRow(table.Row{
			fit(printable(string(w.Instance)), 24), fit(printable(string(w.Pool)), 12), fit(printable(joined(w.Lanes)), 14), w.load(),
			ago(now.Sub(w.heartbeat)), w.State,
		})
	}
	if len(v.Workers) > 0 {
		text.WriteString(t.Render() + "\n")
	} else {
		text.WriteString("There are no workers.\n")
	}
	for _, d := range v.Drained {
		if !listed[d.Instance] {
			// In whole: `ff worker resume` needs the name.
			text.WriteString("Drained since " + d.Since + ", not registered: " + printable(string(d.Instance)) + "\n")
		}
	}
	_, err := io.WriteString(to, text.String())
	return err
}

func joined[T ~string](texts []T) string {
	plain := make([]string, len(texts))
	for i, text := range texts {
		plain[i] = string(text)
	}
	return strings.Join(plain, ", ")
}

func (a *app) workerShowCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show INSTANCE",
		Short: "Print a worker with its lanes, kinds, capabilities and load",
		Example: `  ff worker show worker-7f9c
  ff execution list --instance worker-7f9c`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("%s takes one worker instance, not %d", cmd.CommandPath(), len(args))
			}
			return nil
		},
		RunE: a.does(func(ctx context.Context, args []string) error {
			return a.withEngine(ctx, func(eng *engine.Engine) error {
				filter := engine.WorkerFilter{Instance: id.WorkerInstanceID(args[0]), Gone: true}
				view, err := workersOf(ctx, eng, filter)
				if err != nil {
					return asUsage(err)
				}
				if len(view.Workers) == 0 {
					return &stepError{
						fmt.Errorf("worker %s: %w", args[0], fferr.ErrNotFound), "correct the name, see `ff worker list --wide`", exitNotFound,
					}
				}
				if asJSON {
					return a.writeJSON(map[string][]workerView{"workers": view.Workers})
				}
				for i := range view.Workers {
					if _, err := io.WriteString(a.stdout, view.Workers[i].facts()); err != nil {
						return err
					}
				}
				return nil
			})
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (v *workerView) facts() string {
	none := func(text string) string {
		if text == "" {
			return "none"
		}
		return printable(text)
	}
	facts := []fact{
		{"instance", printable(string(v.Instance))},
		{"pool", printable(string(v.Pool))},
		{"namespace", printable(string(v.Namespace))},
		{"state", v.State},
		{"runs", v.load()},
		{"lanes", none(joined(v.Lanes))},
		{"kinds", none(joined(v.Kinds))},
		{"capabilities", none(joined(v.Capabilities))},
		{"registered", v.RegisteredAt},
		{"last seen", v.HeartbeatAt},
	}
	if len(v.FullKinds) > 0 {
		facts = append(facts, fact{"kinds taken", printable(joined(v.FullKinds))}) // all handlers
	}
	if v.DrainedSince != "" {
		facts = append(facts, fact{"drained since", v.DrainedSince})
	}
	return renderFacts(facts)
}
