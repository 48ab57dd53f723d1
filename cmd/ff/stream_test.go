package main

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/stream"
)

// Output of models and subprocesses can't command a terminal. A pipe gets it as it is.
func TestStreamPrinterEscapesControlCharacters(t *testing.T) {
	const payload = "a\x1b]0;title\x07\u009b2J\x7f\r\n\tü\n"
	for _, c := range []struct {
		name             string
		terminal, asJSON bool
		want             string
	}{
		{"a terminal", true, false, "a\\x1b]0;title\\a\\u009b2J\\x7f\\r\n\tü\n"},
		{"a pipe", false, false, payload},
		{"JSON", false, true, ""},
	} {
		var out bytes.Buffer
		p := streamPrinter{app: &app{stdout: &out, stderr: &out}, terminal: c.terminal, asJSON: c.asJSON, attempt: -1, lineEnded: true}
		if err := p.print(&stream.Entry{Epoch: 7, Type: "to\u009bken", Payload: []byte(payload)}); err != nil {
			t.Fatal(err)
		}
		if !c.asJSON {
			if out.String() != c.want {
				t.Errorf("%s: %q, want %q", c.name, out.String(), c.want)
			}
			continue
		}
		var v struct {
			Text, Type string
			Epoch      int64
		}
		if err := json.Unmarshal(out.Bytes(), &v); err != nil || v.Text != payload || v.Type != "to\u009bken" || v.Epoch != 7 {
			t.Errorf("%s: %v, %+v", c.name, err, v)
		}
		if bytes.ContainsAny(out.Bytes(), "\x1b\x07\u009b\x7f\r") {
			t.Errorf("%s: %q", c.name, out.String())
		}
	}
}

// A line that a payload has left open ends, and a gap is a line of JSON.
func TestStreamPrinterGapsAndLines(t *testing.T) {
	gap := &fferr.StreamGapError{Attempt: 1, Frames: 12}
	var out, messages bytes.Buffer
	p := streamPrinter{app: &app{stdout: &out, stderr: &messages}, attempt: -1, lineEnded: true}
	for _, err := range []error{p.print(&stream.Entry{Payload: []byte("open")}), p.gap(gap), p.endLine(), p.endLine()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if out.String() != "open\n" || messages.String() != "12 frames of attempt 1 are no longer kept\n" {
		t.Errorf("printed %q and %q", &out, &messages)
	}
	out.Reset()
	p.asJSON = true
	if err := p.gap(gap); err != nil || out.String() != `{"position":"0.0.0.0.0","attempt":1,"gap":12}`+"\n" {
		t.Errorf("%v: printed %s", err, &out)
	}
}
