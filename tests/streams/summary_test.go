package streams

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/stream"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

func wantSummary(t *testing.T, f *fixture.Fixture, l engine.Lease, version int, want string) {
	t.Helper()
	summary, err := stream.ReadSummary(t.Context(), f.Engine, l.Execution, l.Attempt)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	compact := json.NewEncoder(&got)
	compact.SetEscapeHTML(false)
	if err := compact.Encode(summary.JSON); err != nil {
		t.Fatal(err)
	}
	if strings.TrimSpace(got.String()) != want || summary.Version != version {
		t.Errorf("version %d: %s; want version %d: %s", summary.Version, got.String(), version, want)
	}
}

// The test cases of appendix A of RFC 7396, those whose patch and document are objects.
func TestSummaryMergesAsTheRFC_S44(t *testing.T) {
	for _, c := range [][3]string{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`{"e":"__ff_null__"}`, `{"a":1}`, `{"a":1,"e":null}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
		// And rules beside it.
		{`{}`, `{"a":[null,"__ff_null__",{"b":null}]}`, `{"a":[null,"__ff_null__",{"b":null}]}`},
		{`{"a":{"b":1}}`, `{"a":{"b":"__ff_null__","c":{"d":"__ff_null__"}}}`, `{"a":{"b":null,"c":{"d":null}}}`},
		{`{}`, `{"a":1,"a":2}`, `{"a":2}`},
		{`{"a":1}`, `{"a":2,"a":null}`, `{}`},
		{`{"a":1}`, ` { "a" : null , "b" : { } } `, `{"b":{}}`},
	} {
		t.Run(c[1], func(t *testing.T) {
			f := fixture.New(t)
			l := f.Start(t).Lease
			appended := appendTo(t, f.Engine, l, patches(c[0], c[1])...)
			if appended.SummaryVersion != 2 {
				t.Errorf("version %d", appended.SummaryVersion)
			}
			wantSummary(t, f, l, 2, c[2])
		})
	}
}

// Three patches are three versions, each frame has its own, and null is set only on purpose (case 12).
func TestSummaryHasVersions(t *testing.T) {
	f := fixture.New(t)
	l := f.Start(t).Lease
	if _, err := stream.ReadSummary(t.Context(), f.Engine, l.Execution, 0); !errors.Is(err, fferr.ErrNotFound) {
		t.Errorf("before the first: %v", err)
	}
	appendTo(t, f.Engine, l, patches(`{"a":1}`)...)
	frames := []stream.FrameSpec{texts("x")[0], patches(`{"a":"__ff_null__"}`)[0], texts("y")[0], patches(`{"b":{"c":1}}`)[0]}
	if got := appendTo(t, f.Engine, l, frames...); got.SummaryVersion != 3 {
		t.Errorf("%+v", got)
	}
	wantSummary(t, f, l, 3, `{"a":null,"b":{"c":1}}`)
	var versions []int
	for _, frame := range wantFrames(t, f, l.Execution, `{"a":1}`, "x", `{"a":"__ff_null__"}`, "y", `{"b":{"c":1}}`) {
		versions = append(versions, frame.SummaryVersion)
	}
	if !slices.Equal(versions, []int{1, 0, 2, 0, 3}) {
		t.Errorf("versions %v", versions)
	}
}

// The reference decodes numbers as floats. Here they keep their value and all their digits.
func TestSummaryKeepsNumbers_S44(t *testing.T) {
	f := fixture.New(t)
	for stored, want := range map[string]string{
		"1e2": "100", "0.1": "0.1", "12345678901234567890.5": "12345678901234567890.5", "9007199254740993": "9007199254740993",
		"1.50": "1.50", "-0.0": "-0.0", "1e308": "1" + strings.Repeat("0", 308), "1e-7": "0.0000001",
	} {
		l := f.Start(t).Lease
		appendTo(t, f.Engine, l, patches(`{"n":`+stored+`}`, `{"m":1}`)...)
		if want == "-0.0" {
			want = "0.0" // a numeric has no negative zero
		}
		wantSummary(t, f, l, 2, `{"m":1,"n":`+want+`}`)
	}
}

func TestSummaryHasADepth(t *testing.T) {
	f := fixture.New(t)
	l := f.Start(t).Lease
	nested := func(open, end string, n int) string {
		return `{"a":` + strings.Repeat(open, n-1) + "1" + strings.Repeat(end, n-1) + `}`
	}
	for _, kind := range [][2]string{{`{"a":`, `}`}, {`[`, `]`}} {
		if _, err := stream.Append(t.Context(), f.Engine, l, patches(nested(kind[0], kind[1], 16))); err != nil {
			t.Errorf("16 deep: %v", err)
		}
		if _, err := stream.Append(t.Context(), f.Engine, l, patches(nested(kind[0], kind[1], 17))); !errors.Is(err, fferr.ErrInvalidInput) {
			t.Errorf("17 deep: %v", err)
		}
	}
}

// A document that would be too large is refused with all frames of the call, and the one before remains.
func TestSummaryHasASize(t *testing.T) {
	f := fixture.New(t)
	l := f.Start(t).Lease
	part := strings.Repeat("x", stream.MaxPayload-100)
	var frames []stream.FrameSpec
	for i := range stream.MaxSummary / stream.MaxPayload {
		frames = append(frames, patches(fmt.Sprintf(`{"p%d":"%s"}`, i, part))...)
	}
	appendTo(t, f.Engine, l, frames...)
	before := f.Dump(t, l.Execution)
	_, err := stream.Append(t.Context(), f.Engine, l, append(texts("with it"), patches(`{"more":"`+part+`"}`)...))
	if !errors.Is(err, fferr.ErrInvalidInput) || len(err.Error()) > 200 {
		t.Errorf("got %v", err)
	}
	f.WantUnchanged(t, l.Execution, before)
	appendTo(t, f.Engine, l, patches(`{"p0":null,"more":"`+part+`"}`)...)
}

// A call may have a hundred summary frames, since the document is copied for each of them under the lock.
func TestSummaryFramesOfACallAreLimited(t *testing.T) {
	f := fixture.New(t)
	l := f.Start(t).Lease
	many := patches(slices.Repeat([]string{"{}"}, stream.MaxSummaryFrames+1)...)
	if _, err := stream.Append(t.Context(), f.Engine, l, many); !errors.Is(err, fferr.ErrInvalidInput) {
		t.Errorf("%d summary frames: %v", len(many), err)
	}
	if got := appendTo(t, f.Engine, l, many[1:]...); got.SummaryVersion != stream.MaxSummaryFrames || got.Frames != stream.MaxSummaryFrames {
		t.Errorf("appended %+v, want version and number %d", got, stream.MaxSummaryFrames)
	}
}
