package events

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/events"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtest/progress"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// subscribe reads a source until the test ends.
func subscribe[E any](t *testing.T, eng *engine.Engine, src events.Source[E], o events.Options) *events.Subscription[E] {
	t.Helper()
	sub, err := events.Subscribe(t.Context(), eng, src, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sub.Close)
	return sub
}

// nextEvent waits for the next event, or the error in its place.
func nextEvent[E any](t *testing.T, sub *events.Subscription[E]) (E, error) {
	t.Helper()
	ctx, _, stop := progress.Context(t, "the next event")
	defer stop()
	event, err := sub.Next(ctx)
	if err != nil && ctx.Err() != nil {
		t.Fatalf("nothing came behind %s", sub.Position())
	}
	return event, err
}

// wantIDs waits for the next events and compares their ids.
func wantIDs[E interface{ Cursor() events.Cursor }](t *testing.T, sub *events.Subscription[E], want ...int64) {
	t.Helper()
	for _, event := range want {
		got, err := nextEvent(t, sub)
		if err != nil || got.Cursor() != cursorBehind(event) {
			t.Fatalf("got %+v, %v at %s, want event %d", got, err, sub.Position(), event)
		}
	}
}

func cursorBehind(event int64) events.Cursor { return events.Event{ID: event}.Cursor() }

// insertEvent inserts an event as another program does, with explicit columns and nothing set for its transaction.
func insertEvent(t *testing.T, on querierRow, outbox, values string, args ...any) (event int64) {
	t.Helper()
	columns := map[string]string{
		"completion": "partition_key, execution_id, flow_id, outcome, namespace, instance_tag, occurred_at_ms",
		"lease":      "execution_id, lease_id, event_type, occurred_at_ms, partition_key, namespace, instance_tag",
		"signal":     "execution_id, signal_id, waitpoint_id, source_identity, delivered_at_ms, partition_key, namespace, instance_tag",
		"operator":   "execution_id, event_type, details, occurred_at_ms, partition_key, namespace, instance_tag",
	}[outbox]
	sql := fmt.Sprintf("INSERT INTO ff_%s_event (%s) VALUES (%s) RETURNING event_id", outbox, columns, values)
	switch on := on.(type) {
	case *pgxpool.Pool:
		fixture.Handmade.Note(on.Config().ConnConfig.Database, sql, args)
	case pgx.Tx:
		fixture.Handmade.Note(on.Conn().Config().Database, sql, args)
	}
	if err := on.QueryRow(t.Context(), sql, args...).Scan(&event); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return event
}

// The values of an event of each outbox as the reference writes it.
var foreignEvents = map[string]string{
	"completion": "7, gen_random_uuid(), NULL, 'success', NULL, NULL, 1",
	"lease":      "gen_random_uuid()::text, NULL, 'acquired', 1, 7, 'default', NULL",
	"signal":     "gen_random_uuid()::text, gen_random_uuid()::text, NULL, NULL, 1, 7, 'default', NULL",
	"operator":   "gen_random_uuid()::text, 'replayed', '{\"branch\": \"normal\"}', 1, 7, 'default', NULL",
}

type querierRow interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// The reference's inserts wake readers, of all outboxes and partitions.
func TestEventsOfTheReferenceWakeReaders_V4_V20(t *testing.T) {
	f := fixture.NewCloned(t)
	completions := subscribe(t, f.Engine, events.Completions(events.Filter{}), events.Options{})
	leases := subscribe(t, f.Engine, events.Leases(events.Filter{}), events.Options{})
	signals := subscribe(t, f.Engine, events.Signals(events.Filter{}), events.Options{})
	calls := subscribe(t, f.Engine, events.OperatorCalls(events.Filter{}), events.Options{})
	wantIDs(t, completions, insertEvent(t, f.Pool, "completion", foreignEvents["completion"]))
	wantIDs(t, leases, insertEvent(t, f.Pool, "lease", foreignEvents["lease"]))
	wantIDs(t, signals, insertEvent(t, f.Pool, "signal", foreignEvents["signal"]))
	wantIDs(t, calls, insertEvent(t, f.Pool, "operator", foreignEvents["operator"]))

	narrow := subscribe(t, f.Engine, events.Leases(events.Filter{Partitions: []int16{0, 255}}), events.Options{})
	for _, partition := range []int{0, 7, 255} {
		event := insertEvent(t, f.Pool, "lease", "gen_random_uuid()::text, NULL, 'acquired', 1, $1, NULL, NULL", partition)
		wantIDs(t, leases, event)
		if partition != 7 {
			wantIDs(t, narrow, event)
		}
	}
}

