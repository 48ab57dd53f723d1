package streams

import (
	"errors"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/stream"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// The reference changes limits silently, and leaves out the frames of the last millisecond. Here a wrong range is refused,
// and a bound is what it says.
func TestReadsAreWhatWasAskedFor_S47(t *testing.T) {
	f := fixture.New(t)
	work := f.Start(t)
	first := appendTo(t, f.Engine, work.Lease, texts("a", "b", "c")...).First
	f.Advance(time.Millisecond)
	appendTo(t, f.Engine, work.Lease, texts("d", "e")...)
	ms := func(after int64) wire.FrameCursor { return wire.FrameCursor(text(first.TsMs + after)) }
	at := func(after, seq int64) wire.FrameCursor { return ms(after) + "-" + wire.FrameCursor(text(seq)) }
	for _, c := range []struct {
		from, to wire.FrameCursor
		limit    int
		want     string
	}{
		{limit: 10, want: "abcde"},
		{from: wire.FrameStart, to: wire.FrameEnd, limit: 2, want: "ab"},
		{from: ms(0), to: ms(0), limit: 10, want: "abc"},
		{from: ms(1), limit: 10, want: "de"},
		{from: at(0, 1), to: at(1, 0), limit: 10, want: "bcd"},
		{from: at(0, 1), to: at(0, 1), limit: 10, want: "b"},
		{from: at(0, 3), to: at(0, 9), limit: 10},
		{from: ms(1), to: ms(0), limit: 10},
		{from: wire.FrameEnd, limit: 10},
		{to: wire.FrameStart, limit: 10},
	} {
		page, err := stream.Read(t.Context(), f.Engine, work.ID, stream.Range{From: c.from, To: c.to, Limit: c.limit})
		var got string
		for _, frame := range page.Frames {
			got += string(frame.Payload)
		}
		if err != nil || got != c.want || page.Closed != nil {
			t.Errorf("%+v: %q, %+v, %v", c, got, page.Closed, err)
		}
	}
	for _, r := range []stream.Range{
		{Limit: 0}, {Limit: -1}, {Limit: stream.MaxPage + 1}, {Limit: 1, Attempt: -1}, {Limit: 1, Attempt: 1 << 31},
		{Limit: 1, From: "-"}, {Limit: 1, To: "+"}, {Limit: 1, From: "1-"}, {Limit: 1, To: "9223372036854775808"}, {Limit: 1, From: "1-2147483648"},
	} {
		if _, err := stream.Read(t.Context(), f.Engine, work.ID, r); !errors.Is(err, fferr.ErrInvalidInput) {
			t.Errorf("%+v: %v", r, err)
		}
	}
	if _, err := stream.Read(t.Context(), f.Engine, id.NewExecutionID(f.Lane, id.Partitions{}), stream.Range{Limit: 1}); !errors.Is(err, fferr.ErrNotFound) {
		t.Errorf("a missing execution: %v", err)
	}
	if page, err := stream.Read(t.Context(), f.Engine, work.ID, stream.Range{Limit: 1, Attempt: 7}); err != nil || len(page.Frames) > 0 || page.Closed != nil {
		t.Errorf("a missing attempt: %+v, %v", page, err)
	}
}

// The end of an attempt is reported with its last frame, and not before.
func TestReadReportsTheEndAtTheEnd(t *testing.T) {
	f := fixture.New(t)
	work := f.Start(t)
	appendTo(t, f.Engine, work.Lease, texts("a", "b")...)
	if err := f.CompleteExecution(t.Context(), work.Lease, nil); err != nil {
		t.Fatal(err)
	}
	for limit, closed := range map[int]bool{1: false, 2: false, 3: true} {
		page, err := stream.Read(t.Context(), f.Engine, work.ID, stream.Range{Limit: limit})
		if err != nil || (page.Closed != nil) != closed || len(page.Frames) != min(limit, 2) {
			t.Errorf("limit %d: %d frames, closed %+v, %v", limit, len(page.Frames), page.Closed, err)
		}
	}
	if page, err := stream.Read(t.Context(), f.Engine, work.ID, stream.Range{Limit: 9, To: "1"}); err != nil || page.Closed != nil {
		t.Errorf("up to a time: %+v, %v", page.Closed, err)
	}
}

// The reference has a second index with the columns of the key, so every frame is written to both.
func TestFramesHaveOneIndex_S49(t *testing.T) {
	f := fixture.New(t)
	indexes := fixture.Texts(t, f.Pool, "SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = 'ff_stream_frame'::regclass")
	if len(indexes) != 1 || indexes[0] != "ff_stream_frame_pkey" {
		t.Errorf("indexes %q", indexes)
	}
}
