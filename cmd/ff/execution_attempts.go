package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

// attemptView is an attempt in the JSON of `ff execution show`.
type attemptView struct {
	Index     int                  `json:"index"`
	ID        id.AttemptID         `json:"id"`
	Type      state.AttemptType    `json:"type"`
	Current   bool                 `json:"current"`
	Worker    id.WorkerID          `json:"worker"`
	Instance  id.WorkerInstanceID  `json:"worker_instance"`
	Epoch     int64                `json:"epoch"`
	Lost      []lostView           `json:"lost_leases,omitempty"`
	StartedAt string               `json:"started_at,omitempty"`
	ResumedAt string               `json:"resumed_at,omitempty"` // by its last lease, if an earlier one began the attempt
	EndedAt   string               `json:"ended_at,omitempty"`
	NextAt    string               `json:"next_at,omitempty"` // when a retry or a delayed attempt continues
	TimeoutAt string               `json:"timeout_at,omitempty"`
	Outcome   state.AttemptOutcome `json:"outcome"`
	Failure   *failureView         `json:"failure"`
	Lease     *leaseView           `json:"lease"`
	Frames    int64                `json:"frames,omitempty"` // of its output stream
	FrameAt   string               `json:"frame_at,omitempty"`
	Problem   string               `json:"problem,omitempty"` // the unreadable part
}

// lostView is a lease lost by a worker before the attempt ended.
type lostView struct {
	Worker   id.WorkerID          `json:"worker"`
	Instance id.WorkerInstanceID  `json:"worker_instance"`
	Epoch    int64                `json:"epoch"`
	LostAt   string               `json:"lost_at"`
	How      state.LeaseEventType `json:"how"`
}

func (l lostView) String() string {
	return fmt.Sprintf("lost by %s at %s: %s", printable(string(l.Instance)), seconds(l.LostAt), printable(string(l.How)))
}

type failureView struct {
	Message  string       `json:"message"`
	Class    policy.Class `json:"class"`
	Category string       `json:"category"`
	Detail   string       `json:"detail,omitempty"` // for example the stack of a panic
}

// progressView is the last reported progress of an execution.
type progressView struct {
	Percent *int   `json:"percent"`
	Message string `json:"message"`
	At      string `json:"at,omitempty"`
}

func newProgressView(p engine.ProgressReport) *progressView {
	if p == (engine.ProgressReport{}) {
		return nil
	}
	return &progressView{p.Percent, p.Message, timestamp(p.At)}
}

func (p *progressView) String() string {
	if p == nil {
		return ""
	}
	var parts []string
	if p.Percent != nil {
		parts = append(parts, fmt.Sprintf("%d %%", *p.Percent))
	}
	for _, part := range []string{p.Message, p.At} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ", ")
}

func readAttempts(ctx context.Context, eng *engine.Engine, execution id.ExecutionID) ([]attemptView, error) {
	views := []attemptView{}
	for a, err := range eng.Attempts(ctx, execution) {
		if err != nil {
			return nil, err
		}
		view := attemptView{
			Index: a.Index, ID: a.ID, Type: a.Type, Current: a.Current, Worker: a.Worker, Instance: a.Instance, Epoch: a.Epoch,
			StartedAt: timestamp(a.StartedAt), ResumedAt: timestamp(a.ResumedAt), EndedAt: timestamp(a.EndedAt), NextAt: timestamp(a.NextAt), TimeoutAt: timestamp(a.TimeoutAt),
			Outcome: a.Outcome, Frames: a.Frames, FrameAt: timestamp(a.FrameAt),
		}
		if a.Failure != nil {
			view.Failure = &failureView{a.Failure.Message, a.Failure.Class, a.Failure.Category, a.Failure.Detail}
		}
		if l := a.Lease; l != nil {
			view.Lease = &leaseView{ID: l.ID, Epoch: l.Epoch, Attempt: l.Attempt, Instance: l.Instance, ExpiresAt: timestamp(l.ExpiresAt)}
		}
		for _, l := range a.Lost {
			view.Lost = append(view.Lost, lostView{l.Worker, l.Instance, l.Epoch, timestamp(l.LostAt), l.How})
		}
		if a.Err != nil {
			view.Problem = a.Err.Error()
		}
		views = append(views, view)
	}
	return views, nil
}

// shownAttempts is the number of attempts printed, counted from the last.
const shownAttempts = 20

// shownLost is the number of lost leases printed for an attempt, counted from the last.
const shownLost = 3

// renderAttempts renders attempts, each followed by a line for each lost lease and for the failure.
func renderAttempts(attempts []attemptView) string {
	if len(attempts) == 0 {
		return ""
	}
	var text strings.Builder
	text.WriteString("\n")
	if earlier := len(attempts) - shownAttempts; earlier > 0 {
		fmt.Fprintf(&text, "%d earlier attempts, see --json\n", earlier)
		attempts = attempts[earlier:]
	}
	t := newTable(table.Row{"ATTEMPT", "STARTED", "ENDED", "OUTCOME", "WORKER"})
	for _, a := range attempts {
		outcome := string(a.Outcome)
		switch {
		case a.Problem != "":
			outcome = "unreadable"
		case a.Lease != nil:
			outcome = "running"
		}
		t.AppendRow(table.Row{a.Index, seconds(a.StartedAt), seconds(a.EndedAt), shortened(outcome, 12), shortened(printable(string(a.Instance)), 14)})
	}
	lines := strings.Split(t.Render(), "\n")
	text.WriteString(lines[0] + "\n")
	for i, a := range attempts {
		text.WriteString(lines[i+1] + "\n")
		if a.Problem != "" {
			text.WriteString("  " + printable(a.Problem) + "\n")
		}
		for _, l := range a.Lost[max(len(a.Lost)-shownLost, 0):] {
			text.WriteString("  " + l.String() + "\n")
		}
		if f := a.Failure; f != nil {
			text.WriteString("  " + f.String() + "\n")
		}
		if a.Frames > 0 {
			fmt.Fprintf(&text, "  frames: %d, the newest at %s\n", a.Frames, seconds(a.FrameAt))
		}
		if a.NextAt != "" {
			text.WriteString("  continues at " + a.NextAt + "\n")
		}
	}
	return text.String()
}

func (f *failureView) String() string {
	kind := string(f.Class)
	switch {
	case kind == "":
		kind = f.Category
	case f.Category != "" && f.Category != kind:
		kind += " " + f.Category
	}
	if kind == "" {
		kind = "failed"
	}
	text := printable(kind) + ": " + printable(f.Message)
	if f.Detail != "" {
		text += " (details: --json)"
	}
	return text
}

// seconds truncates a timestamp to seconds.
func seconds(timestamp string) string {
	before, _, _ := strings.Cut(timestamp, ".")
	return before
}
