package events

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/outbox"
	"github.com/flowfabric/flowfabric-go/state"
)

func TestCursorBytes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, bytes string
		want        Cursor
		refused     string
	}{
		{"empty", "", Cursor{}, ""},
		{"of the first event", "020000000000000001", cursorOf(1), ""},
		{"before it", "020000000000000000", Beginning, ""},
		{"of the last event", "027fffffffffffffff", cursorOf(1<<63 - 1), ""},
		{"of another backend", "01000102030405060708090a0b0c0d0e0f", Cursor{}, "does not belong to the Postgres backend"},
		{"8 bytes", "0200000000000001", Cursor{}, "does not belong to the Postgres backend"},
		{"10 bytes", "02000000000000000001", Cursor{}, "does not belong to the Postgres backend"},
		{"negative", "02ffffffffffffffff", Cursor{}, "cursor"},
	} {
		stored, err := hex.DecodeString(c.bytes)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseCursor(stored)
		if c.refused != "" {
			if !errors.Is(err, fferr.ErrInvalidInput) || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%s: got %v, want a refusal with %q", c.name, err, c.refused)
			}
			continue
		}
		if err != nil || got != c.want || !bytes.Equal(got.Bytes(), stored) || got.String() != c.bytes || got.IsZero() != (c.bytes == "") {
			t.Errorf("%s: %v %v, stored again as %x", c.name, got, err, got.Bytes())
		}
		text, err := json.Marshal(got)
		var back Cursor
		if err != nil || json.Unmarshal(text, &back) != nil || back != got {
			t.Errorf("%s: %v through JSON is %v: %s, %v", c.name, got, back, text, err)
		}
	}
	var c Cursor
	if err := c.UnmarshalText([]byte("0z")); !errors.Is(err, fferr.ErrInvalidInput) {
		t.Errorf("got %v", err)
	}
}

func TestFilterRefusesBadInput(t *testing.T) {
	t.Parallel()
	for field, refused := range map[string]Source[Lease]{
		"Filter.Tag.Key":     Leases(Filter{Tag: Tag{Key: "app.tenant", Value: "7"}}),
		"Filter.Partitions":  Leases(Filter{Partitions: []int16{7, -1}}),
		"Filter.NonTerminal": Leases(Filter{NonTerminal: true}),
		"source":             {},
	} {
		input, ok := errors.AsType[*fferr.InputError](refused.check(new(engine.Engine)))
		if !ok || input.Field != field {
			t.Errorf("%s: got %v", field, refused.check(new(engine.Engine)))
		}
	}
	if err := Completions(Filter{NonTerminal: true, Namespace: "n", Tag: Tag{InstanceTagKey, "i"}, Partitions: []int16{0}}).err; err != nil {
		t.Error(err)
	}
	for field, refused := range map[string]Source[Lease]{
		"Filter.Tag.Value": Leases(Filter{Tag: Tag{Key: InstanceTagKey}}),
		"Filter.Namespace": Leases(Filter{Namespace: "a\x00b"}),
	} {
		if input, ok := errors.AsType[*fferr.InputError](refused.err); !ok || input.Field != field {
			t.Errorf("%s: got %v", field, refused.err)
		}
	}
	if !errors.Is(InstanceTags(Filter{}).err, fferr.ErrUnsupported) {
		t.Error("somebody tells of instance tags")
	}
}

const anID = "0190a0a0-1111-7222-8333-444455556666"

func row(change func(*outbox.Row)) *outbox.Row {
	r := &outbox.Row{ID: 7, Partition: 3, Execution: anID, At: 1234}
	change(r)
	return r
}

func event(t *testing.T) Event {
	t.Helper()
	u, err := id.ParseExecutionUUID(anID)
	if err != nil {
		t.Fatal(err)
	}
	return Event{ID: 7, Execution: id.ExecutionIDFromRow(3, u), At: time.UnixMilli(1234)}
}

