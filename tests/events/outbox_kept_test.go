package events

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/events"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

func keepLeases(t *testing.T, eng *engine.Engine, kept state.Kept) {
	t.Helper()
	if err := operator.KeepLeaseEvents(t.Context(), eng, kept); err != nil {
		t.Fatal(err)
	}
}

// leaseEvents returns the kinds of stored lease events, each once.
func leaseEvents(t *testing.T, f *fixture.Fixture) []string {
	t.Helper()
	rows, err := f.Pool.Query(t.Context(), `SELECT DISTINCT event_type || coalesce(' by ' || ffx_revoked_by, '') FROM ff_lease_event`)
	if err != nil {
		t.Fatal(err)
	}
	kinds, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(kinds)
	return kinds
}

// Each operation, and its arrangement, writes the lease events that are kept, and no others.
func TestOperationsWriteTheLeaseEventsThatAreKept(t *testing.T) {
	t.Parallel()
	lost := []string{"expired", "reclaimed", "revoked by operator", "revoked by reconciler"}
	for _, tt := range []struct {
		kept state.Kept
		want []string
	}{
		{state.KeptAll, append([]string{"acquired", "renewed", "revoked by backend"}, lost...)},
		{state.KeptLost, lost},
		{state.KeptNone, nil},
	} {
		t.Run(string(tt.kept), func(t *testing.T) {
			t.Parallel()
			jobs, others := fixture.Clone(t), fixture.Clone(t)
			keepLeases(t, jobs.Engine, tt.kept)
			keepLeases(t, others.Engine, tt.kept)
			for _, o := range fixture.Operations() {
				if o.Alone {
					continue
				}
				f := o.Fixture(t, fixture.Clone, jobs, others)
				l := o.Arrange(t, f)
				if err := o.Do(t.Context(), f, f.Engine, l); err != nil {
					t.Fatalf("%s: %v", o.Name, err)
				}
			}
			got := append(leaseEvents(t, jobs), leaseEvents(t, others)...)
			slices.Sort(got)
			slices.Sort(tt.want)
			if got := slices.Compact(got); !slices.Equal(got, tt.want) {
				t.Errorf("written: %q, want %q", got, tt.want)
			}
		})
	}
}

// lives runs an execution whose worker loses its lease, and takes it again, and then another one whole.
func lives(t *testing.T, f *fixture.Fixture) {
	t.Helper()
	lost := f.Start(t)
	if _, err := operator.Revoke(t.Context(), f.Engine, operator.RevokeSpec{ID: lost.ID, Reason: "moved"}); err != nil {
		t.Fatal(err)
	}
	again := f.ClaimOne(t)
	if err := f.CompleteExecution(t.Context(), again.Lease, nil); err != nil {
		t.Fatal(err)
	}
}

// wantNotKept waits for the end of a subscription, whose events are not all kept.
func wantNotKept[E any](t *testing.T, sub *events.Subscription[E], kept state.Kept) {
	t.Helper()
	_, err := nextEvent(t, sub)
	got, ok := errors.AsType[*events.NotKeptError](err)
	if !ok || got.Kept != kept || got.Outbox != events.LeaseOutbox || !errors.Is(err, events.ErrNotKept) {
		t.Errorf("got %v, want that of the lease events %s are kept", err, kept)
	}
}

