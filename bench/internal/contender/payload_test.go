package contender

import (
	"bytes"
	"compress/zlib"
	"encoding/json"
	"testing"
)

// A payload has its size, equals the output of package json, contains its number, and cannot be compressed.
func TestPayload(t *testing.T) {
	for _, job := range []Job{{}, {Num: 7}, {Num: 123_456, Size: 1 << 10}, {Num: 99_999, Size: 16 << 10}, {Num: 5, Size: 12}} {
		payload := job.args().encode()
		byJSON, err := json.Marshal(job.args())
		if err != nil || !bytes.Equal(payload, byJSON) {
			t.Errorf("%+v: encoded %.40q, by package json %.40q, %v", job, payload, byJSON, err)
		}
		if job.Size > 20 && len(payload) != job.Size {
			t.Errorf("%+v: %d bytes", job, len(payload))
		}
		if got := num(payload); got != job.Num {
			t.Errorf("%+v: number %d", job, got)
		}
		spaced := bytes.ReplaceAll(bytes.ReplaceAll(payload, []byte(":"), []byte(": ")), []byte(","), []byte(", "))
		if got := riverNum(spaced); got != job.Num {
			t.Errorf("%+v: number %d, as River stores it", job, got)
		}
		if job.Size > 0 && job.args() == (Job{Num: job.Num + 1, Size: job.Size}).args() {
			t.Errorf("%+v: padded as the next", job)
		}
		if job.Size >= 1<<10 {
			var packed bytes.Buffer
			w := zlib.NewWriter(&packed)
			if _, err := w.Write(payload); err != nil {
				t.Fatal(err)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			if packed.Len() < job.Size*7/10 {
				t.Errorf("%+v: %d bytes, compressed", job, packed.Len())
			}
		}
	}
	if got := num([]byte("{}")); got != -1 {
		t.Errorf("number %d of a payload without", got)
	}
}
