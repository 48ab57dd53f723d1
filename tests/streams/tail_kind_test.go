package streams

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/stream"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// A typed tail has the frames of its type, and counts the missing frames before others.
func TestTypedTailCountsTrimmedFramesBeforeOthers(t *testing.T) {
	f := fixture.New(t)
	work := f.Start(t)
	frames := make([]stream.FrameSpec, 6)
	for i, kind := range []string{"lost", "log", "lost", "token", "lost", "log"} {
		frames[i] = stream.FrameSpec{Mode: stream.BestEffort, Type: kind, Payload: fmt.Append(nil, `"`, kind, `"`)}
	}
	appendTo(t, f.Engine, work.Lease, frames...)
	finish(t, f, work.Lease)
	f.Exec(t, `DELETE FROM ff_stream_frame WHERE partition_key = $1 AND execution_id = $2 AND ffx_number IN (1, 3, 5)`, work.ID.Partition(), work.ID.UUID())
	var got []string
	for frame, err := range token.Tail(t.Context(), f.Engine, work.ID, stream.TailOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprint(frame.Value, " ", frame.Trimmed, " ", frame.Closed != nil))
	}
	if want := []string{"token 2 false", " 1 true"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A frame declaration without a type is refused, by readers as by writers.
func TestTypedTailNeedsAType(t *testing.T) {
	f := fixture.New(t)
	work := f.Start(t)
	var untyped stream.Frame[string]
	values := 0
	for _, err := range untyped.Tail(t.Context(), f.Engine, work.ID, stream.TailOptions{}) {
		values++
		if !errors.Is(err, fferr.ErrInvalidInput) {
			t.Error(err)
		}
	}
	if err := untyped.Write(t.Context(), appender{f, work.Lease}, "a"); values != 1 || !errors.Is(err, fferr.ErrInvalidInput) {
		t.Errorf("%d values; written: %v", values, err)
	}
}
