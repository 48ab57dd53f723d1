package console

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
)

// Access lists the rights of a person. A person with the zero value reads everything but payloads, and changes nothing.
type Access struct {
	// Name is the name of the person for the operators' log, at most 256 bytes. Actions need one.
	Name string

	Actions []Action // allowed; nil: none

	// Lanes and Namespaces limit executions and everything that belongs to a lane or a namespace. Nil allows all. A limited
	// person doesn't see the pages of the whole database, such as Health.
	Lanes      []id.LaneID
	Namespaces []id.Namespace
}

// Action is something a person may be allowed to do.
type Action string

// The actions. Each belongs to a form of the pages. ShowPayload shows payloads, results and output.
const (
	ShowPayload Action = "payload.show"

	PauseLane  Action = "lane.pause"
	ResumeLane Action = "lane.resume"

	CancelExecution     Action = "execution.cancel"
	RetryExecution      Action = "execution.retry"
	ForkExecution       Action = "execution.fork"
	DelayExecution      Action = "execution.delay"
	PrioritizeExecution Action = "execution.priority"
	MoveExecution       Action = "execution.move"
	SignalExecution     Action = "execution.signal" // also answers questions
	RevokeLease         Action = "execution.revoke"

	CancelMany     Action = "executions.cancel"
	RetryMany      Action = "executions.retry"
	PrioritizeMany Action = "executions.priority"
	MoveMany       Action = "executions.move"

	CancelFlow Action = "flow.cancel"

	SetLimit    Action = "limit.set"
	ResetLimit  Action = "limit.reset"
	HoldLimit   Action = "limit.hold"
	SetBudget   Action = "budget.set"
	ResetBudget Action = "budget.reset"

	PauseSchedule    Action = "schedule.pause"
	ResumeSchedule   Action = "schedule.resume"
	TriggerSchedule  Action = "schedule.trigger"
	BackfillSchedule Action = "schedule.backfill"

	ContinueSequence Action = "sequence.continue"

	DrainWorker  Action = "worker.drain"
	ResumeWorker Action = "worker.resume"
)

// Actions returns all actions.
func Actions() []Action {
	all := []Action{ShowPayload}
	for _, c := range commands {
		all = append(all, c.action)
	}
	return all
}

// may reports whether the person may do something. Nothing is done without a name for the log.
func (a *Access) may(action Action) bool { return a.Name != "" && slices.Contains(a.Actions, action) }

// errHidden refuses anything the person may not see, as if it did not exist.
var errHidden = fferr.ErrNotFound

// seesLane reports whether the person sees a lane.
func (a *Access) seesLane(lane id.LaneID) bool {
	return a.Lanes == nil || slices.Contains(a.Lanes, lane)
}

// seesNamespace reports whether the person sees a namespace.
func (a *Access) seesNamespace(namespace id.Namespace) bool {
	return a.Namespaces == nil || slices.Contains(a.Namespaces, namespace)
}

// seesAll reports whether nothing is hidden from the person.
func (a *Access) seesAll() bool { return a.Lanes == nil && a.Namespaces == nil }

// choose returns the namespace to list: the given one, or the person's first.
func (a *Access) choose(namespace id.Namespace) (id.Namespace, error) {
	if a.Namespaces != nil {
		if len(a.Namespaces) == 0 {
			return "", fmt.Errorf("%w: no namespace is allowed", errHidden)
		}
		namespace = cmp.Or(namespace, a.Namespaces[0])
	}
	if !a.seesNamespace(namespace) {
		return "", errHidden
	}
	return namespace, nil
}

// narrow limits a filter to the executions that the person sees. A person with several lanes chooses one.
func (a *Access) narrow(filter *engine.ExecutionFilter) (err error) {
	if filter.Namespace, err = a.choose(filter.Namespace); err != nil {
		return err
	}
	if a.Lanes != nil {
		if len(a.Lanes) == 0 {
			return fmt.Errorf("%w: no lane is allowed", errHidden)
		}
		filter.Lane = cmp.Or(filter.Lane, a.Lanes[0])
	}
	if filter.Lane != "" && !a.seesLane(filter.Lane) {
		return errHidden
	}
	return nil
}
