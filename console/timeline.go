package console

import (
	"cmp"
	"fmt"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
)

// timeline has the history of an execution, on one axis of time.
type timeline struct {
	Rows     []bar
	Left     int // rows that are not shown
	From, To time.Time
}

// bar is a row of a timeline. Positions are thousandths of the axis.
type bar struct {
	Label string
	Class string // attempt, step, wait, call, signal or now
	Title string
	X, W  float64
	Marks []mark
}

// mark is an instant in a row.
type mark struct {
	X     float64
	Title string
}

// maxRows is the largest number of rows of a timeline.
const maxRows = 200

// rowHeight is the height of a row in pixels.
const rowHeight = 24

// Height returns the height of the picture.
func (t *timeline) Height() int { return len(t.Rows) * rowHeight }

// Middle returns the middle of a row.
func (t *timeline) Middle(row int) int { return row*rowHeight + rowHeight/2 }

// Top returns the upper edge of the bar of a row.
func (t *timeline) Top(row int) int { return row*rowHeight + 5 }

// Short returns the label, shortened in the middle.
func (b bar) Short() string {
	runes := []rune(b.Label)
	if len(runes) <= maxLabel {
		return b.Label
	}
	return string(runes[:maxLabel/2]) + "…" + string(runes[len(runes)-maxLabel/2:])
}

// The axis begins beside the labels.
const (
	maxLabel  = 30
	axisLeft  = 238
	axisWidth = 1000
)

// Left returns the left edge of a bar in the picture.
func (b bar) Left() string { return fmt.Sprintf("%.1f", axisLeft+b.X) }

// Wide returns the width of a bar in the picture.
func (b bar) Wide() string { return fmt.Sprintf("%.1f", b.W) }

// Left returns the position of a mark in the picture.
func (m mark) Left() string { return fmt.Sprintf("%.1f", axisLeft+m.X) }

// timelineOf draws the attempts, then the steps, waits and calls, then the signals.
func timelineOf(x *executionPage, now time.Time) timeline {
	t := timeline{From: x.CreatedAt, To: now}
	if !x.EndedAt.IsZero() {
		t.To = x.EndedAt
	}
	if !t.To.After(t.From) {
		t.To = t.From.Add(time.Millisecond)
	}
	if x.StartedAt.IsZero() && x.EndedAt.IsZero() {
		t.add(t.row("waiting", "wait", t.From, t.To))
	} else if first := x.StartedAt; !first.IsZero() {
		t.add(t.row("waited to start", "wait", t.From, first))
	}
	for _, a := range x.Attempts {
		row := t.row(fmt.Sprintf("attempt %d", a.Index), "attempt "+string(a.Outcome), a.StartedAt, a.EndedAt)
		for _, lost := range a.Lost {
			row.Marks = append(row.Marks, mark{t.x(lost.LostAt), fmt.Sprintf("lease lost by %s: %s", lost.Instance, lost.How)})
		}
		if a.Instance != "" {
			row.Title += ", " + string(a.Instance)
		}
		t.add(row)
	}
	for _, s := range x.Steps {
		row := t.row(s.Name, classOf(s.Form), s.StartedAt, s.EndedAt)
		row.Title += fmt.Sprintf(", %s, %s", s.Form, s.Outcome)
		t.add(row)
	}
	if w := x.Wait; w != nil {
		t.add(t.row(cmp.Or(w.Asked, w.Condition), "wait", w.Since, time.Time{}))
	}
	if len(x.Signals) > 0 {
		row := bar{Label: "signals", Class: "signal"}
		for _, s := range x.Signals {
			row.Marks = append(row.Marks, mark{t.x(s.At), fmt.Sprintf("%s from %s at %s", s.Name, s.Source, s.At.UTC().Format("15:04:05.000"))})
		}
		t.add(row)
	}
	return t
}

func classOf(form engine.StepForm) string {
	switch form {
	case engine.FormWait, engine.FormSleep:
		return "wait"
	case engine.FormCall, engine.FormCallAll:
		return "call"
	}
	return "step"
}

// row returns a row of a span. A zero end is now, a zero beginning the end.
func (t *timeline) row(label, class string, from, to time.Time) bar {
	title := label
	if to.IsZero() {
		to = t.To
		class += " now"
		title += ", until now"
	}
	if from.IsZero() {
		from = to
	}
	title += fmt.Sprintf(": %s to %s, %s", from.UTC().Format("15:04:05.000"), to.UTC().Format("15:04:05.000"), max(to.Sub(from), 0).Round(time.Millisecond))
	left := t.x(from)
	return bar{Label: label, Class: class, Title: title, X: left, W: max(t.x(to)-left, 3)}
}

// x returns the position of an instant.
func (t *timeline) x(at time.Time) float64 {
	return axisWidth * min(max(float64(at.Sub(t.From))/float64(t.To.Sub(t.From)), 0), 1)
}

func (t *timeline) add(row bar) {
	if len(t.Rows) == maxRows {
		t.Left++
		return
	}
	t.Rows = append(t.Rows, row)
}
