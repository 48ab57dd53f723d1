//go:build unix

// Package chaos kills and freezes worker processes at random and then reads from the rows whether every execution has
// ended exactly once.
package chaos

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/progress"
	"github.com/flowfabric/flowfabric-go/tests/internal/soak"
)

const lane id.LaneID = "chaos"

const (
	processes = 8
	layers    = 10
)

// load is how many executions there are: in layers of a flow, and alone. In a soak they are 10,000, and more processes
// are killed and frozen among them.
type load struct{ width, solos int }

func newLoad(t *testing.T) load {
	t.Helper()
	return load{width: soak.Size(t, 50, 500), solos: soak.Size(t, 500, 5_000)}
}

func (l load) total() int { return layers*l.width + l.solos }

// dangers say how many starts of a handler are a process's last, or its last for longer than its leases live.
type dangers struct {
	killOneIn, maxKills     int
	freezeOneIn, maxFreezes int

	within time.Duration // of that start a process dies: while the handler runs, or its end is written
}

func manyDangers(t *testing.T) dangers {
	t.Helper()
	return dangers{
		killOneIn: soak.Size(t, 80, 500), maxKills: soak.Size(t, 6, 16),
		freezeOneIn: soak.Size(t, 150, 1_000), maxFreezes: soak.Size(t, 3, 6),
	}
}

func TestWorkersSurviveRandomKills(t *testing.T) {
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
	size := newLoad(t)
	createSolos(t, eng, size.solos)
	flow := createFlow(t, eng, size.width)

	f := &fleet{t: t, pool: pool, url: url, dangers: manyDangers(t)}
	for range processes {
		f.start()
	}
	operating, stopOperating := context.WithCancel(t.Context())
	operated := make(chan operated, 1)
	go func() { operated <- f.operate(operating, eng) }()
	f.awaitEnd()
	stopOperating()
	done := <-operated
	f.stop()
	t.Logf("%d handlers started, %d processes killed, %d frozen, %d outcomes refused; %+v", f.started, f.kills, f.freezes, f.refused, done)
	if f.kills < f.maxKills/2 || f.freezes == 0 || f.refused == 0 || done.paused == 0 {
		t.Error("that was too little chaos to prove anything")
	}

	// The checks join whole tables, which have no statistics yet.
	if _, err := pool.Exec(t.Context(), "ANALYZE"); err != nil {
		t.Fatal(err)
	}
	checkEnds(t, pool, size.total())
	checkFences(t, pool)
	checkOrder(t, pool, flow)
}

// createSolos creates executions of all kinds that stand alone.
func createSolos(t *testing.T, eng *engine.Engine, solos int) {
	t.Helper()
	specs := make([]engine.ExecutionSpec, solos)
	for i := range specs {
		kind := "plain"
		switch {
		case i%4 == 0:
			kind = "reckless"
		case i%10 == 1:
			kind = "flaky"
		case i%50 == 7:
			kind = "doomed"
		case i%50 == 13:
			kind = "later"
		case i%50 == 23:
			kind = "endless"
		}
		specs[i] = engine.ExecutionSpec{Lane: lane, Kind: kind}
	}
	if _, err := eng.CreateExecutions(t.Context(), specs); err != nil {
		t.Fatal(err)
	}
}

// createFlow creates a flow in layers: each node waits for three of the layer before.
func createFlow(t *testing.T, eng *engine.Engine, width int) id.FlowID {
	t.Helper()
	spec := engine.FlowSpec{ID: id.NewFlowID()}
	key := func(layer, i int) string { return fmt.Sprintf("%d/%d", layer, i%width) }
	for layer := range layers {
		for i := range width {
			kind := "plain"
			if i%4 == 0 {
				kind = "reckless"
			}
			spec.Nodes = append(spec.Nodes, engine.Node{
				Key: key(layer, i), Spec: engine.ExecutionSpec{Lane: lane, Kind: kind},
			})
			for _, from := range []int{i, i + 7, i + 77} {
				if layer > 0 {
					spec.Edges = append(spec.Edges, engine.Edge{From: key(layer-1, from), To: key(layer, i)})
				}
			}
		}
	}
	if _, err := eng.CreateFlow(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	return spec.ID
}

// fleet is the worker processes and their histories.
type fleet struct {
	dangers
	t       *testing.T
	pool    *pgxpool.Pool
	url     string
	running sync.WaitGroup // readers of their output, and thaws

	mu        sync.Mutex
	processes []*process
	begun     int
	started   int
	refused   int
	kills     int
	freezes   int
	ended     bool
}

// process is one worker process.
type process struct {
	instance id.WorkerInstanceID
	cmd      *exec.Cmd
	input    io.WriteCloser
	stderr   bytes.Buffer
	killed   bool
	frozen   bool

	wasFrozen bool
}

// start starts a process and reads its output until it ends.
func (f *fleet) start() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return
	}
	f.begun++
	p := &process{instance: id.WorkerInstanceID(fmt.Sprintf("chaos-%d", f.begun))}
	program, err := os.Executable()
	if err != nil {
		f.t.Fatal(err)
	}
	p.cmd = exec.CommandContext(f.t.Context(), program, "-chaos.worker")
	p.cmd.Stderr = &p.stderr
	if p.input, err = p.cmd.StdinPipe(); err != nil {
		f.t.Fatal(err)
	}
	output, err := p.cmd.StdoutPipe()
	if err != nil {
		f.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	if err := json.NewEncoder(p.input).Encode(orders{DatabaseURL: f.url, Lane: lane, Instance: p.instance}); err != nil {
		f.t.Error(err)
	}
	f.processes = append(f.processes, p)
	f.running.Go(func() {
		for lines := bufio.NewScanner(output); lines.Scan(); {
			f.output(p, lines.Text())
		}
		if err := p.cmd.Wait(); err != nil && !p.killed {
			f.t.Errorf("%s ended by itself: %v: %s", p.instance, err, p.stderr.String())
		}
		if p.killed {
			f.start() // in its place
		}
	})
}

