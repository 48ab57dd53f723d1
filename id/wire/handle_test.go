package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand"
	"reflect"
	"strings"
	"testing"
	"testing/quick"

	"github.com/flowfabric/flowfabric-go/id"
)

// Generate sets ids that have a partition, which testing/quick cannot do.
func (HandleFields) Generate(random *rand.Rand, size int) reflect.Value {
	value := func(v any) reflect.Value {
		made, _ := quick.Value(reflect.TypeOf(v), random)
		return made
	}
	return reflect.ValueOf(HandleFields{
		Execution:    id.ExecutionIDFromRow(int16(random.Intn(256)), value(id.ExecutionUUID{}).Interface().(id.ExecutionUUID)),
		AttemptIndex: random.Uint32(), LeaseEpoch: random.Uint64(), LeaseTTLMs: random.Uint64(),
		AttemptID: value(id.AttemptID{}).Interface().(id.AttemptID), LeaseID: value(id.LeaseID{}).Interface().(id.LeaseID),
		Lane:           id.LaneID(value("").Interface().(string)),
		WorkerInstance: id.WorkerInstanceID(value("").Interface().(string)),
	})
}

func TestHandleRoundTrip(t *testing.T) {
	err := quick.Check(func(want HandleFields) bool {
		minted := EncodeHandle(HandleResumed, want)
		if got, err := minted.CheckPostgres(); err != nil || got != want {
			t.Logf("got %+v, %v", got, err)
			return false
		}
		data, err := json.Marshal(minted)
		if err != nil {
			t.Fatal(err)
		}
		var decoded Handle
		if err := json.Unmarshal(data, &decoded); err != nil {
			t.Fatal(err)
		}
		return decoded.Backend == Postgres && decoded.Kind == HandleResumed && bytes.Equal(decoded.Opaque, minted.Opaque)
	}, nil)
	if err != nil {
		t.Error(err)
	}
}

func TestHandleEveryPrefixIsTruncated(t *testing.T) {
	whole := EncodeHandle(HandleFresh, HandleFields{Lane: "lane", WorkerInstance: "worker"}).Opaque
	for n := range whole {
		_, _, err := DecodeHandle(whole[:n])
		var bad *HandleError
		if !errors.As(err, &bad) || bad.Reason != HandleTruncated || bad.Have != n {
			t.Errorf("%d of %d bytes: got %v", n, len(whole), err)
		}
	}
}

// TestForeignHandleIsNamed_I14: a handle of another backend always says so, and is never taken for
// a damaged one.
func TestForeignHandleIsNamed_I14(t *testing.T) {
	ours := EncodeHandle(HandleFresh, HandleFields{})
	theirs := bytes.Clone(ours.Opaque)
	theirs[2] = byte(SQLite)
	legacy := append([]byte{handleLegacy}, ours.Opaque[3:]...)
	tests := []struct {
		name   string
		handle Handle
		want   string
	}{
		{"outer_tag", Handle{Backend: Valkey, Opaque: ours.Opaque}, "expected=Postgres actual=Valkey"},
		{"outer_tag_before_the_bytes", Handle{Backend: SQLite, Opaque: []byte{0xff}}, "expected=Postgres actual=Sqlite"},
		{"embedded_tag", Handle{Backend: Postgres, Opaque: theirs}, "expected=Postgres actual=Sqlite (embedded tag)"},
		{"legacy", Handle{Backend: Postgres, Opaque: legacy}, "expected=Postgres actual=Valkey (embedded tag)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := tt.handle.CheckPostgres()
			var foreign *ForeignHandleError
			if !errors.As(err, &foreign) || err.Error() != tt.want {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}

func TestHandleJSONIsExact(t *testing.T) {
	for _, document := range []string{
		`null`, `[]`, `{"Backend":"Postgres","kind":"Fresh","opaque":[]}`,
		`{"backend":"Postgres","kind":"fresh","opaque":[]}`, `{"backend":"Postgres","kind":"Fresh","opaque":[null]}`,
		`{"backend":"Postgres","kind":"Fresh","opaque":null}`, `{"backend":"Postgres","kind":"Fresh","opaque":[-1]}`,
	} {
		var h Handle
		if err := json.Unmarshal([]byte(document), &h); err == nil && document != "null" || h.Backend != 0 {
			t.Errorf("%s: got %v, %v", document, h, err)
		}
	}
}

func FuzzDecodeHandle(f *testing.F) {
	f.Add(EncodeHandle(HandleFresh, HandleFields{Lane: "default", WorkerInstance: "worker-1"}).Opaque)
	f.Add([]byte{2, 1, 2, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{1, 5, 0, 0, 0, 'h', 'e', 'l', 'l', 'o'})
	f.Fuzz(func(t *testing.T, opaque []byte) {
		fields, backend, err := DecodeHandle(opaque)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "handle_codec: ") {
				t.Fatalf("%x: %v", opaque, err)
			}
			return
		}
		again, err := EncodeHandle(HandleFresh, fields).CheckPostgres()
		if err != nil || again != fields {
			t.Fatalf("%x (%v): %+v became %+v, %v", opaque, backend, fields, again, err)
		}
	})
}

func FuzzHandleJSON(f *testing.F) {
	f.Add([]byte(`{"backend":"Postgres","kind":"Fresh","opaque":[2,1,2]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var h Handle
		if json.Unmarshal(data, &h) != nil || h.Backend == 0 {
			return
		}
		encoded, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		var again Handle
		if err := json.Unmarshal(encoded, &again); err != nil || !bytes.Equal(again.Opaque, h.Opaque) || again.Kind != h.Kind {
			t.Fatalf("%s became %s, %v", data, encoded, err)
		}
	})
}
