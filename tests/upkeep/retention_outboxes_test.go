package upkeep

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// oneOutbox has the facts that a test knows of an outbox.
type oneOutbox struct{ name, table, at string }

var outboxes = []oneOutbox{
	{"completion", "ff_completion_event", "committed_at_ms"},
	{"lease", "ff_lease_event", "occurred_at_ms"},
	{"operator", "ff_operator_event", "occurred_at_ms"},
	{"signal", "ff_signal_event", "delivered_at_ms"},
}

// trim trims the outboxes until nothing is due, and returns how many events went.
func trim(t *testing.T, f *fixture.Fixture) int {
	t.Helper()
	total := 0
	for {
		n, err := upkeep.Of(f.Engine).TrimOutboxes(t.Context(), 100)
		if err != nil {
			t.Fatal(err)
		}
		if total += n; n < 100 {
			return total
		}
	}
}

// write makes n events of an outbox, that long ago, and returns their ids.
func (o oneOutbox) write(t *testing.T, f *fixture.Fixture, n int, ago time.Duration) []int64 {
	t.Helper()
	at := f.Time().Add(-ago).UnixMilli()
	var ids []int64
	for i := range n {
		row := fixture.Columns{"partition_key": 0, o.at: at}
		switch o.name {
		case "completion":
			row["execution_id"], row["outcome"], row["occurred_at_ms"], row["dispatched_at_ms"] = "00000000-0000-0000-0000-000000000001", "success", at, at
		case "lease":
			row["execution_id"], row["event_type"] = "x", "acquired"
		case "operator":
			row["execution_id"], row["event_type"] = "x", "replayed"
			if i%2 == 1 {
				row["execution_id"], row["event_type"] = nil, "action"
			}
		case "signal":
			row["execution_id"], row["signal_id"] = "x", "s"
		}
		f.Insert(t, o.table, row, nil)
		ids = append(ids, fixture.One[struct{ ID int64 }](t, f.Pool, "SELECT max(event_id) AS id FROM "+o.table).ID)
	}
	return ids
}

func (o oneOutbox) stored(t *testing.T, f *fixture.Fixture) []int64 {
	t.Helper()
	var ids []int64
	for _, row := range fixture.All[struct{ ID int64 }](t, f.Pool, "SELECT event_id AS id FROM "+o.table+" ORDER BY event_id") {
		ids = append(ids, row.ID)
	}
	return ids
}

func (o oneOutbox) wantStored(t *testing.T, f *fixture.Fixture, want ...int64) {
	t.Helper()
	if got := o.stored(t, f); !slices.Equal(got, want) {
		t.Errorf("%s: events %d are stored, want %d", o.name, got, want)
	}
}

// trimmingFixture is a fixture whose engine keeps events for a week.
func trimmingFixture(t *testing.T) *fixture.Fixture {
	t.Helper()
	f := fixture.NewCloned(t)
	f.Engine = f.EngineOn(t, f.Pool, engine.Config{OutboxRetention: fixture.Week})
	return f
}

// Events are deleted by age, in their order, and the floor records how far.
func TestTrimOutboxesByAge_V17(t *testing.T) {
	for _, o := range outboxes {
		t.Run(o.name, func(t *testing.T) {
			f := trimmingFixture(t)
			old := o.write(t, f, 3, fixture.Week)
			young := o.write(t, f, 1, fixture.Week-time.Second)
			behind := o.write(t, f, 1, fixture.Week)
			f.Retain(t)
			if n := trim(t, f); n != 3 {
				t.Errorf("trimmed %d, want 3", n)
			}
			o.wantStored(t, f, young[0], behind[0])
			status := retentionStatus(t, f).Outboxes
			at := slices.IndexFunc(status, func(s operator.OutboxStatus) bool { return s.Outbox == o.name })
			if len(status) != 4 || status[at].Floor != old[2] || !status[at].Oldest.Equal(f.Time().Add(time.Second-fixture.Week)) {
				t.Errorf("%+v", status)
			}
			f.Advance(time.Second)
			f.Retain(t)
			if n := trim(t, f); n != 2 {
				t.Errorf("trimmed %d, want 2", n)
			}
			o.wantStored(t, f)
		})
	}
}

// A time to come says nothing about the age of an event: it is as old as its neighbours.
func TestTrimOutboxesIgnoresFutureTimes(t *testing.T) {
	for _, o := range outboxes {
		t.Run(o.name, func(t *testing.T) {
			f := trimmingFixture(t)
			o.write(t, f, 1, fixture.Week)
			o.write(t, f, 1, -fixture.Week)
			o.write(t, f, 1, fixture.Week)
			last := o.write(t, f, 1, -fixture.Week)
			f.Retain(t)
			f.Exec(t, "UPDATE ffx_retention SET event_id = 1000000 WHERE source = 'ends'") // it would wait for that time
			if n := trim(t, f); n != 3 {
				t.Errorf("trimmed %d, want 3", n)
			}
			o.wantStored(t, f, last[0])
		})
	}
}

// A completion stays until it is dispatched, and until retention has come past it.
func TestTrimOutboxesKeepsNeededCompletions(t *testing.T) {
	f := trimmingFixture(t)
	o := outboxes[0]
	ids := o.write(t, f, 4, fixture.Week)
	f.Exec(t, "UPDATE ff_completion_event SET dispatched_at_ms = NULL WHERE event_id = $1", ids[0])
	f.Exec(t, "UPDATE ff_completion_event SET dispatched_at_ms = NULL, flow_id = gen_random_uuid() WHERE event_id = $1", ids[2])
	if n := trim(t, f); n != 0 {
		t.Errorf("before retention looked: %d", n)
	}
	f.Retain(t)
	if n := trim(t, f); n != 2 {
		t.Errorf("trimmed %d, want 2", n)
	}
	o.wantStored(t, f, ids[2], ids[3])
	f.Exec(t, "UPDATE ff_completion_event SET dispatched_at_ms = 1")
	f.Exec(t, "UPDATE ffx_retention SET event_id = $1 WHERE source = 'ends'", ids[2])
	if n := trim(t, f); n != 1 {
		t.Errorf("trimmed %d, want 1", n)
	}
	o.wantStored(t, f, ids[3])
}

