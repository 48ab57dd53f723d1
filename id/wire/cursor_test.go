package wire

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"testing/quick"

	"github.com/flowfabric/flowfabric-go/id"
)

func TestEventCursorRoundTrip(t *testing.T) {
	roundTrips := func(n int64) bool {
		want := n & math.MaxInt64
		got, ok, err := NewEventCursor(want).EventID()
		return got == want && ok && err == nil
	}
	if err := quick.Check(roundTrips, nil); err != nil || !roundTrips(0) || !roundTrips(math.MaxInt64) {
		t.Error(err)
	}
}

func TestEventCursorForeignNamesTheOperation(t *testing.T) {
	_, _, err := EventCursor{1, 0, 0}.EventID()
	if reasonOf(t, err) != id.ReasonForeignCursor || !strings.Contains(err.Error(), "stream_subscribe: cursor does not belong to the Postgres backend") {
		t.Errorf("got %v", err)
	}
}

func TestFrameCursorBounds(t *testing.T) {
	lowest := FramePosition{math.MinInt64, math.MinInt32}
	highest := FramePosition{math.MaxInt64, math.MaxInt32}
	tests := []struct {
		cursor       FrameCursor
		lower, upper FramePosition
		tail         bool
	}{
		{FrameStart, lowest, lowest, false},
		{FrameEnd, highest, highest, false},
		{FrameBeginning, FramePosition{0, 0}, FramePosition{0, 0}, true},
		{"7", FramePosition{7, 0}, FramePosition{7, math.MaxInt32}, true},
		{"007-03", FramePosition{7, 3}, FramePosition{7, 3}, true},
	}
	for _, tt := range tests {
		t.Run(string(tt.cursor), func(t *testing.T) {
			if got, err := tt.cursor.Lower(); got != tt.lower || err != nil {
				t.Errorf("lower: got %v, %v, want %v", got, err, tt.lower)
			}
			if got, err := tt.cursor.Upper(); got != tt.upper || err != nil {
				t.Errorf("upper: got %v, %v, want %v", got, err, tt.upper)
			}
			after, err := tt.cursor.After()
			if tt.tail != (err == nil) || tt.tail && after != tt.lower {
				t.Errorf("after: got %v, %v", after, err)
			}
		})
	}
	for _, cursor := range []FrameCursor{"9223372036854775808", "1-2147483648", "1-99999999999999999999"} {
		if _, err := cursor.Upper(); reasonOf(t, err) != id.ReasonOutOfRange {
			t.Errorf("%s: got %v", cursor, err)
		}
	}
	if _, err := FrameCursor("not checked before").Lower(); reasonOf(t, err) != id.ReasonMalformed {
		t.Errorf("got %v", err)
	}
}

func TestFramePositionOrder(t *testing.T) {
	ordered := []FramePosition{{1, 2}, {1, 10}, {2, 0}}
	for i, p := range ordered {
		for j, q := range ordered {
			if got, want := p.Compare(q), min(max(i-j, -1), 1); got != want {
				t.Errorf("%v to %v: got %d, want %d", p, q, got, want)
			}
		}
	}
}

func FuzzEventCursor(f *testing.F) {
	f.Add([]byte(NewEventCursor(7)))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		eventID, ok, err := EventCursor(data).EventID()
		if err != nil || !ok {
			return
		}
		if eventID < 0 || !bytes.Equal(NewEventCursor(eventID), data) {
			t.Fatalf("%x is %d", data, eventID)
		}
	})
}

func FuzzParseFrameCursor(f *testing.F) {
	f.Add("123-4")
	f.Add("start")
	f.Add("1-2-3")
	f.Fuzz(func(t *testing.T, s string) {
		cursor, err := ParseFrameCursor(s)
		if err != nil {
			return
		}
		data, err := json.Marshal(cursor)
		if err != nil {
			t.Fatal(err)
		}
		var again FrameCursor
		if err := json.Unmarshal(data, &again); err != nil || again != cursor {
			t.Fatalf("%q became %s, %v", s, data, err)
		}
		if lower, err := cursor.After(); err == nil {
			same, err := FrameCursor(lower.String()).After()
			if err != nil || same != lower {
				t.Fatalf("%q is %v, which is %v, %v", s, lower, same, err)
			}
		}
	})
}
