package console

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/state"
)

func (ch *change) pauseLane() error {
	lane, err := ch.lane("lane")
	if err != nil {
		return err
	}
	until, err := ch.later("for")
	if err != nil {
		return err
	}
	reason := ch.text("reason")
	ch.entry.Object, ch.entry.Detail = string(lane), reason
	return operator.PauseLane(ch.Context(), ch.eng, lane, operator.LanePause{Reason: reason, Until: until})
}

func (ch *change) resumeLane() error {
	lane, err := ch.lane("lane")
	if err != nil {
		return err
	}
	ch.entry.Object = string(lane)
	return operator.ResumeLane(ch.Context(), ch.eng, lane)
}

// execution returns the execution of the form if the person sees it.
func (ch *change) execution() (*engine.ExecutionSnapshot, error) {
	x, err := id.ParseExecutionID(ch.text("id"))
	if err != nil {
		return nil, invalid("id", "is no id of an execution")
	}
	snapshot, err := visible(ch.request, ch.eng, x)
	if err != nil {
		return nil, err
	}
	ch.entry.Execution, ch.entry.Object = x, snapshot.Kind
	return snapshot, nil
}

func (ch *change) cancelExecution() error {
	x, err := ch.execution()
	if err != nil {
		return err
	}
	ch.entry.Detail = ch.text("reason")
	return ch.eng.CancelExecution(ch.Context(), engine.CancelSpec{ID: x.ID, Reason: ch.entry.Detail})
}

func (ch *change) retryExecution() error {
	x, err := ch.execution()
	if err != nil {
		return err
	}
	var options []operator.ReplayOption
	if x.State.Public == state.PublicCompleted && ch.text("completed") != "" {
		options = append(options, operator.ReplayCompleted)
	}
	switch step := ch.text("step"); {
	case ch.text("steps") == "none":
		options = append(options, operator.ReplayWithoutSteps)
		ch.entry.Detail = "without its steps"
	case step != "":
		options = append(options, operator.ReplayFromStep(step))
		ch.entry.Detail = "from step " + step
	}
	_, err = operator.Replay(ch.Context(), ch.eng, x.ID, options...)
	return err
}

func (ch *change) forkExecution() error {
	x, err := ch.execution()
	if err != nil {
		return err
	}
	before := ch.text("step")
	fork, err := operator.Fork(ch.Context(), ch.eng, x.ID, operator.ForkSpec{Before: before})
	if err != nil {
		return err
	}
	ch.entry.Detail = "fork " + fork.ID.String()
	if before != "" {
		ch.entry.Detail += " before step " + before
	}
	ch.then = "executions/" + fork.ID.UUID().String()
	return nil
}

func (ch *change) delayExecution() error {
	x, err := ch.execution()
	if err != nil {
		return err
	}
	until, err := ch.later("for")
	if err != nil {
		return err
	}
	if until.IsZero() {
		if until, err = ch.eng.Now(ch.Context()); err != nil {
			return err
		}
	}
	ch.entry.Detail = "until " + until.UTC().Format("2006-01-02 15:04:05 UTC")
	return operator.Delay(ch.Context(), ch.eng, x.ID, until)
}

func (ch *change) prioritizeExecution() error {
	x, err := ch.execution()
	if err != nil {
		return err
	}
	priority, err := ch.number("priority")
	if err != nil {
		return err
	}
	ch.entry.Detail = fmt.Sprintf("from %d to %d", x.Priority, priority)
	return operator.Prioritize(ch.Context(), ch.eng, x.ID, priority)
}

func (ch *change) moveExecution() error {
	x, err := ch.execution()
	if err != nil {
		return err
	}
	to, err := ch.lane("to")
	if err != nil {
		return err
	}
	ch.entry.Detail = fmt.Sprintf("from lane %s to %s", x.Lane, to)
	return operator.Move(ch.Context(), ch.eng, x.ID, to)
}

// signalExecution sends a signal with the name of the person as its source.
func (ch *change) signalExecution() error {
	x, err := ch.execution()
	if err != nil {
		return err
	}
	spec := engine.SignalSpec{Execution: x.ID, Name: ch.text("signal"), Source: ch.access.Name, SourceType: "user"}
	if payload := ch.text("payload"); payload != "" {
		if !json.Valid([]byte(payload)) {
			return invalid("payload", "is not JSON")
		}
		spec.Payload = []byte(payload)
	}
	ch.entry.Detail = spec.Name
	_, err = ch.eng.Signal(ch.Context(), spec)
	return err
}

func (ch *change) revokeLease() error {
	x, err := ch.execution()
	if err != nil {
		return err
	}
	ch.entry.Detail = ch.text("reason")
	revoked, err := operator.Revoke(ch.Context(), ch.eng, operator.RevokeSpec{ID: x.ID, Reason: ch.entry.Detail})
	if err == nil && revoked.NotRevoked != "" {
		return fmt.Errorf("%w: %s", fferr.ErrNotActive, revoked.NotRevoked)
	}
	return err
}

func (ch *change) cancelFlow() error {
	flow, err := id.ParseFlowID(ch.text("id"))
	if err != nil {
		return invalid("id", "is no id of a flow")
	}
	snapshot, err := ch.eng.DescribeFlow(ch.Context(), flow)
	if err != nil {
		return err
	}
	if ch.access.Lanes != nil || !ch.access.seesNamespace(snapshot.Namespace) {
		return errHidden
	}
	policy := state.FlowCancelPolicy(ch.text("policy"))
	cancelled, err := ch.eng.CancelFlow(ch.Context(), engine.CancelFlowSpec{ID: flow, Policy: policy, Reason: ch.text("reason")})
	ch.entry.Object, ch.entry.Detail = "flow "+flow.String(), strconv.Itoa(len(cancelled.Members))+" members: "+ch.text("reason")
	return err
}
