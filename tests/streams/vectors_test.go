package streams

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"testing"

	"github.com/flowfabric/flowfabric-go/stream"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// vectors decodes a section of the test vectors of tests/conformance, which are about stored rows.
func vectors[T any](t *testing.T, section string) []T {
	t.Helper()
	data, err := os.ReadFile("../conformance/testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var sections map[string]json.RawMessage
	if err := json.Unmarshal(data, &sections); err != nil {
		t.Fatal(err)
	}
	var cases []T
	if err := json.Unmarshal(sections[section], &cases); err != nil || len(cases) == 0 {
		t.Fatalf("%d cases: %v", len(cases), err)
	}
	return cases
}

func sameJSON(t *testing.T, what string, got, want []byte) {
	t.Helper()
	var g, w any
	if err := json.Unmarshal(got, &g); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(want, &w); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(g, w) {
		t.Errorf("%s is %s, want %s", what, got, want)
	}
}

func TestVectorsOfSummaries(t *testing.T) {
	f := fixture.New(t)
	for n, c := range vectors[struct{ Document, Patch, Result json.RawMessage }](t, "summary_merge") {
		l := f.Start(t).Lease
		appendTo(t, f.Engine, l, patches(string(c.Document))...)
		appendTo(t, f.Engine, l, patches(string(c.Patch))...)
		summary, err := stream.ReadSummary(t.Context(), f.Engine, l.Execution, 0)
		if err != nil {
			t.Fatal(err)
		}
		sameJSON(t, fmt.Sprint("summary ", n), summary.JSON, c.Result)
	}
}

func TestVectorsOfFrames(t *testing.T) {
	f := fixture.New(t)
	for n, c := range vectors[struct {
		Kind          string
		FrameType     string            `json:"frame_type"`
		CorrelationID string            `json:"correlation_id"`
		PayloadHex    string            `json:"payload_hex"`
		Required      map[string]string `json:"required"`
	}](t, "frame_fields") {
		l := f.Start(t).Lease
		payload, err := hex.DecodeString(c.PayloadHex)
		if err != nil {
			t.Fatal(err)
		}
		frame := stream.FrameSpec{Payload: payload, Type: c.FrameType, Correlation: c.CorrelationID}
		if frame.Type == "" {
			frame.Type = c.Kind
		}
		appendTo(t, f.Engine, l, frame)
		if c.Required["correlation_id"] == "" {
			delete(c.Required, "correlation_id") // no text and none are one here
		}
		want, err := json.Marshal(c.Required)
		if err != nil {
			t.Fatal(err)
		}
		sameJSON(t, fmt.Sprint("frame ", n), []byte(fixture.Texts(t, f.Pool,
			"SELECT fields::text FROM ff_stream_frame WHERE partition_key = $1::smallint AND execution_id = $2::uuid",
			l.Execution.Partition(), l.Execution.UUID())[0]), want)
	}
}

// A field that is no text is read as its JSON text, here as the payload.
func TestVectorsOfStoredFields(t *testing.T) {
	f := fixture.New(t)
	l := f.Start(t).Lease
	appendTo(t, f.Engine, l, texts("")...)
	payload := func(fields []byte) string {
		f.Exec(t, "UPDATE ff_stream_frame SET fields = $3::text::jsonb WHERE partition_key = $1 AND execution_id = $2",
			l.Execution.Partition(), l.Execution.UUID(), string(fields))
		return string(read(t, f.Engine, l.Execution).Frames[0].Payload)
	}
	for n, c := range vectors[struct {
		Stored json.RawMessage
		Fields map[string]string
	}](t, "frame_fields_read") {
		if got := payload(c.Stored); got != c.Fields["payload"] {
			t.Errorf("case %d: %q, want %q", n, got, c.Fields["payload"])
		}
		for name, want := range c.Fields {
			var stored map[string]json.RawMessage
			if err := json.Unmarshal(c.Stored, &stored); err != nil {
				t.Fatal(err)
			}
			if got := payload([]byte(`{"payload":` + string(stored[name]) + `}`)); got != want {
				t.Errorf("case %d, %s: %q, want %q", n, name, got, want)
			}
		}
	}
}
