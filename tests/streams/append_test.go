package streams

import (
	"bytes"
	"errors"
	"testing"

	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/stream"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

func TestFramesAreReadInTheirOrder(t *testing.T) {
	f := fixture.New(t)
	work := f.Start(t)
	frames := []stream.FrameSpec{
		{Payload: []byte("one")},
		{Payload: []byte{0xff, 0, 'A'}, Type: stream.Blob, Correlation: "c"},
		{Payload: []byte(`{"a":1}`), Mode: stream.Summary},
		{Payload: []byte("last"), Mode: stream.BestEffort},
	}
	for _, batch := range [][]stream.FrameSpec{frames[:2], frames[2:]} {
		if _, err := stream.Append(t.Context(), f.Engine, work.Lease, batch); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Engine.CompleteExecution(t.Context(), work.Lease, nil); err != nil {
		t.Fatal(err)
	}
	n := 0
	for frame, err := range stream.Tail(t.Context(), f.Engine, work.ID, stream.TailOptions{}) {
		switch {
		case err != nil:
			t.Fatal(err)
		case frame.Closed != nil:
			if n != len(frames) || frame.Closed.Reason != stream.Succeeded || !frame.Closed.Last {
				t.Errorf("closed after %d frames: %+v", n, frame.Closed)
			}
			continue
		}
		if !bytes.Equal(frame.Payload, frames[n].Payload) || frame.Correlation != frames[n].Correlation || frame.Number != int64(n+1) {
			t.Errorf("frame %d is %+v", n, frame)
		}
		n++
	}
	summary, err := stream.ReadSummary(t.Context(), f.Engine, work.ID, 0)
	if err != nil || string(summary.JSON) != `{"a": 1}` || summary.Version != 1 {
		t.Errorf("summary %s, version %d: %v", summary.JSON, summary.Version, err)
	}
}

// Check refuses a frame that is nil. L18.
func TestCheckRefusesNil_L18(t *testing.T) {
	f := fixture.New(t)
	if err := stream.Check(f.Engine, nil); !errors.Is(err, fferr.ErrInvalidInput) {
		t.Errorf("%v, want ErrInvalidInput", err)
	}
}
