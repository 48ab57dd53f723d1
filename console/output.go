package console

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/stream"
)

// outputPage is the data of the page of an execution's output.
type outputPage struct {
	*engine.ExecutionSnapshot
	Frames []shownFrame
	Next   string // the position to continue after; "" at the end
}

// shownFrame is a frame as pages show it.
type shownFrame struct {
	Attempt int    `json:"attempt"`
	Type    string `json:"type"`
	Text    string `json:"text"`
}

// pageFrames is the number of frames on a page.
const pageFrames = 200

// output reads a page of the output of the newest attempt, from its beginning.
func (c *console) output(r *request) (view, error) {
	if !r.access.may(ShowPayload) {
		return view{}, errForbidden
	}
	x, err := c.describe(r)
	if err != nil {
		return view{}, err
	}
	data := outputPage{ExecutionSnapshot: x.ExecutionSnapshot}
	if x.Attempt != nil {
		span := stream.Range{Attempt: x.Attempt.Index, Limit: pageFrames}
		if after := r.FormValue("after"); after != "" {
			span.Attempt = 0
			if span.After, err = stream.ParsePosition(after); err != nil {
				return view{}, err
			}
		}
		page, err := stream.Read(r.Context(), c.eng, x.ID, span)
		if err != nil {
			return view{}, err
		}
		for i := range page.Frames {
			data.Frames = append(data.Frames, c.frame(x.Kind, &page.Frames[i]))
			data.Next = page.Frames[i].Position().String()
		}
	}
	return view{template: "output.html", title: "Output of " + x.Kind, data: &data}, nil
}

// frame returns a frame as people may see it.
func (c *console) frame(kind string, f *stream.Entry) shownFrame {
	return shownFrame{f.Attempt, f.Type, c.redacted(kind, f.Payload)}
}

// serveOutput follows the output of an execution after a position.
func (c *console) serveOutput(w http.ResponseWriter, r *http.Request) {
	req, ok := c.authorize(w, r)
	if !ok {
		return
	}
	if !req.access.may(ShowPayload) {
		c.fail(w, req, errForbidden)
		return
	}
	x, err := c.describe(req)
	if err != nil {
		c.fail(w, req, err)
		return
	}
	var options stream.TailOptions
	after := r.Header.Get("Last-Event-ID")
	if after == "" {
		after = r.FormValue("after")
	}
	if after != "" {
		if options.After, err = stream.ParsePosition(after); err != nil {
			c.fail(w, req, err)
			return
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), liveAge)
	defer cancel()
	e := startEvents(w, r)
	for f, err := range stream.Tail(ctx, c.eng, x.ID, options) {
		switch {
		case errors.Is(err, fferr.ErrStreamGap):
			continue
		case err != nil:
			return
		case f.Closed != nil:
			if e.send("closed", f.Position().String(), nil); f.Closed.Last {
				e.send("end", "", nil)
				return
			}
		default:
			text, err := json.Marshal(c.frame(x.Kind, &f))
			if err != nil {
				return
			}
			e.send("", f.Position().String(), text)
		}
		if e.err != nil {
			return
		}
	}
}