func same(t *testing.T, name string, got any, err error, want any) {
	t.Helper()
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %+v, %v\nwant %+v", name, got, err, want)
	}
}

func TestDecodeAllEvents(t *testing.T) {
	t.Parallel()
	e := event(t)
	e.Namespace, e.InstanceTag = new(id.Namespace("n")), new("i")
	for _, tag := range []string{"i", "cairn.instance_id=i"} {
		got, err := leaseOf(row(func(r *outbox.Row) { r.Namespace, r.InstanceTag = new("n"), new(tag) }))
		same(t, tag, got.Event, err, e)
	}
	if e.Cursor() != cursorOf(7) || e.Cursor().String() != "020000000000000007" {
		t.Errorf("its cursor is %v", e.Cursor())
	}
}

func TestOutcomesOfCompletionsAreRead_V7(t *testing.T) {
	t.Parallel()
	for stored, want := range map[string]state.CompletionOutcome{
		"success": state.CompletionSuccess, "failed": state.CompletionFailure, "failure": state.CompletionFailure, "cancelled": state.CompletionCancelled, "expired": state.CompletionExpired, "skipped": state.CompletionSkipped,
		"resumable": state.CompletionResumable, "evaporated": "evaporated",
	} {
		got, err := completionOf(row(func(r *outbox.Row) { r.Kind, r.CommittedAt = stored, 99 }))
		same(t, stored, got, err, Completion{Event: event(t), Outcome: want, Inserted: time.UnixMilli(99)})
		if got.Outcome.Terminal() != (stored != "resumable") {
			t.Errorf("%s is terminal: %t", stored, got.Outcome.Terminal())
		}
	}
	if got := Completions(Filter{}).filter.Without; got != "resumable" {
		t.Errorf("a reader of completions leaves out %q", got)
	}
}

func TestDecodeLeases(t *testing.T) {
	t.Parallel()
	lease, err := id.ParseLeaseID(anID)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		row  func(*outbox.Row)
		want Lease
	}{
		{"acquired", func(r *outbox.Row) { r.Kind, r.Lease, r.Worker = "acquired", new(anID), new("w") }, Lease{Type: state.LeaseEventAcquired, Lease: &lease, Worker: new(id.WorkerInstanceID("w"))}},
		{"renewed", func(r *outbox.Row) { r.Kind = "renewed" }, Lease{Type: state.LeaseEventRenewed}},
		{"expired", func(r *outbox.Row) { r.Kind, r.Worker = "expired", new("") }, Lease{Type: state.LeaseEventExpired}},
		{"reclaimed, no uuid", func(r *outbox.Row) { r.Kind, r.Lease = "reclaimed", new("lease-7") }, Lease{Type: state.LeaseEventReclaimed}},
		{"revoked by another program", func(r *outbox.Row) { r.Kind = "revoked" }, Lease{Type: state.LeaseEventRevoked, RevokedBy: "operator"}},
		{"revoked", func(r *outbox.Row) { r.Kind, r.RevokedBy = "revoked", new("reconciler") }, Lease{Type: state.LeaseEventRevoked, RevokedBy: "reconciler"}},
		{"unknown", func(r *outbox.Row) { r.Kind = "pawned" }, Lease{Type: "pawned"}},
	} {
		got, err := leaseOf(row(c.row))
		c.want.Event = event(t)
		same(t, c.name, got, err, c.want)
	}
}

