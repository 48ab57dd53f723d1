package streams

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/stream"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// One locked attempt delays no other stream, and its own frames are refused as busy.
func TestAppendEachSetsLockedStreamsAside(t *testing.T) {
	f := fixture.New(t)
	work := f.StartMany(t, 4)
	stale := work[2].Lease
	stale.Epoch--
	batches := []stream.Batch{
		{Lease: work[0].Lease, Frames: texts("a")},
		{Lease: work[1].Lease, Frames: texts("a")},
		{Lease: stale, Frames: texts("a")},
		{Lease: work[3].Lease, Frames: fixture.Frames},
		{Lease: work[0].Lease, Frames: texts("b")},
		{Lease: work[2].Lease},
	}
	tx := f.BeginTx(t)
	fixture.LockAttempt(t, tx, work[1].ID, 0)
	for i, want := range []int64{1, 2} {
		outcomes, err := stream.AppendEach(t.Context(), f.Engine, batches)
		if err != nil {
			t.Fatal(err)
		}
		for n, wanted := range []error{nil, fferr.ErrBusy, fferr.ErrStaleLease, nil, fferr.ErrInvalidInput, fferr.ErrInvalidInput} {
			if i == 1 && n == 1 {
				wanted = nil
			}
			if !errors.Is(outcomes[n].Err, wanted) {
				t.Errorf("item %d: %v, want %v", n, outcomes[n].Err, wanted)
			}
		}
		if outcomes[0].Value.Frames != want || outcomes[3].Value.Frames != 3*want || outcomes[3].Value.SummaryVersion != int(want) {
			t.Errorf("%+v", outcomes)
		}
		if i == 0 {
			fixture.Commit(t, tx)
		}
	}
	wantFrames(t, f, work[1].ID, "a")
	wantFrames(t, f, work[2].ID)
}

// Batches that name the same streams in opposite order lock them in one order, so neither waits for the other in a circle.
func TestAppendEachLocksInOneOrder(t *testing.T) {
	f := fixture.New(t)
	work := f.StartMany(t, 8)
	batch := func(reversed bool) []stream.Batch {
		var batches []stream.Batch
		for _, w := range work {
			batches = append(batches, stream.Batch{Lease: w.Lease, Frames: texts("a")})
		}
		if reversed {
			slices.Reverse(batches)
		}
		return batches
	}
	rivals := [2]*fixture.Rival{f.Rival(t), f.Rival(t)}
	var waits []func() error
	for i, r := range rivals {
		waits = append(waits, fixture.Async(t, func(ctx context.Context) error {
			pending := batch(i == 1)
			for range 20 {
				outcomes, err := stream.AppendEach(ctx, r.Engine, pending)
				if err != nil {
					return err
				}
				for _, o := range outcomes {
					if o.Err != nil && !errors.Is(o.Err, fferr.ErrBusy) {
						return o.Err
					}
				}
			}
			return nil
		}))
	}
	for _, wait := range waits {
		if err := wait(); err != nil {
			t.Error(err)
		}
	}
	for _, w := range work {
		wantFrames(t, f, w.ID, slices.Repeat([]string{"a"}, len(read(t, f.Engine, w.ID).Frames))...)
	}
}

// More than a statement takes are sent in several, and every stream gets its frames.
func TestAppendEachInChunks(t *testing.T) {
	f := fixture.New(t)
	work := f.StartMany(t, 5)
	large := strings.Repeat("x", stream.MaxPayload)
	var batches []stream.Batch
	for i, w := range work {
		frames := texts(numbered("a", 600)...)
		if i == 3 {
			frames = texts(slices.Repeat([]string{large}, 60)...)
		}
		batches = append(batches, stream.Batch{Lease: w.Lease, Frames: frames})
	}
	log := new(fixture.StatementLog)
	e := f.EngineOn(t, log.Open(t, f.Url), engine.Config{})
	var outcomes []fferr.Outcome[stream.Appended]
	sent := log.During(func() {
		var err error
		if outcomes, err = stream.AppendEach(t.Context(), e, batches); err != nil {
			t.Fatal(err)
		}
	})
	// Two streams of 600 frames do not fit into one statement.
	if names := queries(sent); len(names) < 4 || names[0] != "AppendFrames" {
		t.Errorf("sent %q", names)
	}
	for i, o := range outcomes {
		for errors.Is(o.Err, fferr.ErrBusy) { // the server held a lock of its own for long, say on the end of a table
			o.Value, o.Err = stream.Append(t.Context(), e, batches[i].Lease, batches[i].Frames)
		}
		if o.Err != nil || o.Value.Frames != int64(len(batches[i].Frames)) {
			t.Errorf("stream %d: %+v", i, o)
		}
	}
	wantFrames(t, f, work[4].ID, numbered("a", 600)...)
}

func TestLimitsOfABatchOfFrames(t *testing.T) {
	f := fixture.New(t)
	work := f.Start(t)
	large := strings.Repeat("x", stream.MaxPayload)
	for _, c := range []struct {
		name   string
		frames []stream.FrameSpec
		ok     bool
	}{
		{"none", nil, false},
		{"one too many", texts(numbered("", stream.MaxFrames+1)...), false},
		{"one byte too many", texts(append(slices.Repeat([]string{large}, stream.MaxBytes/stream.MaxPayload), "x")...), false},
		{"as many as may be", texts(numbered("", stream.MaxFrames)...), true},
		{"as large as may be", texts(slices.Repeat([]string{large}, stream.MaxBytes/stream.MaxPayload)...), true},
	} {
		before := read(t, f.Engine, work.ID)
		_, err := stream.Append(t.Context(), f.Engine, work.Lease, c.frames)
		if c.ok && err != nil || !c.ok && !errors.Is(err, fferr.ErrInvalidInput) {
			t.Errorf("%s: %v", c.name, err)
		}
		want := len(before.Frames)
		if c.ok {
			want += len(c.frames)
		}
		if got := len(read(t, f.Engine, work.ID).Frames); got != want {
			t.Errorf("%s: %d frames, want %d", c.name, got, want)
		}
	}
}
