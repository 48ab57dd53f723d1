package streams

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/stream"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// The reference replaces bytes that are no UTF-8, and fails at U+0000. Here every payload comes back as it was.
func TestPayloadsComeBackAsTheyWere_S40(t *testing.T) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for name, payload := range map[string][]byte{
		"empty": {}, "text": []byte("é\n\"\\"), "U+0000": []byte("a\x00b"), "no UTF-8": {0xff, 'A'}, "all bytes": all,
		"as large as may be": bytes.Repeat([]byte{0xff}, stream.MaxPayload), "what looks like base64": []byte("/0E="),
	} {
		for _, mode := range []stream.Mode{stream.Durable, stream.BestEffort} {
			t.Run(name+", "+string(mode), func(t *testing.T) {
				f := fixture.New(t)
				work := f.Start(t)
				appendTo(t, f.Engine, work.Lease, stream.FrameSpec{Payload: payload, Mode: mode, Type: "é", Correlation: "c"})
				frames := read(t, f.Engine, work.ID).Frames
				if len(frames) != 1 || !bytes.Equal(frames[0].Payload, payload) || frames[0].Type != "é" || frames[0].Correlation != "c" {
					t.Errorf("%d frames, the first %+v", len(frames), frames[0])
				}
			})
		}
	}
}

// Nothing of a payload is in the text of an error, and nothing is stored (case 14).
func TestRefusedFramesAreNotQuoted(t *testing.T) {
	const secret = "hunter2"
	f := fixture.New(t)
	work := f.Start(t)
	before := f.Dump(t, work.ID)
	deep := strings.Repeat(`{"`+secret+`":`, 17) + `1` + strings.Repeat(`}`, 17)
	large := `"` + strings.Repeat(secret, stream.MaxPayload/len(secret)) + `"`
	for name, frame := range map[string]stream.FrameSpec{
		"a byte too large":     {Payload: bytes.Repeat([]byte(secret+" "), stream.MaxPayload/8+1)[:stream.MaxPayload+1]},
		"an unknown mode":      {Payload: []byte(secret), Mode: "forever"},
		"a type too long":      {Payload: []byte(secret), Type: strings.Repeat("t", 257)},
		"a type with U+0000":   {Payload: []byte(secret), Type: "a\x00"},
		"a correlation":        {Payload: []byte(secret), Correlation: strings.Repeat("c", 1025)},
		"a scalar":             patches(`"` + secret + `"`)[0],
		"a number":             patches(`17`)[0],
		"null":                 patches(`null`)[0],
		"an array":             patches(`["` + secret + `"]`)[0],
		"nothing":              patches(``)[0],
		"no JSON":              patches(`{"a":` + secret + `}`)[0],
		"a bracket more":       patches(`{"a":"` + secret + `"}}`)[0],
		"two values":           patches(`{"a":"` + secret + `"} {}`)[0],
		"U+0000 in it":         patches(`{"a":"` + secret + `\u0000"}`)[0],
		"half a surrogate":     patches(`{"a":"` + secret + `\ud800"}`)[0],
		"no UTF-8":             patches("{\"a\":\"" + secret + "\xff\"}")[0],
		"too deep":             patches(deep)[0],
		"a large exponent":     patches(`{"` + secret + `":1e309}`)[0],
		"a huge exponent":      patches(`{"` + secret + `":1e99999999999999999999}`)[0],
		"a small exponent":     patches(`{"` + secret + `":1E-309}`)[0],
		"too large for a mode": patches(`{"a":` + large + `}`)[0],
	} {
		for _, frames := range [][]stream.FrameSpec{{frame}, {texts("fine")[0], patches(`{"fine":1}`)[0], frame}} {
			_, err := stream.Append(t.Context(), f.Engine, work.Lease, frames)
			if !errors.Is(err, fferr.ErrInvalidInput) {
				t.Errorf("%s: %v", name, err)
			} else if strings.Contains(err.Error(), secret) {
				t.Errorf("%s is quoted: %v", name, err)
			}
		}
		f.WantUnchanged(t, work.ID, before)
	}
}

// The same for summaries that are broken anywhere.
func TestBrokenSummariesAreNotQuoted(t *testing.T) {
	const secret = "hunter2"
	f := fixture.New(t)
	work := f.Start(t)
	fixture.Check(t, func(r *rapid.T) {
		payload := []byte(`{"` + secret + `":{"a":[1,"` + secret + `",null,true,1.5e3]},"b":"\u00e9"}`)
		for range rapid.IntRange(1, 3).Draw(r, "changes") {
			at := rapid.IntRange(0, len(payload)-1).Draw(r, "at")
			with := rapid.SampledFrom([]string{"", "\x00", "\xff", "{", "}", "[", "\"", "\\", "\\u0000", "\\ud800", "e999999", "-", ","}).Draw(r, "with")
			payload = slices.Concat(payload[:at], []byte(with), payload[at:])
		}
		_, err := stream.Append(t.Context(), f.Engine, work.Lease, patches(string(payload)))
		if err != nil && (!errors.Is(err, fferr.ErrInvalidInput) || strings.Contains(err.Error(), secret[:4])) {
			r.Fatalf("%q: %v", payload, err)
		}
	})
}

func TestPayloadsHaveTheEnginesLimit(t *testing.T) {
	f := fixture.New(t)
	eng := f.EngineOn(t, f.Pool, engine.Config{Streams: engine.StreamConfig{MaxPayload: 4}})
	work := f.Start(t)
	appendTo(t, eng, work.Lease, texts("four")...)
	_, err := stream.Append(t.Context(), eng, work.Lease, texts("fives"))
	fixture.WantInputError(t, err, "frames[0].payload")
	for field, cfg := range map[string]engine.StreamConfig{
		"Config.Streams.MaxPayload":       {MaxPayload: stream.MaxPayload + 1},
		"Config.Streams.DurableMaxlen":    {DurableMaxlen: -1},
		"Config.Streams.BestEffort.TTL":   {BestEffort: engine.BestEffort{TTL: 11 * time.Minute}},
		"Config.Streams.BestEffort.Least": {BestEffort: engine.BestEffort{Least: -1}},
	} {
		_, err := engine.New(f.Pool, engine.Config{Streams: cfg})
		fixture.WantInputError(t, err, field)
	}
}
