package views

import (
	"bytes"
	"testing"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/stream"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// The view has the frames as a read has them, and NULL for a payload that can't be decoded.
func TestViewsShowFrames(t *testing.T) {
	f := fixture.NewCloned(t)
	work := f.Start(t)
	frames := []stream.FrameSpec{
		{Payload: []byte("text"), Type: "token", Correlation: "c"},
		{Payload: []byte{0xff, 0}, Type: stream.Blob, Mode: stream.BestEffort},
		{Payload: nil},
	}
	if _, err := stream.Append(t.Context(), f.Engine, work.Lease, frames); err != nil {
		t.Fatal(err)
	}
	f.Exec(t, `
		INSERT INTO ff_stream_frame (partition_key, execution_id, attempt_index, ts_ms, seq, fields, mode, created_at_ms)
		VALUES ($1, $2, 1, 5, 0, '{"payload":"?","encoding":"base64"}', 'durable', 5)`, work.ID.Partition(), work.ID.UUID())
	page, err := stream.Read(t.Context(), f.Engine, work.ID, stream.Range{Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	rows := fixture.All[db.FfxStreamFrames](t, f.Pool, "SELECT * FROM ffx_stream_frames ORDER BY attempt, ts_ms, seq")
	if len(rows) != 4 || len(page.Frames) != 3 {
		t.Fatalf("%d rows, %d frames", len(rows), len(page.Frames))
	}
	for i, want := range page.Frames {
		row := rows[i]
		payload := row.Bytes
		if row.Payload != nil {
			payload = []byte(*row.Payload)
		}
		if row.ID != work.ID.String() || row.Frame != want.ID.String() || row.Mode != string(want.Mode) || row.Type != want.Type ||
			or(row.Correlation) != want.Correlation || !bytes.Equal(payload, want.Payload) || row.At.UnixMilli() != want.ID.TsMs ||
			*row.Number != want.Number || (row.Payload == nil) != (i == 1) {
			t.Errorf("the view has %+v, a read %+v", row, want)
		}
	}
	if last := rows[3]; last.Payload != nil || last.Bytes != nil || last.Attempt != 1 {
		t.Errorf("the view decodes %+v", last)
	}
}
