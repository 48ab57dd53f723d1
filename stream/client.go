package stream

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
	"unicode/utf8"
)

// idleBuffer is how many bytes a client keeps for its next event.
const idleBuffer = 4 << 10

// client is the connection to write events to.
type client struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	written bool         // something waits for a flush
	buffer  bytes.Buffer // the event being written
	json    *json.Encoder
	at      Position // after the newest frame, which may be hidden
	had     Position // of the last event
	trimmed int64    // frames missing before hidden frames
}

func newClient(w http.ResponseWriter, timeout time.Duration, after Position) *client {
	c := &client{w: w, control: http.NewResponseController(w), timeout: timeout, at: after, had: after}
	c.json = json.NewEncoder(&c.buffer)
	c.json.SetEscapeHTML(false)
	return c
}

// begin sends the header, and how long to wait before reconnecting.
//
// Errors: [http.ErrNotSupported] if the server can't flush, and has sent nothing.
func (c *client) begin(reconnect time.Duration) error {
	// The server's own limit for reading the request would end the stream.
	if err := c.control.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	c.written = true
	if err := c.flush(); err != nil {
		return err
	}
	fmt.Fprintf(&c.buffer, "retry: %d\n\n", reconnect.Milliseconds())
	return c.write()
}

// heartbeat sends a comment, which browsers ignore. After hidden frames it sends an event without data, which only sets the
// browser's Last-Event-ID.
func (c *client) heartbeat() error {
	if at := c.moved(); at != "" {
		fmt.Fprintf(&c.buffer, "id: %s\n\n", at)
	} else {
		c.buffer.WriteString(":\n\n")
	}
	if err := c.write(); err != nil {
		return err
	}
	return c.flush()
}

// interrupted sends that the server can't continue now.
func (c *client) interrupted() error {
	if err := c.event("interrupted", c.moved(), struct{}{}); err != nil {
		return err
	}
	return c.flush()
}

// moved returns the position after hidden frames, and marks it as sent. It returns "" if the client has the position.
func (c *client) moved() string {
	if c.at == c.had {
		return ""
	}
	c.had = c.at
	return c.at.String()
}

// hide skips a frame.
func (c *client) hide(f *Entry) {
	c.at = f.Position()
	c.trimmed += f.Trimmed
}

type frameData struct {
	Attempt     int     `json:"attempt"`
	Epoch       int64   `json:"epoch"`
	Type        string  `json:"type"`
	Mode        string  `json:"mode"`
	At          int64   `json:"at"`
	Correlation string  `json:"correlation,omitempty"`
	Trimmed     int64   `json:"trimmed,omitempty"`
	Data        *string `json:"data,omitempty"`
	Base64      []byte  `json:"base64,omitempty"`
}

type gapData struct {
	Attempt int   `json:"attempt"`
	Frames  int64 `json:"frames"`
}

type endData struct {
	Attempt int   `json:"attempt"`
	Reason  End   `json:"reason,omitempty"`
	Trimmed int64 `json:"trimmed,omitempty"`
}

// frame sends a frame, or the end of an attempt.
func (c *client) frame(f *Entry) error {
	c.at = f.Position()
	c.had = c.at
	at, trimmed := c.at.String(), f.Trimmed+c.trimmed
	c.trimmed = 0
	switch {
	case f.Closed != nil && f.Closed.Last:
		return c.event("end", at, endData{f.Attempt, f.Closed.Reason, trimmed})
	case f.Closed != nil:
		return c.event("attempt", at, endData{f.Attempt, f.Closed.Reason, trimmed})
	}
	data := frameData{
		Attempt: f.Attempt, Epoch: f.Epoch, Type: f.Type, Mode: string(f.Mode), At: f.ID.TsMs, Correlation: f.Correlation,
		Trimmed: trimmed,
	}
	if utf8.Valid(f.Payload) {
		text := string(f.Payload)
		data.Data = &text
	} else {
		data.Base64 = f.Payload
	}
	return c.event("", at, data)
}

// end sends the end of an execution without another attempt after the client's position.
func (c *client) end() error {
	attempt, closed := c.at.Attempt()
	text := c.at.String()
	if !closed {
		text += ".end"
	}
	if err := c.event("end", text, endData{Attempt: attempt}); err != nil {
		return err
	}
	return c.flush()
}

// event writes an event, or a message if the name is empty. Without a position the client keeps the last one.
func (c *client) event(name, at string, data any) error {
	if at != "" {
		fmt.Fprintf(&c.buffer, "id: %s\n", at)
	}
	if name != "" {
		fmt.Fprintf(&c.buffer, "event: %s\n", name)
	}
	c.buffer.WriteString("data: ")
	if err := c.json.Encode(data); err != nil { // one line, with its end
		return err
	}
	c.buffer.WriteByte('\n')
	return c.write()
}

// write writes the buffer within the timeout.
func (c *client) write() error {
	defer c.buffer.Reset()
	if err := c.deadline(time.Now().Add(c.timeout)); err != nil {
		return err
	}
	c.written = true
	_, err := c.w.Write(c.buffer.Bytes())
	return err
}

// flush sends written events within the timeout. Then it lifts the timeout, which in HTTP/2 also ends a stream that writes
// nothing.
func (c *client) flush() error {
	if !c.written {
		return nil
	}
	c.written = false
	if err := c.deadline(time.Now().Add(c.timeout)); err != nil {
		return err
	}
	if err := c.control.Flush(); err != nil {
		return err
	}
	if c.buffer.Cap() > idleBuffer {
		c.buffer = bytes.Buffer{}
	}
	return c.deadline(time.Time{})
}

// deadline limits writes. A server without deadlines can't drop slow clients.
func (c *client) deadline(at time.Time) error {
	err := c.control.SetWriteDeadline(at)
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}