// A program that listens itself, like readers of the reference, is woken by this library's commits, once for a batch.
func TestCommitsWakeListenersOfTheReference_V14(t *testing.T) {
	f := fixture.NewCloned(t)
	conn, err := pgx.Connect(t.Context(), f.Url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	hears := func(channel string) {
		t.Helper()
		ctx, _, stop := progress.Context(t, "a notification on "+channel)
		defer stop()
		for {
			n, err := conn.WaitForNotification(ctx)
			if err != nil || n.Payload != "" {
				t.Fatalf("heard %+v, %v, want %s", n, err, channel)
			}
			if n.Channel == channel { // and not one that was sent before
				return
			}
		}
	}
	listens := func(channel string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), "UNLISTEN *; LISTEN "+channel); err != nil {
			t.Fatal(err)
		}
	}
	claimed := f.StartMany(t, 20)
	f.Flush()
	listens("ff_completion")
	for _, c := range claimed {
		if err := f.CompleteExecution(t.Context(), c.Lease, nil); err != nil {
			t.Fatal(err)
		}
	}
	hears("ff_completion")
	f.Flush()
	c := f.Start(t)
	f.Flush()
	listens("ff_lease_event")
	if _, err := f.RenewLease(t.Context(), c.Lease, 0); err != nil {
		t.Fatal(err)
	}
	hears("ff_lease_event")

	for _, outbox := range []string{"completion", "lease", "signal", "operator"} {
		got := fixture.Texts(t, f.Pool, `SELECT (tgtype & 1)::text || ' ' || (pg_get_triggerdef(oid) LIKE '%ffx.defer_notify%')::text
			FROM pg_trigger WHERE tgrelid = $1::text::regclass AND tgname = $1 || '_notify_trg'`, "ff_"+outbox+"_event")
		if !slices.Equal(got, []string{"0 true"}) {
			t.Errorf("trigger of %s, row-level and deferrable: %q", outbox, got)
		}
	}
}

func TestEventsReportAGap(t *testing.T) {
	f := fixture.NewCloned(t)
	var last int64
	for range 5 {
		last = insertEvent(t, f.Pool, "operator", foreignEvents["operator"])
	}
	f.Exec(t, "DELETE FROM ff_operator_event WHERE event_id = $1", last-2)
	calls := events.OperatorCalls(events.Filter{})
	for _, from := range []events.Cursor{events.Beginning, cursorBehind(last - 4), cursorBehind(last - 3)} {
		_, err := events.Subscribe(t.Context(), f.Engine, calls, events.Options{After: from})
		gap, ok := errors.AsType[*events.GapError](err)
		if !ok || *gap != (events.GapError{Outbox: events.OperatorOutbox, Requested: from, Oldest: cursorBehind(last - 2)}) || !errors.Is(err, events.ErrGap) {
			t.Fatalf("from %s: got %v", from, err)
		}
		wantIDs(t, subscribe(t, f.Engine, calls, events.Options{After: gap.Oldest}), last-1, last)
	}
}

func TestEventsReportASequenceSetBack(t *testing.T) {
	f := fixture.NewCloned(t)
	var last int64
	for range 5 {
		last = insertEvent(t, f.Pool, "operator", foreignEvents["operator"])
	}
	f.Exec(t, "DELETE FROM ff_operator_event WHERE event_id > $1", last-3)
	f.Exec(t, "DELETE FROM ffx_outbox_floor")
	f.Exec(t, "SELECT setval('ff_operator_event_event_id_seq', $1)", last-3)
	_, err := events.Subscribe(t.Context(), f.Engine, events.OperatorCalls(events.Filter{}), events.Options{After: cursorBehind(last)})
	ahead, ok := errors.AsType[*events.CursorAheadError](err)
	if !ok || *ahead != (events.CursorAheadError{Outbox: events.OperatorOutbox, Cursor: cursorBehind(last), Database: cursorBehind(last - 3)}) {
		t.Errorf("got %v", err)
	}
}

