package streams

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/stream"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// texts returns durable frames with these payloads.
func texts(payloads ...string) []stream.FrameSpec {
	frames := make([]stream.FrameSpec, len(payloads))
	for i, p := range payloads {
		frames[i].Payload = []byte(p)
	}
	return frames
}

// patches returns summary frames with these payloads.
func patches(payloads ...string) []stream.FrameSpec {
	frames := texts(payloads...)
	for i := range frames {
		frames[i].Mode = stream.Summary
	}
	return frames
}

func appendTo(t *testing.T, e *engine.Engine, l engine.Lease, frames ...stream.FrameSpec) stream.Appended {
	t.Helper()
	appended, err := stream.Append(t.Context(), e, l, frames)
	if err != nil {
		t.Fatal(err)
	}
	return appended
}

// read returns a page of the stream of an execution's first attempt.
func read(t *testing.T, e *engine.Engine, x id.ExecutionID) stream.Page {
	t.Helper()
	page, err := stream.Read(t.Context(), e, x, stream.Range{Limit: stream.MaxPage})
	if err != nil {
		t.Fatal(err)
	}
	return page
}

// wantFrames fails the test unless the stream has frames with these payloads, with increasing ids and all numbers.
func wantFrames(t *testing.T, f *fixture.Fixture, x id.ExecutionID, want ...string) []stream.Entry {
	t.Helper()
	frames := read(t, f.Engine, x).Frames
	var got []string
	for i, frame := range frames {
		got = append(got, string(frame.Payload))
		if frame.Number != int64(i+1) {
			t.Errorf("frame %d has the number %d", i, frame.Number)
		}
		if i > 0 && frame.ID.Compare(frames[i-1].ID) <= 0 {
			t.Errorf("id %s after %s", frame.ID, frames[i-1].ID)
		}
	}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("frames %q, want %q", got, want)
	}
	return frames
}

// numbered returns n payloads.
func numbered(prefix string, n int) []string {
	payloads := make([]string, n)
	for i := range payloads {
		payloads[i] = fmt.Sprint(prefix, i)
	}
	return payloads
}

// appending appends beside the test.
func appending(t *testing.T, e *engine.Engine, l engine.Lease, frames ...stream.FrameSpec) (wait func() error) {
	return fixture.Async(t, func(ctx context.Context) error {
		_, err := stream.Append(ctx, e, l, frames)
		return err
	})
}

func text(n int64) string { return fmt.Sprint(n) }

// queries returns the names of the queries among statements.
func queries(sent []string) []string {
	var names []string
	for _, sql := range sent {
		if rest, ok := strings.CutPrefix(sql, "-- name: "); ok {
			name, _, _ := strings.Cut(rest, " ")
			names = append(names, name)
		}
	}
	return names
}
