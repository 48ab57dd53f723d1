package worker

import (
	"context"
	"errors"
	"log/slog"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
)

// Part is a part of a handler's run: see [Observer].
type Part struct {
	Form PartForm
	Name string // of the step, or the keys of the waitpoints: "approved", "approved, rejected"
}

// PartForm is the form of a part.
type PartForm string

// The forms of parts.
const (
	PartStep   PartForm = "step"   // [Step] and [StepTx], with all retries in the run
	PartTurn   PartForm = "turn"   // [Turn]
	PartCall   PartForm = "call"   // [Call] and [CallAll]: one part creates the executions, another stores their results
	PartSleep  PartForm = "sleep"  // [Sleep], in the run that begins the pause
	PartSignal PartForm = "signal" // a wait for signals: one part begins it, another reports its end
)

// PartReport describes how a part ended.
type PartReport struct {
	Err       error // as the handler gets it; nil also if the handler continues later
	Continues bool  // the execution leaves the worker, and the handler continues later

	// Signals ended a wait. They are reported by the runs that follow the wait until one of them stores a step.
	Signals []engine.ReceivedSignal
}

// errPartLeft reports a part that did not return.
var errPartLeft = errors.New("the part panicked or called runtime.Goexit")

// parts reports the parts of a run to the worker's observer.
type parts struct {
	*Worker
	execution id.ExecutionID
}

// parts returns nil without an observer.
func (j Job[In]) parts() *parts {
	if w := j.steps.worker; w != nil && w.cfg.Observer != nil {
		return &parts{w, j.ID}
	}
	return nil
}

// inPart calls fn as a part of a run. p may be nil.
func inPart[T any](ctx context.Context, p *parts, part Part, fn func(ctx context.Context) (T, error)) (out T, err error) {
	if p == nil {
		return fn(ctx)
	}
	ctx, end := p.begin(ctx, part)
	err = errPartLeft
	defer func() { p.end(part, end, partReport(err)) }()
	return fn(ctx)
}

// partReport returns the report of a part that returned err.
func partReport(err error) PartReport {
	if ContinuesLater(err) {
		on, _ := isLater(err)
		return PartReport{Continues: on.verdict != complete}
	}
	return PartReport{Err: err}
}

func (p *parts) begin(ctx context.Context, part Part) (partCtx context.Context, end func(PartReport)) {
	defer func() {
		if value := recover(); value != nil {
			p.observerPanicked(value, p.attrs(part)...)
			partCtx, end = ctx, nil
		}
	}()
	return p.cfg.Observer.BeginPart(ctx, part)
}

func (p *parts) end(part Part, end func(PartReport), report PartReport) {
	if end == nil {
		return
	}
	defer func() {
		if value := recover(); value != nil {
			p.observerPanicked(value, p.attrs(part)...)
		}
	}()
	end(report)
}

func (p *parts) attrs(part Part) []slog.Attr {
	return []slog.Attr{
		slog.String("execution", p.execution.String()), slog.String("part", string(part.Form)), slog.String("name", part.Name),
	}
}