// Events without namespace and tag are filtered by their execution; both forms of a tag match; no reader gets another
// tenant's events.
func TestEventFilters_V5_V6(t *testing.T) {
	f := fixture.NewCloned(t)
	of := func(namespace, tag string) id.ExecutionID {
		return f.Create(t, func(spec *engine.ExecutionSpec) {
			spec.Namespace, spec.Tags = id.Namespace(namespace), map[string]string{events.InstanceTagKey: tag, "app.other": "mine"}
		})
	}
	mine, theirs, gone := of("mine", "mine"), of("theirs", "theirs"), id.NewExecutionID(f.Lane, id.Partitions{})
	byNamespace := events.Filter{Namespace: "mine"}
	byTag := events.Filter{Tag: events.Tag{Key: events.InstanceTagKey, Value: "mine"}}
	both := events.Filter{Namespace: "mine", Tag: byTag.Tag}
	for _, outbox := range []string{"completion", "lease", "signal", "operator"} {
		values := map[string]string{
			"completion": "$1, $2::uuid, NULL, 'success', $3, $4, 1",
			"lease":      "($2::uuid)::text, NULL, 'acquired', 1, $1, $3, $4",
			"signal":     "($2::uuid)::text, gen_random_uuid()::text, NULL, NULL, 1, $1, $3, $4",
			"operator":   "($2::uuid)::text, 'replayed', NULL, 1, $1, $3, $4",
		}[outbox]
		insert := func(x id.ExecutionID, namespace, tag *string) int64 {
			return insertEvent(t, f.Pool, outbox, values, x.Partition(), x.UUID(), namespace, tag)
		}
		after := events.Beginning
		stored, live := make(map[string]func(...int64)), make(map[string]func(...int64))
		begin := func(into map[string]func(...int64)) {
			for name, filter := range map[string]events.Filter{"namespace": byNamespace, "tag": byTag, "both": both} {
				into[name] = reading(t, f.Engine, outbox, filter, after)
			}
		}
		begin(live)
		tagged := insert(mine, new("mine"), new("mine"))
		pair := insert(mine, new("mine"), new(events.InstanceTagKey+"=mine"))
		bare := insert(mine, nil, nil)
		onlyTag := insert(theirs, nil, new("mine"))
		onlyNamespace := insert(theirs, new("mine"), nil)
		insert(theirs, nil, nil)
		insert(theirs, new("theirs"), new("app.other=mine"))
		insert(gone, nil, nil)
		last := insert(mine, nil, nil)
		begin(stored)
		for _, way := range []map[string]func(...int64){live, stored} {
			way["namespace"](tagged, pair, bare, onlyNamespace, last)
			way["tag"](tagged, pair, bare, onlyTag, last)
			way["both"](tagged, pair, bare, last)
		}
	}
}

// reading begins to read an outbox and returns how to compare the next events.
func reading(t *testing.T, eng *engine.Engine, outbox string, filter events.Filter, after events.Cursor) func(want ...int64) {
	t.Helper()
	o := events.Options{After: after}
	switch outbox {
	case "completion":
		sub := subscribe(t, eng, events.Completions(filter), o)
		return func(want ...int64) { t.Helper(); wantIDs(t, sub, want...) }
	case "lease":
		sub := subscribe(t, eng, events.Leases(filter), o)
		return func(want ...int64) { t.Helper(); wantIDs(t, sub, want...) }
	case "signal":
		sub := subscribe(t, eng, events.Signals(filter), o)
		return func(want ...int64) { t.Helper(); wantIDs(t, sub, want...) }
	}
	sub := subscribe(t, eng, events.OperatorCalls(filter), o)
	return func(want ...int64) { t.Helper(); wantIDs(t, sub, want...) }
}

