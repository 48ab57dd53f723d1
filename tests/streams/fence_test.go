package streams

import (
	"errors"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/stream"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// In the reference any process may write to any stream. Here only the holder of the attempt's newest lease does.
func TestAppendNeedsALiveLease_S38(t *testing.T) {
	for _, c := range []struct {
		name string
		lose func(t *testing.T, f *fixture.Fixture, l *engine.Lease)
		want error
	}{
		{"a stale epoch", func(_ *testing.T, _ *fixture.Fixture, l *engine.Lease) { l.Epoch-- }, fferr.ErrStaleLease},
		{"expired", func(_ *testing.T, f *fixture.Fixture, _ *engine.Lease) { f.Advance(fixture.LeaseTTL) }, fferr.ErrLeaseExpired},
		{"revoked", func(t *testing.T, f *fixture.Fixture, l *engine.Lease) {
			if _, err := operator.Revoke(t.Context(), f.Engine, operator.RevokeSpec{ID: l.Execution}); err != nil {
				t.Fatal(err)
			}
		}, fferr.ErrStaleLease},
		{"ended", func(t *testing.T, f *fixture.Fixture, l *engine.Lease) {
			if err := f.CompleteExecution(t.Context(), *l, nil); err != nil {
				t.Fatal(err)
			}
		}, fferr.ErrNotActive},
		{"cancelled", func(t *testing.T, f *fixture.Fixture, l *engine.Lease) { f.Cancel(t, l.Execution) }, fferr.ErrStaleLease},
		{"a missing execution", func(_ *testing.T, f *fixture.Fixture, l *engine.Lease) {
			l.Execution = id.NewExecutionID(f.Lane, id.Partitions{})
		}, fferr.ErrNotFound},
		{"a missing attempt", func(_ *testing.T, _ *fixture.Fixture, l *engine.Lease) { l.Attempt++ }, fferr.ErrNotFound},
	} {
		for name, frames := range map[string][]stream.FrameSpec{"durable": fixture.Frames[:1], "all modes": fixture.Frames} {
			t.Run(c.name+", "+name, func(t *testing.T) {
				f := fixture.New(t)
				l := f.Start(t).Lease
				x := l.Execution
				appendTo(t, f.Engine, l, texts("before")...)
				c.lose(t, f, &l)
				before := f.Dump(t, x)
				appended, err := stream.Append(t.Context(), f.Engine, l, frames)
				if !errors.Is(err, c.want) || appended != (stream.Appended{}) {
					t.Errorf("%+v, %v, want %v", appended, err, c.want)
				}
				outcomes, err := stream.AppendEach(t.Context(), f.Engine, []stream.Batch{{Lease: l, Frames: frames}})
				if err != nil || !errors.Is(outcomes[0].Err, c.want) {
					t.Errorf("in a batch %+v, %v, want %v", outcomes, err, c.want)
				}
				tx := f.BeginTx(t)
				if _, err := stream.Append(t.Context(), f.WithTx(tx), l, frames); !errors.Is(err, c.want) {
					t.Errorf("in a caller's transaction %v, want %v", err, c.want)
				}
				fixture.Commit(t, tx)
				f.WantUnchanged(t, x, before)
				wantFrames(t, f, x, "before")
			})
		}
	}
}

// Frames of a caller's transaction belong to it, and a refusal leaves it usable.
func TestAppendInACallersTransaction(t *testing.T) {
	for name, frames := range map[string][]stream.FrameSpec{"durable": texts("a", "b"), "summary": patches("{}", "{}")} {
		for _, commits := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				f := fixture.New(t)
				work := f.Start(t)
				stale := work.Lease
				stale.Epoch--
				before := f.Dump(t, work.ID)
				tx := f.BeginTx(t)
				bound := f.WithTx(tx)
				appendTo(t, bound, work.Lease, frames[0])
				if _, err := stream.Append(t.Context(), bound, stale, frames); !errors.Is(err, fferr.ErrStaleLease) {
					t.Errorf("a stale lease: %v", err)
				}
				if _, err := stream.Append(t.Context(), bound, work.Lease, patches(`[]`)); !errors.Is(err, fferr.ErrInvalidInput) {
					t.Errorf("no object: %v", err)
				}
				if _, err := stream.Append(t.Context(), bound, work.Lease, patches(`{"a":"\u0000"}`)); !errors.Is(err, fferr.ErrInvalidInput) {
					t.Errorf("U+0000: %v", err)
				}
				if got := appendTo(t, bound, work.Lease, frames[1]); got.Frames != 2 {
					t.Errorf("%d frames after two", got.Frames)
				}
				f.WantUnchanged(t, work.ID, before) // outside, until the commit
				f.End(t, tx, commits)
				if !commits {
					f.WantUnchanged(t, work.ID, before)
					return
				}
				wantFrames(t, f, work.ID, string(frames[0].Payload), string(frames[1].Payload))
			})
		}
	}
}
