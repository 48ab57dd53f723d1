package statements

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// A payload stored out of line is read once by each claim, also if it resumes an attempt, and never written again.
// Completions, renewals and releases copy the reference.
func TestPayloadsAreReadByClaimsOnly(t *testing.T) {
	f := fixture.NewCloned(t)
	const total = 40
	payload := bytes.Repeat([]byte(`{"a":1}`), 16<<10/7)
	if _, err := f.Pool.Exec(t.Context(), "ALTER TABLE ff_exec_core ALTER payload SET STORAGE EXTERNAL"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.CreateExecutions(t.Context(), slices.Repeat([]engine.ExecutionSpec{{Kind: "test", Lane: f.Lane, Payload: payload}}, total)); err != nil {
		t.Fatal(err)
	}
	type use struct{ Reads, Writes int }
	count := func(what string, want use, work func(e *engine.Engine)) {
		t.Helper()
		tx := f.BeginTx(t)
		read := func() use {
			return fixture.One[use](t, tx, `SELECT coalesce(s.idx_scan, 0)::integer AS reads, (s.n_tup_ins + s.n_tup_upd + s.n_tup_del)::integer AS writes
				FROM pg_class AS c JOIN pg_stat_xact_all_tables AS s ON s.relid = c.reltoastrelid
				WHERE c.oid = 'ff_exec_core'::regclass`)
		}
		before := read()
		work(f.WithTx(tx))
		after := read()
		fixture.Commit(t, tx)
		if got := (use{after.Reads - before.Reads, after.Writes - before.Writes}); got != want {
			t.Errorf("%s of %d executions: %+v of payloads, want %+v", what, total, got, want)
		}
	}
	count("claim and release", use{Reads: total}, func(e *engine.Engine) {
		claimed, err := e.Claim(t.Context(), f.Worker(), total)
		if err != nil {
			t.Fatal(err)
		}
		leases := make([]engine.Lease, len(claimed))
		for i := range claimed {
			leases[i] = claimed[i].Lease
		}
		outcomes, err := e.ReleaseLeases(t.Context(), leases)
		if err := errors.Join(append(outcomes, err)...); err != nil {
			t.Fatal(err)
		}
	})
	var renewals []engine.Renewal
	var completions []engine.Completion
	count("claim of interrupted attempts", use{Reads: total}, func(e *engine.Engine) {
		claimed, err := e.Claim(t.Context(), f.Worker(), total)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range claimed {
			if !c.Resumed {
				t.Errorf("%s is not resumed", c.ID)
			}
			if !bytes.Equal(c.Payload, payload) {
				t.Errorf("the payload of %s has %d bytes, want %d", c.ID, len(c.Payload), len(payload))
			}
			renewals = append(renewals, engine.Renewal{Lease: c.Lease})
			completions = append(completions, engine.Completion{Lease: c.Lease, Result: []byte("out")})
		}
	})
	count("renewal", use{}, func(e *engine.Engine) {
		if _, err := e.RenewLeases(t.Context(), renewals); err != nil {
			t.Fatal(err)
		}
	})
	count("completion", use{}, func(e *engine.Engine) {
		outcomes, err := e.CompleteExecutions(t.Context(), completions)
		if err != nil {
			t.Fatal(err)
		}
		for i := range outcomes {
			if outcomes[i] != nil {
				t.Error(outcomes[i])
			}
		}
	})
}
