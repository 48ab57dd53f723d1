// Package demo runs FlowFabric's main job on real input, for `ff demo`: the import graph of the Go standard library as one
// flow, processed by several worker processes. One process is killed halfway.
//
// Each package is an execution that hashes the package's source files and the results of the imports. So the root's
// result is a Merkle hash of the library. If the result equals the hash computed without the database, every execution
// ran on the right inputs, despite the crash.
package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
)

const (
	// leaseTTL is short, so other workers soon take over from the killed one.
	leaseTTL = 2 * time.Second
	// lookInterval is the interval between looks at the flow.
	lookInterval = 200 * time.Millisecond
	// stallTimeout is how long the demo waits without any execution ending.
	stallTimeout = time.Minute
)

// Options configures [Run].
type Options struct {
	// DatabaseURL is a database with the library's tables in Schema. Empty Schema: the first of the search_path.
	DatabaseURL, Schema string
	// Workers is the number of worker processes, at least 2, since one is killed.
	Workers int
	// Command returns the command for a worker process, which runs [RunWorker] on the standard streams.
	Command func(ctx context.Context) *exec.Cmd
	// Progress is called a few times a second with the state of the flow, Event with a sentence about anything else. Both must
	// be safe for concurrent use.
	Progress func(Progress)
	Event    func(sentence string)
}

// Progress is the state of a flow.
type Progress struct {
	Elapsed time.Duration
	Total   int
	Members map[state.PublicState]int
}

// Ended returns the number of ended members.
func (p Progress) Ended() int {
	n := 0
	for member, count := range p.Members {
		if member.Terminal() {
			n += count
		}
	}
	return n
}

// Summary is the result of a run. The text is the demo's last line.
type Summary struct {
	Flow              id.FlowID
	Executions, Edges int
	Retaken           int // executions taken over after their lease was lost
	Elapsed           time.Duration
	Digest            string
}

func (s Summary) String() string {
	return fmt.Sprintf("flow completed: %d executions, %d edges, %d retaken after a crash, %.1f s, digest %s, verified",
		s.Executions, s.Edges, s.Retaken, s.Elapsed.Seconds(), s.Digest)
}

// Run creates the graph's flow, processes it and verifies the result. An error means a failed step. All worker
// processes have ended when Run returns.
func Run(ctx context.Context, graph Graph, opts Options) (Summary, error) {
	if opts.Workers < 2 {
		return Summary{}, errors.New("the demo needs two worker processes, since it kills one")
	}
	pool, err := newPool(ctx, opts.DatabaseURL, opts.Schema)
	if err != nil {
		return Summary{}, err
	}
	defer pool.Close()
	eng, err := engine.New(pool, engine.Config{Log: slog.New(slog.DiscardHandler)}) // the display is the demo's output
	if err != nil {
		return Summary{}, err
	}
	r := &run{Options: opts, eng: eng, graph: graph, flow: id.NewFlowID()}
	return r.run(ctx)
}

// run is one run of the demo.
type run struct {
	Options
	eng   *engine.Engine
	graph Graph
	flow  id.FlowID
	began time.Time
}

func (r *run) run(ctx context.Context) (Summary, error) {
	// Use a separate lane, so another demo on the same database does not take the work.
	lane := id.LaneID("demo-" + r.flow.String())
	spec := r.graph.flow(r.flow, lane)
	r.began = time.Now()
	if _, err := r.eng.CreateFlow(ctx, spec); err != nil {
		return Summary{}, err
	}
	r.Event(fmt.Sprintf("Created flow %s: %d executions, %d edges, in %d ms.",
		r.flow, len(spec.Nodes), len(spec.Edges), time.Since(r.began).Milliseconds()))

	retaken, err := r.work(ctx, lane)
	if err != nil {
		return Summary{}, err
	}
	summary := Summary{
		Flow:       r.flow,
		Executions: len(spec.Nodes),
		Edges:      len(spec.Edges),
		Retaken:    retaken,
		Elapsed:    time.Since(r.began),
	}
	summary.Digest, err = r.verify(ctx)
	return summary, err
}

// work runs the fleet until the flow ends and returns the number of executions taken over.
func (r *run) work(ctx context.Context, lane id.LaneID) (retaken int, err error) {
	fleet, err := startFleet(ctx, r.Workers, r.Command,
		workerConfig{DatabaseURL: r.DatabaseURL, Schema: r.Schema, Lane: lane},
		(len(r.graph)+1)/2,
		func(pid int) {
			r.Event(fmt.Sprintf("Half of the executions have started: worker process %d, which holds work, is killed with SIGKILL. "+
				"Others take over when its leases have expired, after %v.", pid, leaseTTL))
		})
	if err != nil {
		return 0, err
	}
	defer fleet.stop()
	r.Event(fmt.Sprintf("%d worker processes are running.", r.Workers))

	look := time.NewTicker(lookInterval)
	defer look.Stop()
	ended, moved := 0, time.Now()
	for {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case err := <-fleet.failed:
			return 0, err
		case <-look.C:
		}
		all, err := r.look(ctx)
		if err != nil {
			return 0, err
		}
		progress := all.progress(time.Since(r.began))
		r.Progress(progress)
		switch n := progress.Ended(); {
		case n == len(r.graph):
			return all.retaken(), all.check()
		case n > ended:
			ended, moved = n, time.Now()
		case time.Since(moved) > stallTimeout:
			return 0, fmt.Errorf("no execution of flow %s has ended for %s; %d of %d have", r.flow, stallTimeout, n, len(r.graph))
		}
	}
}

// members are a flow's executions at one moment.
type members []engine.ExecutionSummary

func (r *run) look(ctx context.Context) (members, error) {
	var all members
	for member, err := range r.eng.FlowMembers(ctx, r.flow) {
		if err := cmp.Or(err, member.Err); err != nil {
			return nil, err
		}
		all = append(all, member)
	}
	return all, nil
}

func (m members) progress(elapsed time.Duration) Progress {
	p := Progress{Elapsed: elapsed, Total: len(m), Members: make(map[state.PublicState]int)}
	for _, member := range m {
		p.Members[member.State]++
	}
	return p
}

func (m members) retaken() int {
	n := 0
	for _, member := range m {
		if member.LeasesLost > 0 {
			n++
		}
	}
	return n
}

func (m members) check() error {
	for _, member := range m {
		if member.Outcome != state.OutcomeSuccess {
			return fmt.Errorf("execution %s ended as %s, look at it with `ff execution show`", member.ID, member.State)
		}
	}
	return nil
}

// verify compares the root's result with the digest computed without the database, and returns the result.
func (r *run) verify(ctx context.Context) (string, error) {
	root := r.graph[len(r.graph)-1]
	result, err := hashing.Result(ctx, r.eng, r.eng.NodeID(r.flow, root.Path))
	if err != nil {
		return "", err
	}
	direct, err := r.graph.Digest()
	if err != nil {
		return "", err
	}
	if result.Digest != direct {
		return "", fmt.Errorf("the flow's digest %s is not %s, which was computed directly", result.Digest, direct)
	}
	return direct, nil
}
