package claims

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

// newerClone is a database that a newer version has migrated and this one may work on.
func newerClone(t *testing.T) *fixture.Fixture {
	t.Helper()
	f := fixture.Clone(t)
	f.Exec(t, fixture.LaterMigration)
	return f
}

// N2: an engine runs on beside the next version, on the database of that one.
func TestOperationsOnANewerDatabase(t *testing.T) {
	t.Parallel()
	// Jobs act on all rows they find, so they have a database that no other test uses.
	jobs, others := newerClone(t), newerClone(t)
	for _, o := range fixture.Operations() {
		t.Run(o.Name, func(t *testing.T) {
			f := o.Fixture(t, newerClone, jobs, others)
			l := o.Arrange(t, f)
			before := f.Dump(t, l.Execution)
			if err := o.Do(t.Context(), f, f.Engine, l); err != nil {
				t.Fatal(err)
			}
			o.WantDone(t, f, l, before)
		})
	}
}

func TestWorkerOnANewerDatabase(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	c := fixture.CrewOn(t, newerClone(t), engine.Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err := c.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := log.String(); strings.Count(got, "level=WARN") != 1 || !strings.Contains(got, fixture.LaterVersion) {
		t.Errorf("logged %q, want a warning that names %s", got, fixture.LaterVersion)
	}

	f := fixture.FlowsOn(c.Fixture)
	spec := fixture.Chart(nil, "a>c", "b>c", "bad>never", "c>d")
	for i := range spec.Nodes {
		spec.Nodes[i].Spec.Kind = "work"
		if spec.Nodes[i].Key == "bad" {
			spec.Nodes[i].Spec.Kind = "fail"
		}
	}
	flow := f.NewFlowOf(t, spec)
	plain := make([]engine.ExecutionSpec, 200)
	for i := range plain {
		plain[i] = engine.ExecutionSpec{Lane: f.Lane, Kind: "work"}
	}
	if _, err := f.CreateExecutions(t.Context(), plain); err != nil {
		t.Fatal(err)
	}
	c.Work(t, worker.Config{}, func(w *worker.Worker) {
		fixture.HandleKind(w, "work", func(ctx context.Context, job worker.Job[struct{}]) (struct{}, error) {
			_, err := job.Upstreams(ctx)
			return struct{}{}, err
		})
		fixture.HandleKind(w, "fail", func(context.Context, worker.Job[struct{}]) (struct{}, error) {
			return struct{}{}, worker.Permanent(errors.New("no"))
		})
	})
	c.Next(t, len(plain)+5)
	f.WantMembers(t, flow, map[string]string{fixture.StateCompleted: "a b c d", fixture.StateFailed: "bad", fixture.StateSkipped: "never"})
}

// Incompatible changes stop older versions, with an explanation.
func TestOperationsStopOnAnIncompatibleDatabase(t *testing.T) {
	t.Parallel()
	c := fixture.CrewOn(t, newerClone(t), engine.Config{})
	c.Exec(t, fixture.ForLaterOnly)
	w := fixture.NewWorker(t, c.Eng, worker.Config{})
	fixture.HandleKind(w, "work", func(context.Context, worker.Job[struct{}]) (struct{}, error) { return struct{}{}, nil })
	for what, err := range map[string]error{"Prepare": c.Prepare(t.Context()), "Run": w.Run(t.Context())} {
		if !errors.Is(err, fferr.ErrTooNew) || !strings.Contains(err.Error(), "upgrade the library") {
			t.Errorf("%s: got %v, want ErrTooNew and what to do", what, err)
		}
	}
}

// A22: on tables that Citus distributes a statement can kill the server. Citus itself is not to be had here: a table
// of the name and shape of its catalog stands where the search_path finds it too.
func TestPrepareRefusesDistributedTables(t *testing.T) {
	t.Parallel()
	catalog, err := os.ReadFile("../../schema/citus.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, distributed string
		want              error
	}{
		{"nothing is distributed", "", nil},
		{"tables of others are distributed", "CREATE TABLE invoice (); INSERT INTO pg_dist_partition VALUES ('invoice', 'h')", nil},
		{"tables of another engine are distributed", `
			CREATE SCHEMA ff_other;
			CREATE TABLE ff_other.ff_exec_core ();
			CREATE TABLE ff_other.orders ();
			INSERT INTO pg_dist_partition VALUES ('ff_other.ff_exec_core', 'h'), ('ff_other.orders', 'h')`, nil},
		{"a table is distributed", "INSERT INTO pg_dist_partition VALUES ('ff_attempt', 'h')", fferr.ErrDistributed},
		{"a table is a reference table", "INSERT INTO pg_dist_partition (logicalrelid, partmethod, repmodel) VALUES ('ffx_ready', 'n', 't')", fferr.ErrDistributed},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fixture.Clone(t)
			f.Exec(t, string(catalog))
			f.Exec(t, c.distributed)
			if err := f.Prepare(t.Context()); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}
