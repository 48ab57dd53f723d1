package operators

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

func revoke(t *testing.T, f *fixture.Fixture, spec operator.RevokeSpec) operator.Revoked {
	t.Helper()
	revoked, err := operator.Revoke(t.Context(), f.Engine, spec)
	if err != nil {
		t.Fatal(err)
	}
	return revoked
}

func TestRevokeLeaseReturnsTheExecution(t *testing.T) {
	f := fixture.New(t)
	c := f.Start(t, fixture.TimingOutAfter(time.Hour, nil))
	before, attempts := storedRows(t, f, c.ID)
	f.Advance(time.Second)
	revoked := revoke(t, f, operator.RevokeSpec{ID: c.ID, Reason: "it hangs"})
	want := operator.Revoked{
		Lease:    wire.LeaseTriple{Execution: c.ID.UUID(), AttemptIndex: 0, LeaseEpoch: 1},
		Instance: c.Lease.Instance, Epoch: 2,
	}
	if revoked != want || revoked.Lease.String() != fmt.Sprintf("pg:%s:0:1", c.ID.UUID()) {
		t.Errorf("got %+v, want %+v", revoked, want)
	}
	after, left := storedRows(t, f, c.ID)
	raw := before["raw_fields"].(map[string]any)
	raw["lease_revoke_reason"], raw["last_mutation_at"] = "it hangs", fmt.Sprint(nowMs(f))
	wantChanged(t, "execution", before, after, fixture.Columns{
		"lifecycle_phase": "runnable", "ownership_state": "unowned", "eligibility_state": "eligible_now", "public_state": "waiting",
		"attempt_state": "attempt_interrupted", "blocking_reason": "waiting_for_worker", "raw_fields": raw, "ffx_lease_epoch": 2,
		"ffx_last_mutation_at_ms": nowMs(f),
	})
	wantChanged(t, "attempt", attempts[0], left[0], fixture.Columns{
		"outcome": "interrupted", "lease_expires_at_ms": nil, "ffx_timeout_at_ms": nil, "worker_id": nil, "worker_instance_id": nil,
		"lease_epoch": 2, "raw_fields": map[string]any{"ffx_lost_leases": []any{map[string]any{
			"worker": f.Name, "instance": f.Name, "epoch": 1.0, "at": float64(nowMs(f)), "how": "revoked",
		}}},
	})
	f.WantEvents(t, c.ID, "lease acquired", "lease revoked operator")
	event := fixture.StoredRow(t, f.Pool, "ff_lease_event", "partition_key = $1::smallint AND execution_id = $2 AND event_type = 'revoked'",
		c.ID.Partition(), c.ID.UUID().String())
	if event["lease_id"] != c.Lease.ID.String() || event["ffx_worker_instance_id"] != f.Name || event["namespace"] != "default" {
		t.Errorf("lease event %v", event)
	}

	for call, do := range fixture.HolderCalls {
		if call != "progress" {
			fixture.WantLeaseError(t, do(t, f.Engine, c.Lease), fferr.ErrStaleLease)
		}
	}
	next := f.ClaimOne(t)
	if next.ID != c.ID || next.Lease.Attempt != 0 || next.Lease.Epoch != 3 || !next.Resumed || f.Stored(t, c.ID).ReclaimCount != 0 {
		t.Errorf("claimed %+v", next)
	}
}