// heard decides whether to kill or freeze a process after a line of its output.
func (f *fleet) output(p *process, line string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if line == refusedLine {
		f.refused++
		return
	}
	f.started++
	switch {
	case f.ended || p.killed || p.frozen:
	case f.due(f.kills, f.maxKills, f.killOneIn):
		f.kills++
		p.killed = true
		f.running.Go(func() {
			pause(f.t.Context(), rand.N(f.within+1))
			f.signal(p, syscall.SIGKILL)
		})
	case f.due(f.freezes, f.maxFreezes, f.freezeOneIn):
		f.freezes++
		p.frozen, p.wasFrozen = true, true
		f.signal(p, syscall.SIGSTOP)
		f.running.Go(func() { f.thaw(p) })
	}
}

// due reports whether the next of most dangers comes now: by chance at one start in oneIn, and no later than its share of
// the starts, so that no run is without any.
func (f *fleet) due(met, most, oneIn int) bool {
	return met < most && (rand.IntN(oneIn) == 0 || f.started >= (met+1)*oneIn)
}

// thaw wakes a frozen process when its leases have run out. It knows nothing of that.
func (f *fleet) thaw(p *process) {
	f.awaitNone("leases of a frozen process that last", `
		SELECT count(*) FROM ff_attempt
		WHERE worker_instance_id = $1 AND outcome IS NULL AND lease_expires_at_ms > ffx_now_ms(NULL)`, p.instance)
	f.mu.Lock()
	defer f.mu.Unlock()
	p.frozen = false
	f.signal(p, syscall.SIGCONT)
}

func (f *fleet) signal(p *process, s syscall.Signal) {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) { // all have ended, and so has it
		f.t.Errorf("%s to %s: %v", s, p.instance, err)
	}
}

func (f *fleet) awaitEnd() {
	f.awaitNone("executions that have not ended",
		`SELECT count(*) FROM ff_exec_core WHERE lifecycle_phase NOT IN ('terminal', 'cancelled') OR public_state = 'failed'`)
}

// awaitNone waits until a query counts none. It runs beside the test too, where failing means to give up waiting.
func (f *fleet) awaitNone(what, sql string, args ...any) {
	err := progress.Poll("no "+what, func() (n int, done bool) {
		n = f.count(sql, args...)
		return n, n == 0
	})
	if err != nil {
		f.t.Error(err)
	}
}

func (f *fleet) count(sql string, args ...any) int {
	rows, err := f.pool.Query(f.t.Context(), sql, args...)
	if err != nil {
		f.t.Error(err)
		return 0
	}
	n, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
	if err != nil {
		f.t.Error(err)
	}
	return n
}

// stop lets the processes that are left finish.
func (f *fleet) stop() {
	f.mu.Lock()
	f.ended = true
	for _, p := range f.processes {
		_ = p.input.Close()
	}
	f.mu.Unlock()
	f.running.Wait()
}

// wantNone fails the test for each row of a query that finds forbidden states.
func wantNone(t *testing.T, pool *pgxpool.Pool, what, sql string, args ...any) {
	t.Helper()
	rows, err := pool.Query(t.Context(), "SELECT row_to_json(r)::text FROM ("+sql+") AS r", args...)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if len(found) > 0 {
		t.Errorf("%d times: %s\n%s", len(found), what, strings.Join(found[:min(len(found), 5)], "\n"))
	}
}