func TestEventsOfOperatorCallsOnFlows(t *testing.T) {
	f := fixture.FlowsOn(fixture.NewCloned(t))
	spec := fixture.Chart(nil, "a>b")
	spec.Namespace, spec.Tags = "tenant", map[string]string{events.InstanceTagKey: "i-7"}
	flow := f.NewFlowOf(t, spec)
	own := subscribe(t, f.Engine, events.OperatorCalls(events.Filter{Namespace: "tenant", Tag: events.Tag{Key: events.InstanceTagKey, Value: "i-7"}}), events.Options{})
	other := subscribe(t, f.Engine, events.OperatorCalls(events.Filter{Namespace: "other"}), events.Options{})
	ids := make([]int64, 0, 3)
	for _, c := range []struct{ namespace, tag *string }{{new("tenant"), new("i-7")}, {nil, nil}} {
		ids = append(ids, insertEvent(t, f.Pool, "operator", "($2::uuid)::text, 'flow_cancel_requested', NULL, 1, $1, $3, $4",
			f.NodeID(flow, "a").Partition(), flow, c.namespace, c.tag))
	}
	ids = append(ids, insertEvent(t, f.Pool, "operator", "gen_random_uuid()::text, 'replayed', NULL, 1, 0, 'tenant', 'i-7'"))
	wantIDs(t, own, ids...)
	fixture.Await(t, "the other reader to move past them", func() bool { return other.Position() == cursorBehind(ids[2]) })
}