// A repetition writes nothing, nor does any call that finds no lease, or not the expected one.
func TestRevokeLeaseIgnoresAnotherLease(t *testing.T) {
	f := fixture.New(t)
	c := f.Start(t)
	other := id.NewLeaseID().String()
	for _, r := range []struct {
		spec operator.RevokeSpec
		want operator.NotRevoked
	}{
		{operator.RevokeSpec{Instance: "another"}, operator.AnotherInstance},
		{operator.RevokeSpec{Instance: "another", Lease: wire.ExpectedLease(other)}, operator.AnotherInstance},
		{operator.RevokeSpec{Instance: c.Lease.Instance, Lease: wire.ExpectedLease(other)}, operator.AnotherLease},
		{operator.RevokeSpec{Lease: wire.ExpectedLease(fmt.Sprintf("pg:%s:0:2", c.ID.UUID()))}, operator.AnotherLease},
		{operator.RevokeSpec{Lease: "what is no id"}, operator.AnotherLease},
	} {
		before := f.Dump(t, c.ID)
		r.spec.ID = c.ID
		if got := revoke(t, f, r.spec); got != (operator.Revoked{NotRevoked: r.want}) {
			t.Errorf("%+v: got %+v, want %s", r.spec, got, r.want)
		}
		f.WantUnchanged(t, c.ID, before)
	}
	revoke(t, f, operator.RevokeSpec{ID: c.ID})
	for name, x := range map[string]id.ExecutionID{
		"revoked":                          c.ID,
		"waiting":                          f.Create(t),
		"ended, and its lease left behind": endings["cancelled by the reference's operator"](t, f),
		"ended": func() id.ExecutionID {
			l := startAlone(t, f)
			f.Fail(t, l, fixture.ForGood)
			return l.Execution
		}(),
	} {
		before := f.Dump(t, x)
		if got := revoke(t, f, operator.RevokeSpec{ID: x}); got != (operator.Revoked{NotRevoked: operator.NoActiveLease}) {
			t.Errorf("%s: got %+v", name, got)
		}
		f.WantUnchanged(t, x, before)
	}
}

// startAlone starts an execution on a lane of its own.
func startAlone(t *testing.T, f *fixture.Fixture) engine.Lease {
	t.Helper()
	return fixture.Another(t).Start(t).Lease
}

func TestRevokeLeaseRefusesALongReason(t *testing.T) {
	f := fixture.New(t)
	c := f.Start(t)
	_, err := operator.Revoke(t.Context(), f.Engine, operator.RevokeSpec{ID: c.ID, Reason: strings.Repeat("x", operator.MaxRevokeReason+1)})
	if !errors.Is(err, fferr.ErrInvalidInput) {
		t.Errorf("got %v, want invalid input", err)
	}
}

// A lease that has run out, or that another program marked as lost, may be revoked before a job comes.
func TestRevokeLeaseAfterItRanOut(t *testing.T) {
	f := fixture.New(t)
	c := f.Start(t)
	f.Advance(2 * fixture.LeaseTTL)
	if got := revoke(t, f, operator.RevokeSpec{ID: c.ID}); got.Epoch != 2 {
		t.Errorf("got %+v", got)
	}
	x := f.Seed(t, fixture.Columns(fixture.ClaimedByReference))
	f.SetExecution(t, x, "ownership_state = 'lease_revoked', attempt_index = 1") // its pointer is beside the attempt
	f.SeedAttempt(t, x, 0, fixture.Columns{"lease_epoch": 7, "lease_expires_at_ms": fixture.Start.UnixMilli(), "terminal_at_ms": fixture.Start.UnixMilli()})
	got := revoke(t, f, operator.RevokeSpec{ID: x})
	if got.Lease.LeaseEpoch != 7 || got.Epoch != 8 || got.Instance != "reference-1" {
		t.Errorf("got %+v", got)
	}
	if stored, attempt := f.Stored(t, x), f.StoredAttempts(t, x)[0]; stored.State != fixture.StateReturned || stored.AttemptIndex != 0 ||
		stored.LeaseEpoch != 8 || attempt.TerminalAtMs != nil || attempt.LeaseEpoch != 8 {
		t.Errorf("stored %+v with attempt %+v", stored, attempt)
	}
}

// The listing of expired leases names them by a label, which the reference's revoke never accepts.
func TestRevokeLeaseAcceptsEverySpelling_I11(t *testing.T) {
	f := fixture.NewCloned(t) // the first page is to hold its lease
	for name, spell := range map[string]func(engine.Lease) string{
		"its id":    func(l engine.Lease) string { return l.ID.String() },
		"its fence": func(l engine.Lease) string { return fmt.Sprintf("pg:%s:%d:%d", l.Execution.UUID(), l.Attempt, l.Epoch) },
		"its label": func(l engine.Lease) string {
			f.Advance(fixture.LeaseTTL)
			leases := fixture.Listed(t, operator.ExpiredLeases(t.Context(), f.Engine, operator.ExpiredLeaseFilter{}))
			at := slices.IndexFunc(leases, func(e operator.ExpiredLease) bool { return e.Fence == l.Fence })
			if at < 0 {
				t.Fatalf("%+v is not listed", l)
			}
			return leases[at].Label.String()
		},
		"nothing": func(engine.Lease) string { return "" },
	} {
		c := f.Start(t, func(spec *engine.ExecutionSpec) { spec.Priority = 9 })
		if got := revoke(t, f, operator.RevokeSpec{ID: c.ID, Lease: wire.ExpectedLease(spell(c.Lease))}); got.NotRevoked != "" {
			t.Errorf("by %s: not revoked: %s", name, got.NotRevoked)
		}
		f.ClaimOne(t) // so that the next start claims its own
	}
}