// A reader of all lease events ends with words when not all are written any more, a reader of lost leases when none are.
func TestReadersOfLeaseEventsThatAreNotKept(t *testing.T) {
	f := fixture.NewCloned(t)
	all := subscribe(t, f.Engine, events.Leases(events.Filter{}), events.Options{})
	some := subscribe(t, f.Engine, events.LostLeases(events.Filter{}), events.Options{})
	consumed := fixture.Async(t, func(ctx context.Context) error {
		return events.Handle(ctx, f.Engine, "billing", events.Leases(events.Filter{}), func(context.Context, pgx.Tx, events.Lease) error { return nil })
	})
	lives(t, f)
	for _, want := range []state.LeaseEventType{"acquired", "revoked", "acquired", "revoked"} {
		if got, err := nextEvent(t, all); err != nil || got.Type != want {
			t.Fatalf("got %+v, %v, want %s", got, err, want)
		}
	}
	keepLeases(t, f.Engine, state.KeptLost)
	lives(t, f)
	wantNotKept(t, all, state.KeptLost)
	if err := consumed(); !errors.Is(err, events.ErrNotKept) {
		t.Errorf("the consumer ended with %v", err)
	}
	for range 2 {
		if got, err := nextEvent(t, some); err != nil || got.RevokedBy != "operator" {
			t.Errorf("got %+v, %v, want the lease that was taken away", got, err)
		}
	}
	for _, o := range []events.Options{{}, {After: all.Position()}} {
		if _, err := events.Subscribe(t.Context(), f.Engine, events.Leases(events.Filter{}), o); !errors.Is(err, events.ErrNotKept) {
			t.Errorf("began with %v", err)
		}
	}
	keepLeases(t, f.Engine, state.KeptNone)
	wantNotKept(t, some, state.KeptNone)
	if status, err := operator.Retention(t.Context(), f.Engine); err != nil || status.Outboxes[1].Kept != state.KeptNone || status.Outboxes[0].Kept != state.KeptAll {
		t.Errorf("retention: %+v, %v", status.Outboxes, err)
	}
}

// A reader that slept while events were not written finds a gap, although no id is missing.
func TestEventsThatWereNotKeptAreAGap(t *testing.T) {
	for _, kept := range []state.Kept{state.KeptNone, state.KeptLost} {
		t.Run(string(kept), func(t *testing.T) {
			f := fixture.NewCloned(t)
			lives(t, f)
			sub := subscribe(t, f.Engine, events.Leases(events.Filter{}), events.Options{After: events.Beginning})
			for range 4 {
				if _, err := nextEvent(t, sub); err != nil {
					t.Fatal(err)
				}
			}
			slept := sub.Position()
			sub.Close()
			keepLeases(t, f.Engine, kept)
			x := f.Start(t) // unwritten
			keepLeases(t, f.Engine, state.KeptAll)
			_, err := events.Subscribe(t.Context(), f.Engine, events.Leases(events.Filter{}), events.Options{After: slept})
			gap, ok := errors.AsType[*events.GapError](err)
			if !ok {
				t.Fatalf("got %v, want a gap", err)
			}
			sub = subscribe(t, f.Engine, events.Leases(events.Filter{}), events.Options{After: gap.Oldest})
			if err := f.CompleteExecution(t.Context(), x.Lease, nil); err != nil {
				t.Fatal(err)
			}
			if got, err := nextEvent(t, sub); err != nil || got.Type != state.LeaseEventRevoked || got.Execution != x.ID {
				t.Errorf("got %+v, %v, want the end of the lease", got, err)
			}
			keepLeases(t, f.Engine, kept) // the check of all rows expects all events otherwise
		})
	}
}

// A transaction that has not written an event, since none was kept, is waited for by a reader from now: it may have read
// the former choice for a statement that goes on.
func TestReadersWaitForStatementsOfTheFormerChoice(t *testing.T) {
	f := fixture.NewCloned(t)
	keepLeases(t, f.Engine, state.KeptNone)
	f.Create(t)
	open := f.BeginTx(t)
	claimed, err := f.WithTx(open).Claim(t.Context(), f.Worker(), 1)
	if err != nil || len(claimed) != 1 {
		t.Fatalf("claimed %d, %v", len(claimed), err)
	}
	keepLeases(t, f.Engine, state.KeptAll)
	wantWaiting(t, f)
	fixture.Commit(t, open)
	sub := subscribe(t, f.Engine, events.Leases(events.Filter{}), events.Options{})
	lives(t, f)
	if got, err := nextEvent(t, sub); err != nil || got.Type != state.LeaseEventAcquired {
		t.Errorf("got %+v, %v", got, err)
	}
	keepLeases(t, f.Engine, state.KeptNone)
}

func TestKeepLeaseEventsRefuses(t *testing.T) {
	f := fixture.New(t)
	err := operator.KeepLeaseEvents(t.Context(), f.Engine, "some")
	if in, ok := errors.AsType[*fferr.InputError](err); !ok || in.Field != "kept" || !strings.Contains(err.Error(), "all, lost or none") {
		t.Errorf("got %v", err)
	}
}
