package engine_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

type box struct{ Width int }

// roundTrip encodes as a creator does and decodes as a handler does.
func roundTrip[T any](t *testing.T, value T) (stored []byte, read T) {
	t.Helper()
	kind := engine.Kind[T, T]{Name: "k"}
	stored = kind.Spec(value).Payload
	result, err := kind.EncodeResult(value)
	if err != nil || string(result) != string(stored) {
		t.Errorf("%T: a result is stored as %q (%v), a payload as %q", value, result, err, stored)
	}
	read, err = kind.DecodeArgs(stored)
	if err != nil {
		t.Errorf("%T: %v", value, err)
	}
	return stored, read
}

func TestKindStoresArgumentsAsJSON(t *testing.T) {
	t.Parallel()
	if stored, read := roundTrip(t, box{4}); string(stored) != `{"Width":4}` || read != (box{4}) {
		t.Errorf("a struct: %s, %v", stored, read)
	}
	if stored, read := roundTrip(t, &box{4}); string(stored) != `{"Width":4}` || *read != (box{4}) {
		t.Errorf("a pointer: %s, %v", stored, read)
	}
	if stored, read := roundTrip(t, []byte("\x00\xff")); string(stored) != "\x00\xff" || string(read) != "\x00\xff" {
		t.Errorf("bytes: %q, %q", stored, read)
	}
	if stored, read := roundTrip(t, json.RawMessage(`[1, 2]`)); string(stored) != `[1, 2]` || string(read) != `[1, 2]` {
		t.Errorf("a raw message: %q, %q", stored, read)
	}
	if stored, _ := roundTrip(t, struct{}{}); stored != nil {
		t.Errorf("nothing: %q", stored)
	}
	if stored, read := roundTrip[any](t, []byte("ab")); string(stored) != `"YWI="` || read != "YWI=" {
		t.Errorf("bytes in an interface: %q, %v: the declared type decides", stored, read)
	}
	for _, nothing := range [][]byte{nil, {}} {
		if read, err := (engine.Kind[box, box]{Name: "k"}).DecodeArgs(nothing); err != nil || read != (box{}) {
			t.Errorf("without a payload: %v, %v", read, err)
		}
	}
}

// shout is a codec that differs visibly from JSON.
type shout struct{ engine.JSON }

func (s shout) Marshal(v any) ([]byte, error) { return []byte(strings.ToUpper(fmt.Sprint(v))), nil }

func (s shout) Unmarshal(data []byte, into any) error {
	*into.(*string) = string(data) + "!"
	return nil
}

func TestKindCodec(t *testing.T) {
	t.Parallel()
	kind := engine.Kind[string, string]{Name: "k", Codec: shout{}}
	if payload := kind.Spec("ada").Payload; string(payload) != "ADA" {
		t.Errorf("payload %q", payload)
	}
	if args, err := kind.DecodeArgs([]byte("ADA")); err != nil || args != "ADA!" {
		t.Errorf("arguments %q, %v", args, err)
	}
}

func TestKindSpec(t *testing.T) {
	t.Parallel()
	p := &policy.Execution{}
	spec := engine.Kind[box, box]{Name: "k", Lane: "boxes", Policy: p}.Spec(box{})
	if spec.Kind != "k" || spec.Lane != "boxes" || spec.Policy != p {
		t.Errorf("spec %+v", spec)
	}
}

func TestKindValidate(t *testing.T) {
	t.Parallel()
	if err := (engine.Kind[box, box]{Name: "k"}).Validate(); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		field string
		kind  engine.Kind[box, box]
	}{
		{"Kind.Name", engine.Kind[box, box]{}},
		{"Kind.Name", engine.Kind[box, box]{Name: strings.Repeat("k", 256)}},
		{"Kind.Name", engine.Kind[box, box]{Name: "a\x00b"}},
		{"Kind.Lane", engine.Kind[box, box]{Name: "k", Lane: "a\nb"}},
		{"Kind.Policy.Retry.MaxRetries", engine.Kind[box, box]{
			Name: "k", Policy: &policy.Execution{Retry: &policy.Retry{MaxRetries: -7}},
		}},
	} {
		err := c.kind.Validate()
		if input, ok := errors.AsType[*fferr.InputError](err); !ok || input.Field != c.field {
			t.Errorf("%+v: %v, want %s refused", c.kind, err, c.field)
		}
	}
}

func TestKindDecodesResults(t *testing.T) {
	t.Parallel()
	kind := engine.Kind[struct{}, box]{Name: "k"}
	good := engine.UpstreamResult{Kind: "k", State: state.PublicCompleted, Outcome: state.OutcomeSuccess, Result: []byte(`{"Width":4}`)}
	if out, err := kind.ResultOf(good); err != nil || out != (box{4}) {
		t.Errorf("%v, %v", out, err)
	}
	changed := func(change func(*engine.UpstreamResult)) error {
		u := good
		change(&u)
		out, err := kind.ResultOf(u)
		if out != (box{}) {
			t.Errorf("%v beside the error %v", out, err)
		}
		return err
	}
	if err := changed(func(u *engine.UpstreamResult) { u.Kind = "other" }); !errors.Is(err, fferr.ErrInvalidInput) {
		t.Errorf("of another kind: %v", err)
	}
	if err := changed(func(u *engine.UpstreamResult) { u.State, u.Outcome = state.PublicActive, state.OutcomeNone }); !errors.Is(err, fferr.ErrNotEnded) {
		t.Errorf("not ended: %v", err)
	}
	err := changed(func(u *engine.UpstreamResult) {
		u.State, u.Outcome, u.Failure = state.PublicFailed, state.OutcomeFailed, "too round"
	})
	if ended, ok := errors.AsType[*fferr.EndedError](err); !ok || ended.Outcome != state.OutcomeFailed || ended.Failure != "too round" {
		t.Errorf("failed: %v", err)
	}
	err = changed(func(u *engine.UpstreamResult) { u.Result = []byte(`{"Width":"4929123412341234"}`) })
	wrong, ok := errors.AsType[*fferr.DecodeError](err)
	if !ok || wrong.Kind != "k" || wrong.What != "result" || wrong.Type != "engine_test.box" || wrong.Err == nil {
		t.Errorf("of another type: %v", err)
	}
	if strings.Contains(err.Error(), "4929") {
		t.Errorf("%v quotes the result", err)
	}
	if _, err := (engine.Kind[struct{}, box]{}).ResultOf(good); !errors.Is(err, fferr.ErrInvalidInput) {
		t.Errorf("without a name: %v", err)
	}
}

// Arguments that can't be encoded make the creation fail.
func TestKindReportsUnencodableArguments(t *testing.T) {
	t.Parallel()
	if payload := (engine.Kind[float64, struct{}]{Name: "k"}).Spec(math.NaN()).Payload; payload != nil {
		t.Errorf("payload %q", payload)
	}
}
