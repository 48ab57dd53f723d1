package sequences

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

var asActor = flag.Bool("sequences.actor", false, "be a process that a test kills, with orders on its standard input")

// TestMain makes the test binary a process that acts on a sequence when a test starts it as one.
func TestMain(m *testing.M) {
	flag.Parse()
	if !*asActor {
		fixture.Main(m)
		return
	}
	if err := beActor(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// orders are the parameters of a process, as JSON.
type orders struct {
	DatabaseURL string
	Lane        id.LaneID
	NowMs       int64
}

// beActor adds three members to the sequence, completes the first, fails the second, replays it, cancels it while
// another transaction holds the sequence, and gives the turn that is left.
func beActor(input io.Reader) error {
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
	member := engine.ExecutionSpec{Lane: given.Lane, Kind: "test"}
	of(engine.Sequence{Key: account})(&member)
	if _, err := eng.CreateExecutions(ctx, []engine.ExecutionSpec{member, member, member}); err != nil {
		return err
	}
	claim := func() (engine.Lease, error) {
		claimed, err := eng.Claim(ctx, engine.ClaimSpec{Lane: given.Lane, Worker: "worker", Instance: "instance", LeaseTTL: time.Minute}, 10)
		if err == nil && len(claimed) != 1 {
			err = fmt.Errorf("claimed %d, want 1", len(claimed))
		}
		if err != nil {
			return engine.Lease{}, err
		}
		return claimed[0].Lease, nil
	}
	first, err := claim()
	if err != nil {
		return err
	}
	if err := eng.CompleteExecution(ctx, first, nil); err != nil {
		return err
	}
	second, err := claim()
	if err != nil {
		return err
	}
	if _, err := eng.FailExecution(ctx, second, engine.Failure{Message: "no"}); err != nil {
		return err
	}
	if _, err := operator.Replay(ctx, eng, second.Execution); err != nil {
		return err
	}
	if second, err = claim(); err != nil {
		return err
	}
	holder, err := pool.Begin(ctx)
	if err != nil {
		return err
	}
	if _, err := holder.Exec(ctx, "SELECT FROM ffx_sequence FOR UPDATE"); err != nil {
		return err
	}
	if err := eng.CancelExecution(ctx, engine.CancelSpec{ID: second.Execution}); err != nil {
		return err
	}
	if err := holder.Rollback(ctx); err != nil {
		return err
	}
	if _, err := upkeep.Of(eng).AdvanceSequences(ctx, 10); err != nil {
		return err
	}
	_, err = claim()
	return err
}

// A process is killed between any two of its round trips. Another one goes on: whatever was left, each member ends, in the
// order of creation, and never are two attempts open at once.
func TestProcessesKilledBetweenRoundTrips(t *testing.T) {
	const fewestMoments = 15
	f := fixture.NewCloned(t)
	moments := 0
	for cut := true; cut; {
		moments++
		cut = fixture.RunCut(t, f.Url, "-sequences.actor", moments, func(url string) any {
			return orders{url, f.Lane, f.Time().UnixMilli()}
		})
		fixture.Await(t, "the server to end the sessions of the process", func() bool {
			return len(fixture.Texts(t, f.Pool, "SELECT pid::text FROM pg_stat_activity WHERE application_name = $1", string(f.Lane))) == 0
		})
		finish(t, f)
		f.Advance(time.Hour)
	}
	if moments < fewestMoments {
		t.Errorf("cut at %d moments only", moments)
	}
	wantOneAtATime(t, f)
}

// finish runs what is left of all sequences, by one process.
func finish(t *testing.T, f *fixture.Fixture) {
	t.Helper()
	name := engine.SequenceName{Key: account}
	for {
		if _, err := upkeep.Of(f.Engine).AdvanceSequences(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
		s, err := f.DescribeSequence(t.Context(), name)
		if errors.Is(err, fferr.ErrNotFound) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if !s.StoppedAt.IsZero() {
			if _, err := operator.Replay(t.Context(), f.Engine, s.First); err != nil {
				t.Fatal(err)
			}
		}
		f.Advance(2 * time.Minute)
		if _, err := upkeep.Of(f.Engine).ExpireLeases(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
		claimed := f.ClaimN(t, 10)
		if len(claimed) != 1 || claimed[0].ID != s.First {
			t.Fatalf("claimed %v, want the first of %+v", fixture.ExecutionsOf(claimed), s)
		}
		f.Advance(time.Second)
		if err := f.CompleteExecution(t.Context(), claimed[0].Lease, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// wantOneAtATime fails if attempts of two members of a sequence overlap, or members began in another order than they were
// created. It reads the stored times.
func wantOneAtATime(t *testing.T, f *fixture.Fixture) {
	t.Helper()
	if overlaps := fixture.Texts(t, f.Pool, `
		SELECT a.execution_id || ' ' || b.execution_id
		FROM ff_exec_core AS x
		JOIN ff_attempt AS a USING (partition_key, execution_id)
		JOIN ff_exec_core AS y ON y.ffx_sequence = x.ffx_sequence AND y.execution_id <> x.execution_id
		JOIN ff_attempt AS b ON b.partition_key = y.partition_key AND b.execution_id = y.execution_id
		WHERE a.started_at_ms < b.started_at_ms AND coalesce(a.terminal_at_ms, 9e15) > b.started_at_ms`); len(overlaps) > 0 {
		t.Errorf("attempts overlap: %v", overlaps)
	}
	if left := fixture.Texts(t, f.Pool, `
		SELECT execution_id || ' ' || public_state FROM ff_exec_core
		WHERE ffx_sequence IS NOT NULL AND lifecycle_phase NOT IN ('terminal', 'cancelled')`); len(left) > 0 {
		t.Errorf("stuck: %v", left)
	}
	if swapped := fixture.Texts(t, f.Pool, `
		SELECT x.execution_id || ' ' || y.execution_id
		FROM ff_exec_core AS x
		JOIN ff_exec_core AS y ON y.ffx_sequence = x.ffx_sequence AND y.execution_id > x.execution_id
		WHERE y.started_at_ms < x.started_at_ms`); len(swapped) > 0 {
		t.Errorf("in another order than created: %v", swapped)
	}
}
