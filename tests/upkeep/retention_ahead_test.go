package upkeep

import (
	"slices"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// year is how far the clock of these tests was ahead.
const year = 365 * fixture.Day

// endedAhead ends an execution by a clock that is a year ahead.
func endedAhead(t *testing.T, f *fixture.Fixture) id.ExecutionID {
	t.Helper()
	x := f.Ended(t)
	ahead := f.Time().Add(year).UnixMilli()
	f.Exec(t, "UPDATE ff_completion_event SET committed_at_ms = $1 WHERE execution_id = $2", ahead, x.UUID())
	f.Exec(t, "UPDATE ff_exec_core SET terminal_at_ms = $1 WHERE partition_key = $2 AND execution_id = $3", ahead, x.Partition(), x.UUID())
	return x
}

// An end by a clock that was ahead holds up no other end. Its execution is kept from the first look on, once.
func TestRetentionPassesEndsOfTheFuture(t *testing.T) {
	f := trimmingFixture(t)
	before, ahead, behind := f.Ended(t), endedAhead(t, f), f.Ended(t)
	f.Advance(fixture.Week)
	f.Retain(t)
	f.WantKept(t, "gone kept gone", before, ahead, behind)
	if status := retentionStatus(t, f); status.Waiting != 1 || !status.NextEnd.IsZero() {
		t.Errorf("%+v, want one that waits", status)
	}
	f.Advance(fixture.Week - time.Second)
	f.Retain(t)
	f.WantKept(t, "kept", ahead)
	f.Advance(time.Minute)
	f.Retain(t)
	f.WantKept(t, "gone", ahead)
}

// An end of the future is as old as the one behind it: it waits for that one, and is overdue with it.
func TestRetentionJudgesEndsOfTheFutureByTheirNeighbours(t *testing.T) {
	f := trimmingFixture(t)
	ahead := endedAhead(t, f)
	f.Advance(time.Hour)
	behind := f.Ended(t)
	ended := f.Time()
	f.Exec(t, "UPDATE ff_completion_event SET committed_at_ms = $1 WHERE execution_id = $2", ended.UnixMilli(), behind.UUID())
	f.Advance(fixture.Week - time.Second)
	fixture.Run(t, upkeep.Of(f.Engine).Retain, 0)
	if status := retentionStatus(t, f); status.Behind != 0 || !status.NextEnd.Equal(ended) {
		t.Errorf("behind %v, next end %v; want 0, %v", status.Behind, status.NextEnd, ended)
	}
	f.Advance(time.Minute)
	if status := retentionStatus(t, f); status.Behind != time.Minute-time.Second {
		t.Errorf("behind %v, want 59s", status.Behind)
	}
	fixture.Run(t, upkeep.Of(f.Engine).Retain, 2)
	f.WantKept(t, "kept gone", ahead, behind)
	if status := retentionStatus(t, f); status.Behind != 0 {
		t.Errorf("behind %v, want 0", status.Behind)
	}
}

// A run of ends of the future that is longer than a batch is passed too, with any events after it.
func TestRetentionPassesBatchesOfTheFuture(t *testing.T) {
	for _, c := range []struct {
		name       string
		old, young int
		want       int
	}{
		{"then one old", 1, 0, 31},
		{"then old, then young", 3, 2, 33},
		{"then many old, then many young", 40, 300, 70},
		{"then young", 0, 3, 0},
		{"then nothing", 0, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := trimmingFixture(t)
			o := outboxes[0]
			o.write(t, f, 30, -year)
			o.write(t, f, c.old, fixture.Week)
			o.write(t, f, c.young, time.Hour)
			looked := 0
			for {
				n, err := upkeep.Of(f.Engine).Retain(t.Context(), 4)
				if err != nil {
					t.Fatal(err)
				}
				if looked += n; n == 0 {
					break
				}
			}
			if looked != c.want {
				t.Errorf("looked at %d ends, want %d", looked, c.want)
			}
		})
	}
}

// The same in each outbox: an event dated in the future is trimmed with those written after it.
func TestTrimOutboxesPassesBatchesOfTheFuture(t *testing.T) {
	for _, o := range outboxes {
		t.Run(o.name, func(t *testing.T) {
			f := trimmingFixture(t)
			o.write(t, f, 35, -year)
			o.write(t, f, 1, fixture.Week+time.Hour)
			kept := o.write(t, f, 1, time.Hour)
			kept = append(kept, o.write(t, f, 15, -year)...)
			oldest := func() time.Time {
				status := retentionStatus(t, f).Outboxes
				return status[slices.IndexFunc(status, func(s operator.OutboxStatus) bool { return s.Outbox == o.name })].Oldest
			}
			if got := oldest(); !got.Equal(f.Time().Add(-fixture.Week - time.Hour)) {
				t.Errorf("the oldest is of %v, want as old as the first that does not say it is of the future", got)
			}
			looked(t, f)
			deleted := 0
			for {
				n, err := upkeep.Of(f.Engine).TrimOutboxes(t.Context(), 1)
				if err != nil {
					t.Fatal(err)
				}
				if deleted += n; n == 0 {
					break
				}
			}
			if deleted != 36 {
				t.Errorf("trimmed %d, want 36", deleted)
			}
			o.wantStored(t, f, kept...)
			if got := oldest(); !got.Equal(f.Time().Add(-time.Hour)) {
				t.Errorf("the oldest is of %v, want an hour ago", got)
			}
		})
	}
}