func TestDecodeSignals(t *testing.T) {
	t.Parallel()
	signal, err := id.ParseSignalID(anID)
	if err != nil {
		t.Fatal(err)
	}
	waitpoint := id.WaitpointID(signal)
	for _, c := range []struct {
		name string
		row  func(*outbox.Row)
		want Signal
	}{
		{"of another program", func(r *outbox.Row) {}, Signal{Effect: SignalSatisfied}},
		{"whole", func(r *outbox.Row) {
			r.Waitpoint, r.Source, r.Effect = new(anID), new("me"), new("appended")
		}, Signal{Waitpoint: &waitpoint, Source: new("me"), Effect: SignalAppended, EffectStored: true}},
		{"buffered", func(r *outbox.Row) { r.Effect = new("buffered") }, Signal{Effect: SignalBuffered, EffectStored: true}},
		{"satisfied", func(r *outbox.Row) { r.Effect = new("satisfied") }, Signal{Effect: SignalSatisfied, EffectStored: true}},
		{"unknown", func(r *outbox.Row) { r.Waitpoint, r.Effect = new("w"), new("lost") }, Signal{Effect: "lost", EffectStored: true}},
	} {
		got, err := signalOf(row(func(r *outbox.Row) { r.Signal = anID; c.row(r) }))
		c.want.Event, c.want.Signal = event(t), signal
		same(t, c.name, got, err, c.want)
	}
	_, err = signalOf(row(func(r *outbox.Row) { r.Signal = "s" }))
	wantCorrupt(t, named(outbox.Signal, err), SignalOutbox, "signal_id", "s")
}

func TestDecodeOperatorCalls(t *testing.T) {
	t.Parallel()
	flow, err := id.ParseFlowID(anID)
	if err != nil {
		t.Fatal(err)
	}
	ofFlow := event(t)
	ofFlow.Execution = id.ExecutionID{}
	for _, c := range []struct {
		kind, details string
		want          OperatorCall
	}{
		{"priority_changed", `{"old_priority": 3, "new_priority": -1}`, OperatorCall{Event: event(t), PriorityChanged: &PriorityChanged{3, -1}}},
		{"replayed", `{"branch": "normal"}`, OperatorCall{Event: event(t), Replayed: &Replayed{Branch: "normal"}}},
		{"replayed", `{"branch": "skipped_flow_member", "groups_reset": 2}`, OperatorCall{Event: event(t), Replayed: &Replayed{"skipped_flow_member", 2}}},
		{"flow_cancel_requested", `{"flow_id": "x", "cancellation_policy": "cancel_all", "reason": "r", "member_count": 4}`,
			OperatorCall{Event: ofFlow, FlowCancel: &FlowCancel{flow, "cancel_all", "r", 4}}},
		{"flow_cancel_requested", "", OperatorCall{Event: ofFlow, FlowCancel: &FlowCancel{Flow: flow}}},
		{"action", `{"by": "ada", "action": "limit.set", "object": "sync/tenant", "detail": "--units 2"}`,
			OperatorCall{Event: event(t), Action: &Action{"ada", "limit.set", "sync/tenant", "--units 2"}}},
		{"action", `{"by": "ada", "to": 7}`, OperatorCall{Event: event(t), Action: &Action{By: "ada"}}},
		{"promoted", `[]`, OperatorCall{Event: event(t)}},
	} {
		got, err := operatorCallOf(row(func(r *outbox.Row) { r.Kind, r.Details = c.kind, []byte(c.details) }))
		c.want.Type, c.want.Details = state.OperatorEventType(c.kind), json.RawMessage(c.details)
		same(t, c.kind+" "+c.details, got, err, c.want)
	}
	_, err = operatorCallOf(row(func(r *outbox.Row) { r.Kind, r.Details = "priority_changed", []byte(`{"old_priority":"high"}`) }))
	wantCorrupt(t, named(outbox.Operator, err), OperatorOutbox, "details", `{"old_priority":"high"}`)
	_, err = operatorCallOf(row(func(r *outbox.Row) { r.Kind, r.Details = "action", []byte(`{"by":7}`) }))
	wantCorrupt(t, named(outbox.Operator, err), OperatorOutbox, "details", `{"by":7}`)
	_, err = operatorCallOf(row(func(r *outbox.Row) { r.Execution, r.Kind = "x", "action" }))
	wantCorrupt(t, named(outbox.Operator, err), OperatorOutbox, "execution_id", "x")

	// Only an action may be without an execution.
	without := event(t)
	without.Execution = id.ExecutionID{}
	got, err := operatorCallOf(row(func(r *outbox.Row) { r.Execution, r.Kind, r.Details = "", "action", []byte(`{"by":"ada"}`) }))
	same(t, "an action without an execution", got, err,
		OperatorCall{Event: without, Type: state.OperatorEventAction, Action: &Action{By: "ada"}, Details: json.RawMessage(`{"by":"ada"}`)})
}