func TestEventsReportUnknownAndCorruptRows_V15(t *testing.T) {
	f := fixture.NewCloned(t)
	live := subscribe(t, f.Engine, events.Leases(events.Filter{}), events.Options{})
	var first int64
	if err := pgx.BeginFunc(t.Context(), f.Pool, func(tx pgx.Tx) error {
		first = insertEvent(t, tx, "lease", "'no-uuid', NULL, 'acquired', 1, 7, NULL, NULL")
		for range 255 {
			insertEvent(t, tx, "lease", foreignEvents["lease"])
		}
		insertEvent(t, tx, "lease", "gen_random_uuid()::text, 'no-uuid', 'pawned', 1, 7, NULL, NULL")
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	resumed := subscribe(t, f.Engine, events.Leases(events.Filter{}), events.Options{After: cursorBehind(first - 1)})
	for name, sub := range map[string]*events.Subscription[events.Lease]{"live": live, "resumed": resumed} {
		var n int64
		for event, err := range sub.All() {
			if corrupt, ok := errors.AsType[*events.CorruptEventError](err); ok {
				if n != 0 || corrupt.EventID != first || corrupt.Field != "execution_id" || corrupt.Raw != "no-uuid" || corrupt.Cursor != sub.Position() {
					t.Errorf("%s: %+v in place %d", name, corrupt, n)
				}
			} else if err != nil || event.ID != first+n {
				t.Fatalf("%s: got %+v, %v in place %d", name, event, err, n)
			}
			if n == 256 {
				if event.Type != "pawned" || event.Lease != nil {
					t.Errorf("%s: the event of an unknown kind is %+v", name, event)
				}
				break
			}
			n++
		}
	}
}

// V18: a completion with a negative partition ended the subscription without an error.
func TestEventsReportANegativePartition_V18(t *testing.T) {
	f := fixture.NewCloned(t)
	sub := subscribe(t, f.Engine, events.Completions(events.Filter{}), events.Options{})
	insertEvent(t, f.Pool, "completion", "-7, gen_random_uuid(), NULL, 'success', NULL, NULL, 1")
	event := insertEvent(t, f.Pool, "completion", foreignEvents["completion"])
	if _, err := nextEvent(t, sub); !errors.Is(err, fferr.ErrCorruption) {
		t.Errorf("got %v", err)
	}
	wantIDs(t, sub, event)
}

func TestSubscriptionsLeaveNothingBehind_V12(t *testing.T) {
	f := fixture.NewCloned(t)
	r := f.Rival(t)
	sessions := func(like string) int {
		return len(fixture.Texts(t, f.Pool, "SELECT pid::text FROM pg_stat_activity WHERE application_name = $1 AND query ILIKE $2", r.Name, like))
	}
	if err := r.Pool.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	insertEvent(t, f.Pool, "lease", foreignEvents["lease"])
	goroutines := labelled(t)
	subs := make([]*events.Subscription[events.Lease], 100)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i := range subs {
		o := events.Options{}
		if i%2 == 1 {
			o.After = events.Beginning
		}
		var err error
		if subs[i], err = events.Subscribe(ctx, r.Engine, events.Leases(events.Filter{}), o); err != nil {
			t.Fatal(err)
		}
	}
	event := insertEvent(t, f.Pool, "lease", foreignEvents["lease"])
	for i, sub := range subs {
		if i%2 == 1 {
			wantIDs(t, sub, event-1)
		}
		wantIDs(t, sub, event)
	}
	fixture.Await(t, "one listening connection", func() bool { return sessions("listen %") == 1 })
	fixture.Await(t, "100 subscriptions to have few goroutines", func() bool { return goroutines() <= 10 })
	fixture.Await(t, "100 subscriptions to hold few connections", func() bool { return r.Pool.Stat().AcquiredConns() <= 2 })
	if stats := events.Stats(r.Engine); len(stats) != 1 || stats[0].Subscriptions != 100 || stats[0].Position != cursorBehind(event) {
		t.Errorf("stats %+v", stats)
	}
	for i, sub := range subs {
		if i == 50 {
			cancel() // the others
		}
		sub.Close()
		sub.Close()
	}
	fixture.Await(t, "no listening connection", func() bool { return sessions("listen %") == 0 })
	fixture.Await(t, "no connection to be held", func() bool { return r.Pool.Stat().AcquiredConns() == 0 })
	if stats := events.Stats(r.Engine); len(stats) != 0 {
		t.Errorf("stats %+v", stats)
	}
	fixture.Await(t, "the goroutines to end", func() bool { return goroutines() == 1 })
}

// labelled returns a count of the goroutines that the test's own has started since, directly or not, and of itself: those
// of other tests come and go.
func labelled(t *testing.T) func() int {
	t.Helper()
	pprof.SetGoroutineLabels(pprof.WithLabels(t.Context(), pprof.Labels("test", t.Name())))
	// How many have a stack and these labels.
	counted := regexp.MustCompile(`(?m)^(\d+) @.*\n# labels: {"test":"` + t.Name() + `"}$`)
	return func() (n int) {
		t.Helper()
		var profile strings.Builder
		if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
			t.Fatal(err)
		}
		for _, match := range counted.FindAllStringSubmatch(profile.String(), -1) {
			same, err := strconv.Atoi(match[1])
			if err != nil {
				t.Fatal(err)
			}
			n += same
		}
		return n
	}
}

func TestEventCursorsRoundTrip(t *testing.T) {
	f := fixture.NewCloned(t)
	leases := events.Leases(events.Filter{})
	first := insertEvent(t, f.Pool, "lease", foreignEvents["lease"])
	second := insertEvent(t, f.Pool, "lease", foreignEvents["lease"])
	fromNow := subscribe(t, f.Engine, leases, events.Options{})
	if fromNow.Position() != cursorBehind(second) {
		t.Errorf("from now begins at %s", fromNow.Position())
	}
	stored, err := events.ParseCursor(cursorBehind(first).Bytes())
	if err != nil {
		t.Fatal(err)
	}
	resumed := subscribe(t, f.Engine, leases, events.Options{After: stored})
	whole := subscribe(t, f.Engine, leases, events.Options{After: events.Beginning})
	third := insertEvent(t, f.Pool, "lease", foreignEvents["lease"])
	wantIDs(t, fromNow, third)
	wantIDs(t, resumed, second, third)
	wantIDs(t, whole, first, second, third)

	_, err = events.Subscribe(t.Context(), f.Engine, leases, events.Options{After: cursorBehind(third + 1)})
	if ahead, ok := errors.AsType[*events.CursorAheadError](err); !ok || ahead.Database != cursorBehind(third) {
		t.Errorf("above the sequence: %v", err)
	}
	for _, o := range []events.Options{{Buffer: -1}, {Buffer: 65537}} {
		_, err := events.Subscribe(t.Context(), f.Engine, leases, o)
		fixture.WantInputError(t, err, "Options.Buffer")
	}
	_, err = events.Subscribe(t.Context(), f.Engine, events.Leases(events.Filter{Tag: events.Tag{Key: "app.tenant", Value: "7"}}), events.Options{})
	fixture.WantInputError(t, err, "Filter.Tag.Key")
	_, err = events.Subscribe(t.Context(), f.Engine, events.Source[events.Lease]{}, events.Options{})
	fixture.WantInputError(t, err, "source")
	tx := f.BeginTx(t)
	_, err = events.Subscribe(t.Context(), f.WithTx(tx), leases, events.Options{})
	fixture.WantInputError(t, err, "engine")
	if _, err = events.Subscribe(t.Context(), f.Engine, events.InstanceTags(events.Filter{}), events.Options{}); !errors.Is(err, fferr.ErrUnsupported) {
		t.Errorf("instance tags: %v", err)
	}
}

// Every kind of event is decoded as it is stored.
func TestEventsOfEveryKindAreDecoded(t *testing.T) {
	f := fixture.NewCloned(t)
	leases := subscribe(t, f.Engine, events.Leases(events.Filter{}), events.Options{})
	for _, kind := range []state.LeaseEventType{"acquired", "renewed", "expired", "reclaimed", "revoked"} {
		insertEvent(t, f.Pool, "lease", "gen_random_uuid()::text, 'lease-7', $1, 1, 7, 'default', NULL", string(kind))
		got, err := nextEvent(t, leases)
		if err != nil || got.Type != kind || got.Lease != nil || (got.RevokedBy == "operator") != (kind == "revoked") || got.Execution.Partition() != 7 ||
			!got.At.Equal(time.UnixMilli(1)) {
			t.Errorf("%s: got %+v, %v", kind, got, err)
		}
	}
	signals := subscribe(t, f.Engine, events.Signals(events.Filter{}), events.Options{})
	insertEvent(t, f.Pool, "signal", foreignEvents["signal"])
	if got, err := nextEvent(t, signals); err != nil || got.Effect != events.SignalSatisfied || got.EffectStored || got.Signal.IsZero() {
		t.Errorf("got %+v, %v", got, err)
	}
	calls := subscribe(t, f.Engine, events.OperatorCalls(events.Filter{}), events.Options{})
	x := f.Create(t)
	if err := operator.Prioritize(t.Context(), f.Engine, x, 7); err != nil {
		t.Fatal(err)
	}
	if got, err := nextEvent(t, calls); err != nil || got.Execution != x || got.PriorityChanged == nil || *got.PriorityChanged != (events.PriorityChanged{Old: 0, New: 7}) {
		t.Errorf("got %+v, %v", got, err)
	}
}

// The reader's context, Close and the context of a call each end what they should.
func TestSubscriptionEnds(t *testing.T) {
	f := fixture.NewCloned(t)
	leases := events.Leases(events.Filter{})
	living, end := context.WithCancel(t.Context())
	sub, err := events.Subscribe(living, f.Engine, leases, events.Options{})
	if err != nil {
		t.Fatal(err)
	}
	call, abandon := context.WithCancel(t.Context())
	abandon()
	if _, err := sub.Next(call); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	event := insertEvent(t, f.Pool, "lease", foreignEvents["lease"])
	wantIDs(t, sub, event)
	wait := fixture.Async(t, func(ctx context.Context) error { _, err := sub.Next(ctx); return err })
	end()
	if err := wait(); !errors.Is(err, context.Canceled) || sub.Position() != cursorBehind(event) {
		t.Errorf("got %v at %s", err, sub.Position())
	}
	sub.Close()

	sub = subscribe(t, f.Engine, leases, events.Options{After: cursorBehind(event)})
	looped := fixture.Async(t, func(context.Context) []error {
		var errs []error
		for _, err := range sub.All() {
			errs = append(errs, err)
		}
		return errs
	})
	sub.Close()
	if errs := looped(); len(errs) > 0 || sub.Position() != cursorBehind(event) {
		t.Errorf("the loop got %v at %s", errs, sub.Position())
	}
	if _, err := sub.Next(t.Context()); !errors.Is(err, events.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

// A database that cannot be reached is said to be so, at once.
func TestSubscribeWithoutADatabase(t *testing.T) {
	f := fixture.New(t)
	pool := fixture.OpenPool(t, f.Url, func(cfg *pgxpool.Config) { cfg.ConnConfig.Port, cfg.ConnConfig.Fallbacks = 1, nil })
	eng := f.EngineOn(t, pool, engine.Config{NoListener: true})
	_, err := events.Subscribe(t.Context(), eng, events.Signals(events.Filter{}), events.Options{})
	if !errors.Is(err, fferr.ErrUnavailable) || !strings.HasPrefix(err.Error(), "pg.subscribe_signal_delivery: ") {
		t.Errorf("got %v", err)
	}
}