// checkEnds: every execution has ended as its kind does, each end has one event, and its attempts are consistent.
func checkEnds(t *testing.T, pool *pgxpool.Pool, total int) {
	t.Helper()
	wantNone(t, pool, "an execution has not ended as its kind does", `
		SELECT execution_id, lifecycle_phase, public_state, ownership_state, kind FROM (
			SELECT execution_id, lifecycle_phase, public_state, ownership_state, raw_fields ->> 'execution_kind' AS kind,
				coalesce((raw_fields ->> 'replay_count')::integer, 0) AS replays
			FROM ff_exec_core
		) AS e
		WHERE lifecycle_phase NOT IN ('terminal', 'cancelled') OR ownership_state <> 'unowned'
			OR public_state <> CASE kind WHEN 'endless' THEN 'cancelled' ELSE 'completed' END
			OR replays <> CASE kind WHEN 'doomed' THEN 1 ELSE 0 END`)
	wantNone(t, pool, "an execution has other completion events than its ends", `
		SELECT e.execution_id, array_agg(c.outcome)
		FROM ff_exec_core AS e LEFT JOIN ff_completion_event AS c USING (partition_key, execution_id)
		GROUP BY e.partition_key, e.execution_id
		HAVING array_agg(c.outcome ORDER BY c.event_id) IS DISTINCT FROM CASE raw_fields ->> 'execution_kind'
			WHEN 'doomed' THEN ARRAY['failed', 'success'] WHEN 'endless' THEN ARRAY['cancelled'] ELSE ARRAY['success'] END`)
	wantNone(t, pool, "attempts do not add up", `
		SELECT e.execution_id, e.raw_fields ->> 'execution_kind' AS kind, ffx_attempt_count, ffx_retry_count,
			array_agg(a.outcome ORDER BY a.attempt_index)
		FROM ff_exec_core AS e JOIN ff_attempt AS a USING (partition_key, execution_id)
		GROUP BY e.partition_key, e.execution_id
		HAVING e.raw_fields ->> 'execution_kind' <> 'endless' AND array_agg(a.outcome ORDER BY a.attempt_index) <>
				CASE e.raw_fields ->> 'execution_kind' WHEN 'flaky' THEN ARRAY['retry', 'success'] ELSE ARRAY['success'] END
			OR count(*) <> e.ffx_attempt_count OR count(*) - 1 <> coalesce(e.ffx_retry_count, 0)
			OR max(a.attempt_index) <> e.attempt_index OR bool_or(a.lease_expires_at_ms IS NOT NULL)`)
	wantNone(t, pool, "executions are missing", `
		SELECT count(*) FROM ff_exec_core HAVING count(*) <> $1`, total)
}

// checkFences: every result was left by the holder of the highest epoch, which is raised by each claim and each loss.
func checkFences(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	wantNone(t, pool, "a result was left under an epoch that was not the last", `
		SELECT e.execution_id, convert_from(e.result, 'UTF8') AS result, e.ffx_lease_epoch, a.attempt_index, a.lease_epoch,
			a.worker_instance_id
		FROM ff_exec_core AS e
		JOIN ff_attempt AS a ON (a.partition_key, a.execution_id, a.attempt_index) = (e.partition_key, e.execution_id, e.attempt_index)
		WHERE e.public_state = 'completed' AND (
			(convert_from(e.result, 'UTF8')::jsonb ->> 'epoch')::bigint IS DISTINCT FROM a.lease_epoch
			OR a.lease_epoch IS DISTINCT FROM e.ffx_lease_epoch
			OR (convert_from(e.result, 'UTF8')::jsonb ->> 'attempt')::integer IS DISTINCT FROM a.attempt_index
			OR convert_from(e.result, 'UTF8')::jsonb ->> 'instance' IS DISTINCT FROM a.worker_instance_id)`)
	// A replay raises the epoch, too, and so does a cancellation of an execution with an attempt.
	wantNone(t, pool, "an epoch was given twice or skipped", `
		SELECT e.execution_id, e.ffx_lease_epoch, array_agg(l.event_type ORDER BY l.event_id) AS events
		FROM ff_exec_core AS e JOIN ff_lease_event AS l ON l.partition_key = e.partition_key AND l.execution_id = e.execution_id::text
		GROUP BY e.partition_key, e.execution_id
		HAVING e.ffx_lease_epoch <> count(*) FILTER (WHERE l.event_type IN ('acquired', 'expired'))
			+ coalesce((e.raw_fields ->> 'replay_count')::integer, 0) + CASE WHEN e.lifecycle_phase = 'cancelled' THEN 1 ELSE 0 END`)
}

// checkOrder: no member of the flow was claimed before all its upstreams had ended. The two instants are those at
// which statements began, and a statement takes its snapshot once it is planned: it may see commits after its
// instant. A claim planned for the first time on a connection, as after a kill, was 3 ms before the rows it saw.
func checkOrder(t *testing.T, pool *pgxpool.Pool, flow id.FlowID) {
	t.Helper()
	wantNone(t, pool, "an execution started before its upstream had ended", `
		SELECT edge.upstream_eid, u.terminal_at_ms, edge.downstream_eid, d.started_at_ms
		FROM ff_edge AS edge
		JOIN ff_exec_core AS u ON u.partition_key = edge.partition_key AND u.execution_id = edge.upstream_eid
		JOIN ff_exec_core AS d ON d.partition_key = edge.partition_key AND d.execution_id = edge.downstream_eid
		WHERE edge.flow_id = $1 AND d.started_at_ms < u.terminal_at_ms - 100`, flow)
}
