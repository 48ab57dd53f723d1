package signals

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// openAt opens a waitpoint with a key.
func openAt(t *testing.T, f *fixture.Fixture, l engine.Lease, key id.WaitpointKey, ttl time.Duration) engine.Waitpoint {
	t.Helper()
	w, err := f.Engine.CreateWaitpoint(t.Context(), engine.WaitpointSpec{Lease: l, Key: key, TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// A waitpoint of a later step outlives the wait before it. Signals to it are kept meanwhile, and wake nothing.
func TestLaterWaitpointOutlivesAWait_S3_S51(t *testing.T) {
	f := fixture.GrantFixture(t)
	l := f.Start(t).Lease
	first, second := openAt(t, f, l, "first", time.Hour), openAt(t, f, l, "second", time.Hour)
	f.SuspendAgain(t, l, engine.Received("go").At("first"))
	if got, err := sendBy(t, f, second, "go"); err != nil || got.Effect != engine.SignalBuffered {
		t.Errorf("while it waits elsewhere: %+v, %v", got, err)
	}
	f.WantState(t, l.Execution, fixture.StateSuspended)
	if got, err := sendBy(t, f, first, "go"); err != nil || got.Effect != engine.SignalSatisfied {
		t.Fatalf("%+v, %v", got, err)
	}
	again := f.ClaimOne(t).Lease
	// The condition of the former wait is satisfied still. Nothing evaluates it.
	if got, err := sendBy(t, f, second, "go"); err != nil || got.Effect != engine.SignalBuffered {
		t.Errorf("while it runs: %+v, %v", got, err)
	}
	f.WantState(t, l.Execution, fixture.StateRunning)
	if got := f.SuspendAgain(t, again, engine.Received("go").At("second")); !got.Satisfied {
		t.Errorf("%+v", got)
	}
	if _, err := f.RenewLease(t.Context(), again, fixture.LeaseTTL); err != nil {
		t.Errorf("a wait that was satisfied at once took the lease: %v", err)
	}
	f.WantState(t, l.Execution, fixture.StateRunning)
}

// Both links of a wait for two are needed, in either order.
func TestBothTokensAreNeeded(t *testing.T) {
	f := fixture.GrantFixture(t)
	for _, order := range [][]int{{0, 1}, {1, 0}} {
		l := f.Start(t).Lease
		links := []engine.Waitpoint{openAt(t, f, l, "legal", time.Hour), openAt(t, f, l, "finance", time.Hour)}
		f.SuspendAgain(t, l, engine.AllOf(engine.Received("approved").At("legal"), engine.Received("approved").At("finance")))
		for i, want := range []engine.SignalEffect{engine.SignalAppended, engine.SignalSatisfied} {
			if got, err := sendBy(t, f, links[order[i]], "approved"); err != nil || got.Effect != want {
				t.Errorf("%v, signal %d: %+v, %v", order, i, got, err)
			}
		}
		if err := f.CompleteExecution(t.Context(), f.ClaimOne(t).Lease, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// Waitpoints of two executions have nothing in common but their key, and a suspension chooses no id of a waitpoint.
func TestWaitpointsBelongToOneExecution_S7(t *testing.T) {
	f := fixture.GrantFixture(t)
	theirs := f.Start(t).Lease
	w := open(t, f, theirs)
	const stored = "SELECT to_jsonb(w)::text FROM ff_waitpoint_pending AS w WHERE waitpoint_id = $1"
	before := fixture.Texts(t, f.Pool, stored, w.ID)
	mine := f.Start(t).Lease
	wait := id.NewSuspensionID()
	named := func(s *engine.SuspendSpec) { s.ID = wait }
	f.SuspendAgain(t, mine, engine.Received("approved").At(decision), named)
	if got := fixture.Texts(t, f.Pool, stored, w.ID); !slices.Equal(got, before) {
		t.Errorf("%q became %q", before, got)
	}
	// The id of a suspension belongs to its execution as well.
	if got := f.SuspendAgain(t, theirs, engine.Received("approved").At(decision), named); got.Satisfied {
		t.Errorf("%+v", got)
	}
	if got, err := sendBy(t, f, w, "approved"); err != nil || got.Effect != engine.SignalSatisfied {
		t.Errorf("%+v, %v", got, err)
	}
	f.WantState(t, mine.Execution, fixture.StateSuspended)
}

// Ids of waitpoints are made, never given, so the token of a former wait opens no later one with the same key.
func TestTokenOfAFormerWaitIsDead_S52(t *testing.T) {
	f := fixture.GrantFixture(t)
	l := f.Start(t).Lease
	former := open(t, f, l)
	f.SuspendAgain(t, l, engine.Received("approved").At(decision))
	if _, err := sendBy(t, f, former, "approved"); err != nil {
		t.Fatal(err)
	}
	l = f.ClaimOne(t).Lease
	next := open(t, f, l)
	if next.ID == former.ID || next.Token == former.Token {
		t.Errorf("%+v, then %+v", former, next)
	}
	f.SuspendAgain(t, l, engine.Received("approved").At(decision))
	if _, err := sendBy(t, f, former, "approved"); !errors.Is(err, fferr.ErrNotFound) {
		t.Error(err)
	}
	f.WantState(t, l.Execution, fixture.StateSuspended)
}

// The expiry of a waitpoint leaves the signals of the wait alone.
func TestExpiryKeepsSignals_S26_M15(t *testing.T) {
	f := fixture.GrantFixture(t)
	l := f.Start(t).Lease
	w := openAt(t, f, l, "later", time.Minute)
	f.SuspendAgain(t, l, engine.AllOf(ready, engine.Received("paid")))
	f.Signal(t, l, "paid")
	if _, err := sendBy(t, f, w, "noted"); err != nil {
		t.Fatal(err)
	}
	const stored = "SELECT member_map::text FROM ff_suspension_current"
	before := fixture.Texts(t, f.Pool, stored)
	f.Advance(time.Minute)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireWaitpoints, 1)
	if got := fixture.Texts(t, f.Pool, stored); !slices.Equal(got, before) || !strings.HasPrefix(got[0], `{"paid": [{`) {
		t.Errorf("%q became %q", before, got)
	}
	if _, err := sendBy(t, f, w, "noted"); !errors.Is(err, fferr.ErrNotFound) {
		t.Errorf("to the expired waitpoint: %v", err)
	}
	if got := f.Signal(t, l, "ready"); got != "satisfied" {
		t.Error(got)
	}
}

// Only the holder of a lease gets a token: not after its lease, and not for an execution that doesn't exist.
func TestWaitpointNeedsALease_S29(t *testing.T) {
	f := fixture.GrantFixture(t)
	l := f.Start(t).Lease
	for _, c := range []struct {
		name   string
		change func(*engine.Lease)
		want   error
	}{
		{"of an earlier epoch", func(l *engine.Lease) { l.Epoch-- }, fferr.ErrStaleLease},
		{"of no execution", func(l *engine.Lease) { l.Execution = f.NewExecutionID(l.Lane) }, fferr.ErrNotFound},
		{"that is over", func(*engine.Lease) { f.Advance(fixture.LeaseTTL) }, fferr.ErrLeaseExpired},
	} {
		presented := l
		c.change(&presented)
		_, err := f.Engine.CreateWaitpoint(t.Context(), engine.WaitpointSpec{Lease: presented, Key: decision, TTL: time.Hour})
		if !errors.Is(err, c.want) {
			t.Errorf("a lease %s: %v, want %v", c.name, err, c.want)
		}
	}
	if n := rows(t, f, "ff_waitpoint_pending"); n != 0 {
		t.Errorf("%d waitpoints", n)
	}
}

// A token that was replaced is refused like a forged one, by a comparison of digests. The time of a waitpoint and of its
// wait is checked too.
func TestReplacedTokenIsRefused_I28(t *testing.T) {
	f := fixture.GrantFixture(t)
	l := f.Start(t).Lease
	w := open(t, f, l)
	f.Exec(t, "UPDATE ff_waitpoint_pending SET token = 'k1:' || repeat('0', 64)")
	_, replaced := sendBy(t, f, w, "approved")
	_, forged := sendBy(t, f, w, "approved", func(s *engine.WaitpointSignal) { s.Token = "k1:0" })
	if !errors.Is(replaced, fferr.ErrInvalidToken) || replaced.Error() != forged.Error() {
		t.Errorf("%v; forged: %v", replaced, forged)
	}
	f.Exec(t, "UPDATE ff_waitpoint_pending SET token = $1", w.Token.Reveal())
	f.SuspendAgain(t, l, engine.Received("approved").At(decision))
	f.Advance(time.Hour)
	if _, err := sendBy(t, f, w, "approved"); !errors.Is(err, fferr.ErrWaitpointClosed) {
		t.Errorf("after the timeout, before the job: %v", err)
	}
}

// The approval of an operator needs no token. One operator counts once, however often the decision is sent.
func TestOperatorsApprove_S34(t *testing.T) {
	f := fixture.GrantFixture(t)
	l := f.Start(t).Lease
	w := open(t, f, l)
	f.SuspendAgain(t, l, engine.AtLeast(2, engine.DistinctSources, "approved").At(decision))
	approve := func(by, once string) string {
		return f.Signal(t, l, "approved", func(s *engine.SignalSpec) {
			s.SourceType, s.Source, s.Category, s.IdempotencyKey = "operator", by, "approval", once
		})
	}
	for _, c := range []struct{ by, once, want string }{
		{"ada", "ticket 1", "appended"}, {"ada", "ticket 1", "duplicate"}, {"ada", "ticket 2", "appended"}, {"bob", "ticket 3", "satisfied"},
	} {
		if got := approve(c.by, c.once); got != c.want {
			t.Errorf("%s, %s: %s, want %s", c.by, c.once, got, c.want)
		}
	}
	received, err := f.ReceivedSignals(t.Context(), l.Execution)
	if err != nil || len(received) != 3 || received[2].Source != "bob" || received[2].SourceType != "operator" || received[2].Category != "approval" {
		t.Errorf("%+v, %v", received, err)
	}
	if _, err := sendBy(t, f, w, "approved"); !errors.Is(err, fferr.ErrNotFound) {
		t.Errorf("by the link, after the wait: %v", err)
	}
}
