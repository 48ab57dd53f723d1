package events

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/events"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// Events that the reference's subscriptions lose, or fail on.

// A reader that asks for ids greater than its last one misses later commits with smaller ids; a reader that begins at
// the greatest id misses events that were open then.
func TestLateCommitsAreDelivered_V1_V2(t *testing.T) {
	f := fixture.NewCloned(t)
	early := f.BeginTx(t)
	first := insertEvent(t, early, "lease", foreignEvents["lease"])
	second := insertEvent(t, f.Pool, "lease", foreignEvents["lease"])
	subscribing := fixture.Async(t, func(ctx context.Context) *events.Subscription[events.Lease] {
		sub, err := events.Subscribe(t.Context(), f.Rival(t).Engine, events.Leases(events.Filter{}), events.Options{})
		if err != nil {
			t.Error(err)
		}
		return sub
	})
	resumed := subscribe(t, f.Engine, events.Leases(events.Filter{}), events.Options{After: cursorBehind(second - 1)})
	running := subscribe(t, f.Rival(t).Engine, events.Leases(events.Filter{}), events.Options{After: events.Beginning})
	third := insertEvent(t, f.Pool, "lease", foreignEvents["lease"])
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) //pace:allow it is to run out
	defer cancel()
	if event, err := running.Next(short); err == nil {
		t.Errorf("%+v is handed out before the one that is open", event)
	}
	fixture.Commit(t, early)
	wantIDs(t, running, first, second, third)
	wantIDs(t, resumed, second, third)
	fromNow := subscribing()
	if fromNow == nil {
		return
	}
	t.Cleanup(fromNow.Close)
	fourth := insertEvent(t, f.Pool, "lease", foreignEvents["lease"])
	for last := int64(0); last < fourth; { // those just before may come as well, and in order
		event, err := nextEvent(t, fromNow)
		if err != nil || event.ID <= last {
			t.Fatalf("got %+v, %v after %d", event, err, last)
		}
		last = event.ID
	}
}

func TestCompletionsResumeAtTheirCursor_V3(t *testing.T) {
	f := fixture.NewCloned(t)
	sub := subscribe(t, f.Engine, events.Completions(events.Filter{}), events.Options{})
	var stored []byte
	for i, c := range f.StartMany(t, 3) {
		if err := f.CompleteExecution(t.Context(), c.Lease, nil); err != nil {
			t.Fatal(err)
		}
		got, err := nextEvent(t, sub)
		if err != nil || got.Execution != c.ID || got.ID == 0 || got.Cursor() != cursorBehind(got.ID) {
			t.Fatalf("got %+v, %v", got, err)
		}
		if i == 0 {
			stored = sub.Position().Bytes()
		}
	}
	last := sub.Position()
	sub.Close()
	cursor, err := events.ParseCursor(stored)
	if err != nil || len(stored) != 9 {
		t.Fatal(err)
	}
	resumed := subscribe(t, f.Engine, events.Completions(events.Filter{}), events.Options{After: cursor})
	for range 2 {
		if got, err := nextEvent(t, resumed); err != nil || got.Cursor() == cursor {
			t.Fatalf("got %+v, %v", got, err)
		}
	}
	if resumed.Position() != last {
		t.Errorf("it is at %s, want %s", resumed.Position(), last)
	}
}

// cutListening ends the rival's listening connection and waits for another one.
func cutListening(t *testing.T, r *fixture.Rival, f *fixture.Fixture) {
	t.Helper()
	const query = "SELECT pid::text FROM pg_stat_activity WHERE application_name = $1 AND query ILIKE 'listen %'"
	var old []string
	fixture.Await(t, "a listening connection", func() bool { old = fixture.Texts(t, f.Pool, query, r.Name); return len(old) == 1 })
	f.Exec(t, "SELECT pg_terminate_backend($1::integer)", old[0])
	fixture.Await(t, "another listening connection", func() bool {
		now := fixture.Texts(t, f.Pool, query, r.Name)
		return len(now) == 1 && now[0] != old[0]
	})
}

// A driver that reconnects by itself hides that notifications were lost in the meantime. The notice does not end the
// subscription, is given only on request, and never waits for a reader whose buffer is full.
func TestLostListenerLosesNoEvents_V9_V11_V19(t *testing.T) {
	f := fixture.NewCloned(t)
	r := f.Rival(t)
	leases := events.Leases(events.Filter{})
	withNotices := subscribe(t, r.Engine, leases, events.Options{Notices: true})
	withoutNotices := subscribe(t, r.Engine, leases, events.Options{})
	full := subscribe(t, r.Engine, leases, events.Options{Notices: true, Buffer: 1})
	before := insertEvent(t, f.Pool, "lease", foreignEvents["lease"])
	second := insertEvent(t, f.Pool, "lease", foreignEvents["lease"])
	wantIDs(t, withNotices, before, second)
	wantIDs(t, withoutNotices, before, second)
	cutListening(t, r, f)
	_, err := nextEvent(t, withNotices)
	notice, ok := errors.AsType[*events.DisconnectedError](err)
	if !ok || notice.Cursor != cursorBehind(second) || notice.Outbox != events.LeaseOutbox {
		t.Errorf("got %v, want a notice behind %d", err, second)
	}
	after := insertEvent(t, f.Pool, "lease", foreignEvents["lease"])
	wantIDs(t, withNotices, after)
	wantIDs(t, withoutNotices, after)
	var got []int64
	notices := 0
	for event, err := range full.All() {
		if err != nil {
			notices++
			continue
		}
		if got = append(got, event.ID); event.ID == after {
			break
		}
	}
	if fmt.Sprint(got) != fmt.Sprint([]int64{before, second, after}) || notices != 1 {
		t.Errorf("the reader whose buffer was full got %d and %d notices", got, notices)
	}
}

