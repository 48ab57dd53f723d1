package streams

import (
	"bytes"
	"errors"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

func TestFramesAreReadInTheirOrder(t *testing.T) {
	f := fixture.New(t)
	work := f.Start(t)
	frames := []engine.FrameSpec{
		{Payload: []byte("one")},
		{Payload: []byte{0xff, 0, 'A'}, Type: engine.FrameBlob, Correlation: "c"},
		{Payload: []byte(`{"a":1}`), Mode: engine.FrameSummary},
		{Payload: []byte("last"), Mode: engine.FrameBestEffort},
	}
	for _, batch := range [][]engine.FrameSpec{frames[:2], frames[2:]} {
		if _, err := f.Engine.AppendFrames(t.Context(), work.Lease, batch); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Engine.CompleteExecution(t.Context(), work.Lease, nil); err != nil {
		t.Fatal(err)
	}
	n := 0
	for frame, err := range f.Engine.TailStream(t.Context(), work.ID, engine.TailOptions{}) {
		switch {
		case err != nil:
			t.Fatal(err)
		case frame.Closed != nil:
			if n != len(frames) || frame.Closed.Reason != engine.StreamSucceeded || !frame.Closed.Last {
				t.Errorf("closed after %d frames: %+v", n, frame.Closed)
			}
			continue
		}
		if !bytes.Equal(frame.Payload, frames[n].Payload) || frame.Correlation != frames[n].Correlation || frame.Number != int64(n+1) {
			t.Errorf("frame %d is %+v", n, frame)
		}
		n++
	}
	summary, err := f.Engine.StreamSummary(t.Context(), work.ID, 0)
	if err != nil || string(summary.Document) != `{"a": 1}` || summary.Version != 1 {
		t.Errorf("summary %s, version %d: %v", summary.Document, summary.Version, err)
	}
}

// CheckFrame refuses a frame that is nil. L18.
func TestCheckFrameRefusesNil_L18(t *testing.T) {
	f := fixture.New(t)
	if err := f.CheckFrame(nil); !errors.Is(err, fferr.ErrInvalidInput) {
		t.Errorf("%v, want ErrInvalidInput", err)
	}
}