// A label is no fence: that of an execution's very first state is the execution's id, and it names a lease only while
// that is the current one.
func TestLeaseLabelNamesTheCurrentLeaseOnly_I12(t *testing.T) {
	f := fixture.New(t)
	c := f.Start(t)
	label := wire.LeaseTriple{Execution: c.ID.UUID(), LeaseEpoch: 1}.Synthetic()
	revoke(t, f, operator.RevokeSpec{ID: c.ID})
	next := f.ClaimOne(t)
	before := f.Dump(t, c.ID)
	for _, lease := range []string{label.String(), c.ID.UUID().String()} {
		if got := revoke(t, f, operator.RevokeSpec{ID: c.ID, Lease: wire.ExpectedLease(lease)}); got.NotRevoked != operator.AnotherLease {
			t.Errorf("%s revoked %+v", lease, got)
		}
	}
	f.WantUnchanged(t, c.ID, before)
	if _, err := f.RenewLease(t.Context(), next.Lease, 0); err != nil {
		t.Error(err)
	}
}

// Leases of one millisecond are a page's end and the next one's beginning: none is left out or comes twice.
func TestListExpiredLeasesOfOneMillisecond_E34(t *testing.T) {
	f := fixture.NewCloned(t)
	claimed := append(f.StartMany(t, engine.MaxBatch), f.StartMany(t, 7)...)
	f.Advance(fixture.LeaseTTL)
	var want []id.Fence
	for _, c := range claimed {
		want = append(want, c.Lease.Fence)
	}
	slices.SortFunc(want, func(a, b id.Fence) int { return a.Execution.UUID().Compare(b.Execution.UUID()) })
	var got []id.Fence
	for _, lease := range fixture.Listed(t, operator.ExpiredLeases(t.Context(), f.Engine, operator.ExpiredLeaseFilter{})) {
		got = append(got, lease.Fence)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// The reference's cursor compares a bare uuid with a tagged id as text.
func TestExpiredLeaseCursorContinuesAfterThePage_I9(t *testing.T) {
	f := fixture.NewCloned(t)
	const n = 3
	for range n {
		f.StartMany(t, engine.MaxPage/2)
		f.Advance(time.Millisecond)
	}
	f.Advance(fixture.LeaseTTL)
	all := fixture.Listed(t, operator.ExpiredLeases(t.Context(), f.Engine, operator.ExpiredLeaseFilter{}))
	ids := make(map[id.ExecutionID]bool)
	for _, lease := range all {
		ids[lease.Execution] = true
	}
	if len(all) != n*engine.MaxPage/2 || len(ids) != len(all) {
		t.Errorf("%d leases of %d executions", len(all), len(ids))
	}
	if !slices.IsSortedFunc(all, func(a, b operator.ExpiredLease) int { return a.ExpiresAt.Compare(b.ExpiresAt) }) {
		t.Errorf("not by when they ran out: %v", all)
	}
	for name, filter := range map[string]operator.ExpiredLeaseFilter{
		"bad namespace": {Namespace: "\x00"},
		"as of 1960":    {AsOf: time.UnixMilli(-1)},
	} {
		if err := fixture.Unlisted(t, operator.ExpiredLeases(t.Context(), f.Engine, filter)); !errors.Is(err, fferr.ErrInvalidInput) {
			t.Errorf("%s: got %v, want invalid input", name, err)
		}
	}
}

// In any public state, active executions that have lost their leases are listed, and no others.
func TestListExpiredLeasesOfEveryClaim_I10(t *testing.T) {
	f := fixture.NewCloned(t)
	mine := f.Start(t)
	granted := f.Seed(t, fixture.Columns(fixture.ClaimedByReference))
	f.SetExecution(t, granted, "public_state = 'active', attempt_index = 1")
	f.SeedAttempt(t, granted, 0, fixture.Columns{"lease_epoch": 3, "lease_expires_at_ms": fixture.Start.UnixMilli() + 5})

	renewed, completed, superseded := f.Start(t), f.Start(t), f.Start(t)
	if _, err := f.RenewLease(t.Context(), renewed.Lease, time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := f.CompleteExecution(t.Context(), completed.Lease, nil); err != nil {
		t.Fatal(err)
	}
	f.SetExecution(t, superseded.ID, "attempt_index = 1") // by another program, which left the old expiry
	f.SeedAttempt(t, superseded.ID, 1, fixture.Columns{"lease_epoch": 2, "lease_expires_at_ms": fixture.Start.Add(time.Hour).UnixMilli()})
	foreign := f.Start(t, func(spec *engine.ExecutionSpec) { spec.Namespace = "tenant" })

	f.Advance(fixture.LeaseTTL)
	list := func(filter operator.ExpiredLeaseFilter) (found []string) {
		for lease, err := range operator.ExpiredLeases(t.Context(), f.Engine, filter) {
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, fmt.Sprint(lease.Execution, " ", lease.Attempt, " ", lease.Epoch, " ", lease.Instance, " ", lease.ExpiresAt.UnixMilli()))
		}
		slices.Sort(found)
		return found
	}
	line := func(x id.ExecutionID, epoch int, instance string, at time.Time) string {
		return fmt.Sprint(x, " 0 ", epoch, " ", instance, " ", at.UnixMilli())
	}
	theirs := line(granted, 3, "reference-1", fixture.Start.Add(5*time.Millisecond))
	ours, other := line(mine.ID, 1, f.Name, f.Time()), line(foreign.ID, 1, f.Name, f.Time())
	sorted := func(lines ...string) []string { slices.Sort(lines); return lines }
	for _, c := range []struct {
		name   string
		filter operator.ExpiredLeaseFilter
		want   []string
	}{
		{"now", operator.ExpiredLeaseFilter{}, sorted(theirs, ours, other)},
		{"before", operator.ExpiredLeaseFilter{AsOf: f.Time().Add(-time.Millisecond)}, []string{theirs}},
		{"of a namespace", operator.ExpiredLeaseFilter{Namespace: "tenant"}, []string{other}},
		{"of no namespace", operator.ExpiredLeaseFilter{Namespace: "nobody"}, nil},
	} {
		if got := list(c.filter); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if got := list(operator.ExpiredLeaseFilter{AsOf: f.Time().Add(2 * time.Hour)}); len(got) != 5 {
		t.Errorf("in two hours: %q", got)
	}
	for f.Time().Before(fixture.Start.Add(time.Minute)) {
		f.Advance(time.Minute)
		if _, err := upkeep.Of(f.Engine).ExpireLeases(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
	}
	if got := list(operator.ExpiredLeaseFilter{}); got != nil {
		t.Errorf("after the job: %q", got)
	}
}

// The handler is notified at once, by any process: its next renewal is an hour away. Another worker goes on with it.
func TestWorkerIsNotifiedOfARevocation(t *testing.T) {
	c := fixture.NewCrew(t)
	cfg := fixture.Alone
	cfg.LeaseTTL, cfg.DrainTimeout = 3*time.Hour, time.Second
	began, causes := c.Long(t, cfg)
	console := c.Rival(t)
	x := c.Create(t, func(s *engine.ExecutionSpec) { s.Kind = "long" })
	fixture.Received(t, began)
	if revoked, err := operator.Revoke(t.Context(), console.Engine, operator.RevokeSpec{ID: x}); err != nil || revoked.Epoch != 2 {
		t.Fatalf("revoked %+v, %v", revoked, err)
	}
	if cause := fixture.Received(t, causes); !errors.Is(cause, worker.ErrLeaseLost) || !errors.Is(cause, fferr.ErrStaleLease) || errors.Is(cause, worker.ErrCancelled) {
		t.Errorf("cause %v", cause)
	}
	if again := fixture.Received(t, began); again != x {
		t.Errorf("%s goes on, want %s", again, x)
	}
	c.WantState(t, x, fixture.StateRunning)
}

// The reference revokes at SERIALIZABLE, with three tries: renewals of the very lease make it give up.
func TestRevocationSurvivesRenewals_E53(t *testing.T) {
	f := fixture.New(t)
	log := new(fixture.StatementLog)
	operators := f.Rival(t, func(config *pgxpool.Config) { config.ConnConfig.Tracer = log })
	for range 5 { // one after the other, each uncommitted when the revocation comes to it
		c := f.Start(t, func(spec *engine.ExecutionSpec) { spec.Priority = 9 })
		tx := f.BeginTx(t)
		if _, err := f.WithTx(tx).RenewLease(t.Context(), c.Lease, time.Minute); err != nil {
			t.Fatal(err)
		}
		wait := fixture.Async(t, func(ctx context.Context) error {
			_, err := operator.Revoke(ctx, operators.Engine, operator.RevokeSpec{ID: c.ID})
			return err
		})
		operators.AwaitBlocked(t, f)
		fixture.Commit(t, tx)
		if err := wait(); err != nil {
			t.Fatal(err)
		}
		f.WantState(t, c.ID, fixture.StateReturned)
		f.ClaimOne(t)
	}
	if aborted := log.Aborted(); len(aborted) > 0 {
		t.Errorf("the server gave up %q", aborted)
	}
}

// A renewal, a completion and a revocation meet on the rows: the second finds the result of the first.
func TestRevokeLeaseRacesTheHolder(t *testing.T) {
	calls := map[string]func(context.Context, *engine.Engine, engine.Lease) error{
		"renew": func(ctx context.Context, e *engine.Engine, l engine.Lease) error {
			_, err := e.RenewLease(ctx, l, time.Hour)
			return err
		},
		"complete": func(ctx context.Context, e *engine.Engine, l engine.Lease) error {
			return e.CompleteExecution(ctx, l, []byte("out"))
		},
		"fail": func(ctx context.Context, e *engine.Engine, l engine.Lease) error {
			_, err := e.FailExecution(ctx, l, engine.Failure{Class: policy.Permanent})
			return err
		},
	}
	for name, call := range calls {
		t.Run(name+" second", func(t *testing.T) {
			f := fixture.New(t)
			c := f.Start(t)
			late := f.Rival(t)
			tx := f.BeginTx(t)
			if _, err := operator.Revoke(t.Context(), f.WithTx(tx), operator.RevokeSpec{ID: c.ID}); err != nil {
				t.Fatal(err)
			}
			wait := fixture.Async(t, func(ctx context.Context) error { return call(ctx, late.Engine, c.Lease) })
			if name == "renew" { // never waits
				if err := wait(); !errors.Is(err, fferr.ErrBusy) {
					t.Errorf("got %v, want busy", err)
				}
			} else {
				late.AwaitBlocked(t, f)
			}
			fixture.Commit(t, tx)
			if name == "renew" {
				fixture.WantLeaseError(t, call(t.Context(), late.Engine, c.Lease), fferr.ErrStaleLease)
			} else {
				fixture.WantLeaseError(t, wait(), fferr.ErrStaleLease)
			}
			f.WantState(t, c.ID, fixture.StateReturned)
			f.WantEvents(t, c.ID, "lease acquired", "lease revoked operator")
		})
		t.Run(name+" first", func(t *testing.T) {
			f := fixture.New(t)
			c := f.Start(t)
			late := f.Rival(t)
			tx := f.BeginTx(t)
			if err := call(t.Context(), f.WithTx(tx), c.Lease); err != nil {
				t.Fatal(err)
			}
			wait := fixture.Async(t, func(ctx context.Context) fferr.Outcome[operator.Revoked] {
				revoked, err := operator.Revoke(ctx, late.Engine, operator.RevokeSpec{ID: c.ID})
				return fferr.Outcome[operator.Revoked]{Value: revoked, Err: err}
			})
			late.AwaitBlocked(t, f)
			fixture.Commit(t, tx)
			got := wait()
			if got.Err != nil {
				t.Fatal(got.Err)
			}
			if name == "renew" {
				if got.Value.Epoch != 2 {
					t.Errorf("revoked %+v", got.Value)
				}
				fixture.WantLeaseError(t, call(t.Context(), f.Engine, c.Lease), fferr.ErrStaleLease)
			} else if got.Value != (operator.Revoked{NotRevoked: operator.NoActiveLease}) {
				t.Errorf("revoked %+v of what has ended", got.Value)
			}
		})
	}
}
