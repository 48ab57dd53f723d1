package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
)

// stepView is a finished step in the JSON of `ff execution show`.
type stepView struct {
	Name      string             `json:"name"`
	Outcome   engine.StepOutcome `json:"outcome"`
	Attempt   int                `json:"attempt_index"`
	Tries     int                `json:"tries"`
	Error     string             `json:"error,omitempty"` // of the last failed try
	Bytes     int                `json:"bytes"`           // of the result
	StartedAt string             `json:"started_at"`
	EndedAt   string             `json:"ended_at"`
}

func readSteps(ctx context.Context, eng *engine.Engine, execution id.ExecutionID) ([]stepView, error) {
	steps, err := eng.Steps(ctx, execution)
	views := make([]stepView, len(steps))
	for i, s := range steps {
		views[i] = stepView{
			Name: s.Name, Outcome: s.Outcome, Attempt: s.Attempt, Tries: s.Tries, Error: s.Error, Bytes: s.ResultSize,
			StartedAt: timestamp(s.StartedAt), EndedAt: timestamp(s.EndedAt),
		}
	}
	return views, err
}

// outcomeWord returns the word for an outcome in the view ffx_steps.
func outcomeWord(outcome engine.StepOutcome) string {
	switch outcome {
	case engine.StepSucceeded:
		return "succeeded"
	case engine.StepSlept:
		return "paused"
	case engine.StepSignalled:
		return "signalled"
	case engine.StepTimedOut:
		return "timed out"
	case engine.StepCalled:
		return "calling"
	case engine.StepFailed:
		return "failed"
	}
	return printable(string(outcome))
}

// shownSteps is the number of steps printed, counted from the last.
const shownSteps = 20

// renderSteps renders steps, each followed by a line for the error of its last failed try.
func renderSteps(steps []stepView) string {
	if len(steps) == 0 {
		return ""
	}
	var text strings.Builder
	text.WriteString("\n")
	if earlier := len(steps) - shownSteps; earlier > 0 {
		fmt.Fprintf(&text, "%d earlier steps, see --json\n", earlier)
		steps = steps[earlier:]
	}
	t := newTable(table.Row{"STEP", "STARTED", "ENDED", "OUTCOME", "ATTEMPT", "TRIES"})
	for _, s := range steps {
		t.AppendRow(table.Row{
			shortened(printable(s.Name), 24), seconds(s.StartedAt), seconds(s.EndedAt), outcomeWord(s.Outcome), s.Attempt, s.Tries,
		})
	}
	lines := strings.Split(t.Render(), "\n")
	text.WriteString(lines[0] + "\n")
	for i, s := range steps {
		text.WriteString(lines[i+1] + "\n")
		if s.Error != "" {
			text.WriteString("  before: " + printable(s.Error) + "\n")
		}
	}
	return text.String()
}