// The position of a named consumer stops trimming, as long as it moves now and then.
func TestTrimOutboxesStopsAtConsumers(t *testing.T) {
	for _, o := range outboxes {
		t.Run(o.name, func(t *testing.T) {
			f := trimmingFixture(t)
			ids := o.write(t, f, 4, 2*fixture.Week)
			f.Retain(t)
			consumer := fixture.Columns{"outbox": o.name, "updated_at_ms": f.Clock.Load()}
			f.Insert(t, "ffx_outbox_consumer", consumer, fixture.Columns{"consumer": "slow", "event_id": ids[0]})
			f.Insert(t, "ffx_outbox_consumer", consumer, fixture.Columns{"consumer": "fast", "event_id": ids[2]})
			f.Insert(t, "ffx_outbox_consumer", consumer, fixture.Columns{"outbox": "another", "consumer": "slow", "event_id": int64(0)})
			trim(t, f)
			o.wantStored(t, f, ids[1:]...)
			f.Exec(t, "UPDATE ffx_outbox_consumer SET updated_at_ms = updated_at_ms - $1 WHERE consumer = 'slow'", fixture.Week.Milliseconds())
			trim(t, f)
			o.wantStored(t, f, ids[3])
		})
	}
}

// A process that starts over finds events committed long after their neighbours.
func TestTrimOutboxesFindsLateCommits(t *testing.T) {
	f := trimmingFixture(t)
	o := outboxes[1]
	ids := o.write(t, f, 3, fixture.Week)
	tx := f.BeginTx(t)
	fixture.ExecIn(t, tx, "UPDATE ff_lease_event SET event_id = event_id + 1000 WHERE event_id = $1", ids[0]) // stands for one that is not seen
	fixture.Commit(t, tx)
	f.Exec(t, "SELECT setval('ff_lease_event_event_id_seq', 2000)")
	trim(t, f)
	f.Insert(t, o.table, fixture.Columns{"event_id": ids[0], "execution_id": "x", "event_type": "acquired", "occurred_at_ms": int64(1), "partition_key": 0}, nil)
	trim(t, f)
	o.wantStored(t, f, ids[0])
	other := f.EngineOn(t, f.Pool, engine.Config{OutboxRetention: fixture.Week})
	if n, err := upkeep.Of(other).TrimOutboxes(t.Context(), 100); n != 1 || err != nil {
		t.Errorf("trimmed %d, error %v", n, err)
	}
	o.wantStored(t, f)
}

// A locked event ends the trimming of its outbox for now, and of no other.
func TestTrimOutboxesNeverWaits(t *testing.T) {
	f := trimmingFixture(t)
	for _, o := range outboxes {
		o.write(t, f, 2, fixture.Week)
	}
	f.Retain(t)
	tx := f.BeginTx(t)
	fixture.ExecIn(t, tx, "SELECT FROM ff_lease_event FOR UPDATE")
	if n, err := upkeep.Of(f.Engine).TrimOutboxes(t.Context(), 100); n != 6 || !errors.Is(err, fferr.ErrBusy) {
		t.Errorf("trimmed %d, error %v", n, err)
	}
	fixture.Commit(t, tx)
	if n := trim(t, f); n != 2 {
		t.Errorf("trimmed %d, want 2", n)
	}
}

func TestTrimOutboxesInATransaction(t *testing.T) {
	f := trimmingFixture(t)
	for _, o := range outboxes {
		o.write(t, f, 2, fixture.Week)
	}
	f.Retain(t)
	for _, end := range []string{"rollback", "commit"} {
		tx := f.BeginTx(t)
		if _, err := upkeep.Of(f.WithTx(tx)).TrimOutboxes(t.Context(), 0); !errors.Is(err, fferr.ErrInvalidInput) {
			t.Fatal(err)
		}
		if n, err := upkeep.Of(f.WithTx(tx)).TrimOutboxes(t.Context(), 100); n != 8 || err != nil {
			t.Fatalf("trimmed %d, error %v", n, err)
		}
		fixture.ExecIn(t, tx, end)
		for _, o := range outboxes {
			if n := len(o.stored(t, f)); n != map[string]int{"rollback": 2, "commit": 0}[end] {
				t.Errorf("after a %s: %d of %s", end, n, o.name)
			}
		}
	}
}

func TestTrimOutboxesKeepsForever(t *testing.T) {
	f := trimmingFixture(t)
	outboxes[1].write(t, f, 2, 100*fixture.Week)
	eng := f.EngineOn(t, f.Pool, engine.Config{OutboxRetention: policy.KeepForever})
	if n, err := upkeep.Of(eng).TrimOutboxes(t.Context(), 100); n != 0 || err != nil {
		t.Errorf("trimmed %d, error %v", n, err)
	}
	eng = f.EngineOn(t, f.Pool, engine.Config{OutboxRetention: 200 * fixture.Week})
	if n, err := upkeep.Of(eng).TrimOutboxes(t.Context(), 100); n != 0 || err != nil {
		t.Errorf("trimmed %d, error %v", n, err)
	}
}