// A read that fails is repeated by itself: nothing has to be notified.
func TestFailedReadIsRepeated_V10(t *testing.T) {
	f := fixture.NewCloned(t)
	r := f.Rival(t)
	sub := subscribe(t, r.Engine, events.Leases(events.Filter{}), events.Options{Notices: true})
	tx := f.BeginTx(t)
	event := insertEvent(t, tx, "lease", foreignEvents["lease"])
	if _, err := tx.Exec(t.Context(), "SET LOCAL ffx.defer_notify = on; LOCK TABLE ff_lease_event IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	r.AwaitBlocked(t, f) // it polls
	f.Exec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'`, r.Name)
	if _, err := nextEvent(t, sub); err == nil {
		t.Error("no notice of the failure")
	}
	fixture.Commit(t, tx)
	wantIDs(t, sub, event)
}

// Many subscribers cost one query for new events, not one each.
func TestSubscribersShareAQuery_V13(t *testing.T) {
	f := fixture.NewCloned(t)
	log := new(fixture.StatementLog)
	eng := f.EngineOn(t, log.Open(t, f.Url), engine.Config{})
	subs := make([]*events.Subscription[events.Completion], 50)
	for i := range subs {
		subs[i] = subscribe(t, eng, events.Completions(events.Filter{}), events.Options{})
	}
	const n = 5
	sent := log.During(func() {
		for range n {
			event := insertEvent(t, f.Pool, "completion", foreignEvents["completion"])
			for _, sub := range subs {
				wantIDs(t, sub, event)
			}
		}
	})
	reads := 0
	for _, name := range fixture.Names(sent) {
		if name == "ReadCompletionEvents" {
			reads++
		}
	}
	if reads == 0 || reads >= n*len(subs)/5 {
		t.Errorf("%d subscriptions read %d times for %d events", len(subs), reads, n)
	}
}

// Behind a transaction pooler, or without the triggers, no notifications arrive.
func TestEventsArriveWithoutNotifications_V16(t *testing.T) {
	f := fixture.NewCloned(t)
	for _, outbox := range []string{"completion", "lease", "signal", "operator"} {
		f.Exec(t, fmt.Sprintf("ALTER TABLE ff_%[1]s_event DISABLE TRIGGER ff_%[1]s_event_notify_trg", outbox))
	}
	deaf := f.EngineOn(t, fixture.OpenPool(t, f.Url, nil), engine.Config{NoListener: true})
	for name, eng := range map[string]*engine.Engine{"polling": deaf, "listening for nothing": f.Rival(t).Engine} {
		sub := subscribe(t, eng, events.Signals(events.Filter{}), events.Options{})
		for range 3 {
			wantIDs(t, sub, insertEvent(t, f.Pool, "signal", foreignEvents["signal"]))
		}
		t.Log(name)
	}
}

// A completion names its flow, and two in one millisecond are distinct.
func TestCompletionsNameTheirFlow_V21(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	sub := subscribe(t, f.Engine, events.Completions(events.Filter{}), events.Options{})
	flow := f.NewFlowOf(t, fixture.Chart(nil, "a", "b"))
	f.Succeed(t, flow, "a")
	f.Succeed(t, flow, "b")
	seen := make(map[int64]bool)
	for _, node := range []string{"a", "b"} {
		got, err := nextEvent(t, sub)
		if err != nil || got.Flow == nil || *got.Flow != flow || got.Execution != f.NodeID(flow, node) || seen[got.ID] {
			t.Fatalf("got %+v, %v", got, err)
		}
		seen[got.ID] = true
	}
	alone := f.Start(t)
	if err := f.CompleteExecution(t.Context(), alone.Lease, nil); err != nil {
		t.Fatal(err)
	}
	if got, err := nextEvent(t, sub); err != nil || got.Flow != nil || got.Execution != alone.ID {
		t.Errorf("got %+v, %v", got, err)
	}
}

// A reader that does not read keeps neither the connection nor the others from reading.
func TestSlowReaderDelaysNoOthers_V22(t *testing.T) {
	f := fixture.NewCloned(t)
	slow := subscribe(t, f.Engine, events.Leases(events.Filter{}), events.Options{Buffer: 4})
	quick := subscribe(t, f.Engine, events.Leases(events.Filter{}), events.Options{})
	const n = 3000
	insertMany := func() (first, last int64) {
		if err := f.Pool.QueryRow(t.Context(), `WITH inserted AS (
			INSERT INTO ff_lease_event (execution_id, event_type, occurred_at_ms, partition_key)
			SELECT gen_random_uuid()::text, 'acquired', 1, 7 FROM generate_series(1, $1) RETURNING event_id
		) SELECT min(event_id), max(event_id) FROM inserted`, n).Scan(&first, &last); err != nil {
			t.Fatal(err)
		}
		return first, last
	}
	first, last := insertMany()
	for event := first; event <= last; event++ {
		wantIDs(t, quick, event)
	}
	if slow.Lag() != n || slow.Position() != cursorBehind(first-1) {
		t.Errorf("the slow one is at %s, %d behind", slow.Position(), slow.Lag())
	}
	for event := first; event <= last; event++ {
		wantIDs(t, slow, event)
	}
	more := insertEvent(t, f.Pool, "lease", foreignEvents["lease"]) // it has come up again
	wantIDs(t, slow, more)
	wantIDs(t, quick, more)
	if slow.Lag() != 0 {
		t.Errorf("the slow one is %d behind", slow.Lag())
	}
}
