package upkeep

import (
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// written gives the first attempt of an execution n frames.
func written(t *testing.T, f *fixture.Fixture, x id.ExecutionID, n int) {
	t.Helper()
	f.Exec(t, `
		INSERT INTO ff_stream_frame (partition_key, execution_id, attempt_index, ts_ms, seq, fields, mode, created_at_ms)
		SELECT $1, $2, 0, 1, n, '{}', 'durable', 1 FROM generate_series(1, $3::integer) AS n`, x.Partition(), x.UUID(), n)
	f.Exec(t, "UPDATE ff_attempt SET ffx_stream_frames = $3 WHERE partition_key = $1 AND execution_id = $2", x.Partition(), x.UUID(), n)
}

func framesOf(t *testing.T, f *fixture.Fixture, x id.ExecutionID) int {
	t.Helper()
	return fixture.One[struct{ N int }](t, f.Pool, "SELECT count(*) AS n FROM ff_stream_frame WHERE partition_key = $1 AND execution_id = $2", x.Partition(), x.UUID()).N
}

// A transaction of retention deletes at most 20,000 frames. A longer stream goes in several, and its execution with the
// last one; others don't wait for it.
func TestRetentionDeletesLongStreamsInPages(t *testing.T) {
	f := trimmingFixture(t)
	eng := f.EngineOn(t, f.Pool, engine.Config{Retention: time.Minute})
	retain := func() {
		t.Helper()
		if _, err := upkeep.Of(eng).Retain(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
	}
	retain()
	long, short, plain := f.Ended(t), f.Ended(t), f.Ended(t)
	written(t, f, long, 45_000)
	written(t, f, short, 10)
	f.Advance(2 * time.Minute)
	for before := 45_000; before > 0; {
		retain()
		after := framesOf(t, f, long)
		if after >= before || before-after > 20_000 {
			t.Fatalf("%d frames were deleted, %d are left", before-after, after)
		}
		if before = after; before > 0 {
			f.WantKept(t, "kept gone", long, plain)
		}
		f.Advance(2 * time.Second)
	}
	f.WantKept(t, "gone gone gone", long, short, plain)
	if n := framesOf(t, f, short); n != 0 {
		t.Errorf("%d frames are left", n)
	}
}

// Streams that were trimmed have fewer frames than they wrote, and go at once.
func TestRetentionCountsTrimmedStreamsOnce(t *testing.T) {
	f := trimmingFixture(t)
	eng := f.EngineOn(t, f.Pool, engine.Config{Retention: time.Minute})
	if _, err := upkeep.Of(eng).Retain(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	x := f.Ended(t)
	written(t, f, x, 30)
	f.Exec(t, "UPDATE ff_attempt SET ffx_stream_frames = 1000000 WHERE execution_id = $1", x.UUID())
	f.Advance(2 * time.Minute)
	if _, err := upkeep.Of(eng).Retain(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	f.WantKept(t, "gone", x)
}

// A flow whose members have long streams is purged in several transactions.
func TestPurgeFlowsDeletesLongStreamsInPages(t *testing.T) {
	f := fixture.FlowsOn(trimmingFixture(t))
	f.Retain(t)
	flow := f.Draw(t, nil, "a>b")
	f.Succeed(t, flow, "a")
	f.Succeed(t, flow, "b")
	for _, row := range fixture.All[struct {
		ExecutionID id.ExecutionUUID
		Partition   int16
	}](t, f.Pool, "SELECT execution_id, partition_key AS partition FROM ff_exec_core WHERE flow_id = $1", flow) {
		f.Exec(t, `
			INSERT INTO ff_stream_frame (partition_key, execution_id, attempt_index, ts_ms, seq, fields, mode, created_at_ms)
			SELECT $1, $2, 0, 1, n, '{}', 'durable', 1 FROM generate_series(1, 25000) AS n`, row.Partition, row.ExecutionID)
		f.Exec(t, "UPDATE ff_attempt SET ffx_stream_frames = 25000 WHERE execution_id = $1", row.ExecutionID)
	}
	f.Advance(fixture.Week + time.Minute)
	f.Retain(t)
	purge(t, f.Fixture)
	wantFlow(t, f.Fixture, flow, false)
	if n := fixture.One[struct{ N int }](t, f.Pool, "SELECT count(*) AS n FROM ff_stream_frame").N; n != 0 {
		t.Errorf("%d frames are left", n)
	}
}
