package console

import (
	"errors"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/explain"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
)

// executionPage is the data of the page of an execution.
type executionPage struct {
	*engine.ExecutionSnapshot
	Why      []explain.Cause
	Attempts []engine.Attempt // the newest, at most maxAttempts
	Steps    []engine.Step
	Signals  []engine.ReceivedSignal // without payloads
	Timeline timeline
}

// maxAttempts is the number of attempts on the page of an execution.
const maxAttempts = 50

// execution reads one execution with its causes, attempts, steps and signals.
func (c *console) execution(r *request) (view, error) {
	data, err := c.describe(r)
	if err != nil {
		return view{}, err
	}
	why, err := explain.Execution(r.Context(), c.eng, data.ID)
	if err != nil {
		return view{}, err
	}
	data.Why = why.Causes
	if data.Attempts, err = c.attempts(r, data.ExecutionSnapshot); err != nil {
		return view{}, err
	}
	if data.Steps, err = c.eng.Steps(r.Context(), data.ID); err != nil {
		return view{}, err
	}
	if data.Signals, err = c.eng.ReceivedSignals(r.Context(), data.ID); err != nil {
		return view{}, err
	}
	data.Timeline = timelineOf(data, why.At)
	return view{template: "execution.html", title: data.Kind, data: data}, nil
}

// describe reads the execution of the path, if the person sees it.
func (c *console) describe(r *request) (*executionPage, error) {
	x, err := c.find(r, r.PathValue("id"))
	if err != nil {
		return nil, errors.Join(fferr.ErrNotFound, err)
	}
	snapshot, err := visible(r, c.eng, x)
	if err != nil {
		return nil, err
	}
	return &executionPage{ExecutionSnapshot: snapshot}, nil
}

// visible reads an execution if the person sees it.
func visible(r *request, eng *engine.Engine, x id.ExecutionID) (*engine.ExecutionSnapshot, error) {
	snapshot, err := eng.DescribeExecution(r.Context(), x)
	if err == nil && !(r.access.seesLane(snapshot.Lane) && r.access.seesNamespace(snapshot.Namespace)) {
		return nil, errHidden
	}
	return snapshot, err
}

// attempts returns the newest attempts of an execution.
func (c *console) attempts(r *request, x *engine.ExecutionSnapshot) ([]engine.Attempt, error) {
	if x.Attempt == nil {
		return nil, nil
	}
	page, err := c.eng.ListAttempts(r.Context(), x.ID, "", maxAttempts)
	return page.Items, err
}

// Ended reports whether the execution has ended.
func (p *executionPage) Ended() bool { return p.State.Phase == state.Terminal }

// Waiting reports whether the execution is in the queue, where its place can be changed.
func (p *executionPage) Waiting() bool { return p.State.Public == state.PublicWaiting }

// payloadsPage is the data of the page of payloads.
type payloadsPage struct {
	*engine.ExecutionSnapshot
	Payload, Result string
	Steps           []shownStep
	Signals         []shownSignal
}

type shownStep struct{ Name, Result string }

type shownSignal struct{ Name, Source, Payload string }

// payloads reads the payload and the results of an execution, for people with [ShowPayload].
func (c *console) payloads(r *request) (view, error) {
	if !r.access.may(ShowPayload) {
		return view{}, errForbidden
	}
	x, err := c.describe(r)
	if err != nil {
		return view{}, err
	}
	data := payloadsPage{ExecutionSnapshot: x.ExecutionSnapshot}
	input, err := c.eng.ExecutionInput(r.Context(), x.ID)
	if err != nil {
		return view{}, err
	}
	data.Payload = c.redacted(x.Kind, input.Payload)
	if x.State.Public == state.PublicCompleted {
		result, err := c.eng.ExecutionResult(r.Context(), x.ID)
		if err != nil {
			return view{}, err
		}
		data.Result = c.redacted(x.Kind, result)
	}
	steps, err := c.eng.StepResults(r.Context(), x.ID)
	if err != nil {
		return view{}, err
	}
	for _, s := range steps {
		data.Steps = append(data.Steps, shownStep{s.Name, c.redacted(x.Kind, s.Result)})
	}
	signals, err := c.eng.ReceivedSignals(r.Context(), x.ID)
	if err != nil {
		return view{}, err
	}
	for _, s := range signals {
		data.Signals = append(data.Signals, shownSignal{s.Name, s.Source, c.redacted(x.Kind, s.Payload)})
	}
	return view{template: "payloads.html", title: "Payloads of " + x.Kind, data: &data}, nil
}

// maxShown limits a shown payload, in bytes.
const maxShown = 256 << 10

// redacted returns the part of a payload to show, indented.
func (c *console) redacted(kind string, payload []byte) string {
	if c.cfg.Redact != nil {
		payload = c.cfg.Redact(kind, payload)
	}
	if len(payload) > maxShown {
		return pretty(payload[:maxShown]) + " … (cut)"
	}
	return pretty(payload)
}