func wantCorrupt(t *testing.T, err error, from Outbox, field, raw string) {
	t.Helper()
	want := &CorruptEventError{Outbox: from, EventID: 7, Cursor: cursorOf(7), Field: field, Raw: raw}
	if got, ok := errors.AsType[*CorruptEventError](err); !ok || *got != *want || !errors.Is(err, fferr.ErrCorruption) || ends(err) {
		t.Errorf("got %v, want %+v", err, want)
	}
}

func TestCorruptRowsAreErrors_V15_V18(t *testing.T) {
	t.Parallel()
	_, err := completionOf(row(func(r *outbox.Row) { r.Partition = -1 }))
	wantCorrupt(t, named(outbox.Completion, err), CompletionOutbox, "partition_key", "-1")
	_, err = leaseOf(row(func(r *outbox.Row) { r.Partition = 32768 }))
	wantCorrupt(t, named(outbox.Lease, err), LeaseOutbox, "partition_key", "32768")
	_, err = signalOf(row(func(r *outbox.Row) { r.Execution, r.Signal = "secret", anID }))
	wantCorrupt(t, named(outbox.Signal, err), SignalOutbox, "execution_id", "secret")
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the error shows the stored value: %v", err)
	}
	_, err = operatorCallOf(row(func(r *outbox.Row) { r.Execution, r.Kind = "", "flow_cancel_requested" }))
	wantCorrupt(t, named(outbox.Operator, err), OperatorOutbox, "execution_id", "")
}

func TestReaderErrors(t *testing.T) {
	t.Parallel()
	drift := errors.New("column is missing")
	for _, c := range []struct {
		err  error
		is   error
		ends bool
		want error
	}{
		{&outbox.GapError{Outbox: outbox.Lease, Position: 1, Floor: 9}, ErrGap, true, &GapError{LeaseOutbox, cursorOf(1), cursorOf(9)}},
		{&outbox.AheadError{Outbox: outbox.Lease, Position: 9, Database: 1}, ErrCursorAhead, true, &CursorAheadError{LeaseOutbox, cursorOf(9), cursorOf(1)}},
		{&outbox.DisconnectedError{Outbox: outbox.Lease, Position: 9}, nil, false, &DisconnectedError{LeaseOutbox, cursorOf(9)}},
		{&outbox.UnreadableError{Outbox: outbox.Lease, Position: 9, Err: drift}, fferr.ErrCorruption, true, &UnreadableError{LeaseOutbox, cursorOf(9), drift}},
		{outbox.ErrClosed, ErrClosed, true, ErrClosed},
		{context.Canceled, context.Canceled, true, context.Canceled},
	} {
		got := publicError(c.err)
		if !reflect.DeepEqual(got, c.want) || c.is != nil && !errors.Is(got, c.is) || ends(got) != c.ends || got.Error() == "" {
			t.Errorf("%v: got %v, want %v", c.err, got, c.want)
		}
	}
	if !errors.Is(publicError(&outbox.StandbyError{}), fferr.ErrUnavailable) {
		t.Error("a standby is available")
	}
	if got := subscribeError(t.Context(), outbox.Lease, drift); !errors.Is(got, fferr.ErrUnavailable) || !strings.HasPrefix(got.Error(), "pg.subscribe_lease_history: ") {
		t.Errorf("without a database: %v", got)
	}
	if ends(nil) {
		t.Error("nil ends a subscription")
	}
}
