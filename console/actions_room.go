package console

import (
	"fmt"
	"strings"

	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/limit"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/schedule"
)

// limitName returns the limit of the form.
func (ch *change) limitName() (limit.Name, error) {
	namespace, err := ch.namespace()
	name := limit.Name{Namespace: namespace, Name: ch.text("name")}
	ch.entry.Object = objectName(namespace, name.Name)
	return name, err
}

// objectName returns a name with its namespace, as the ff command shows it.
func objectName(namespace id.Namespace, name string) string {
	if namespace == "" {
		return name
	}
	return string(namespace) + "/" + name
}

func (ch *change) setLimit() error {
	name, err := ch.limitName()
	if err != nil {
		return err
	}
	to := limit.Setting{By: ch.access.Name}
	if to.Units, err = ch.number("units"); err != nil {
		return err
	}
	if to.Window, err = ch.duration("window"); err != nil {
		return err
	}
	ch.entry.Detail = fmt.Sprintf("%d units", to.Units)
	if to.Window > 0 {
		ch.entry.Detail += " per " + to.Window.String()
	}
	return limit.Set(ch.Context(), ch.eng, name, to)
}

func (ch *change) resetLimit() error {
	name, err := ch.limitName()
	if err != nil {
		return err
	}
	return limit.Reset(ch.Context(), ch.eng, name, ch.access.Name)
}

func (ch *change) holdLimit() error {
	name, err := ch.limitName()
	if err != nil {
		return err
	}
	key := ch.FormValue("key")
	hold := limit.Holding{By: ch.access.Name}
	if hold.Until, err = ch.later("for"); err != nil {
		return err
	}
	ch.entry.Detail = fmt.Sprintf("key %q, no hold", key)
	if !hold.Until.IsZero() {
		ch.entry.Detail = fmt.Sprintf("key %q until %s", key, hold.Until.UTC().Format("2006-01-02 15:04:05 UTC"))
	}
	_, err = limit.Hold(ch.Context(), ch.eng, name, key, hold)
	return err
}

// budget returns the budget of the form if the person sees it.
func (ch *change) budget() (budget.Budget, error) {
	b, err := id.ParseBudgetID(ch.text("id"))
	if err != nil {
		return budget.Budget{}, invalid("id", "is no id of a budget")
	}
	found, err := budget.Get(ch.Context(), ch.eng, b)
	if err == nil && !ch.access.seesNamespace(found.Namespace) {
		err = errHidden
	}
	ch.entry.Object = objectName(found.Namespace, found.Key)
	if found.Key == "" {
		ch.entry.Object = b.String()
	}
	return found, err
}

// setBudget changes the limits of one dimension.
func (ch *change) setBudget() error {
	b, err := ch.budget()
	if err != nil {
		return err
	}
	dimension := ch.text("dimension")
	hard, err := ch.number("hard")
	if err != nil {
		return err
	}
	soft, err := ch.number("soft")
	if err != nil {
		return err
	}
	if _, ok := b.Limits[dimension]; !ok {
		return fmt.Errorf("%w: dimension %q", fferr.ErrNotFound, dimension)
	}
	b.Limits[dimension] = budget.Limit{Hard: int64(hard), Soft: int64(soft)}
	ch.entry.Detail = fmt.Sprintf("%s hard %d, soft %d", dimension, hard, soft)
	return budget.Set(ch.Context(), ch.eng, budget.Spec{
		ID: b.ID, Key: b.Key, Namespace: b.Namespace, Limits: b.Limits, ResetEvery: b.ResetEvery, Retention: b.Retention,
		CancelOnBreach: b.CancelOnBreach, Labels: b.Labels,
	})
}

func (ch *change) resetBudget() error {
	b, err := ch.budget()
	if err != nil {
		return err
	}
	_, err = budget.Reset(ch.Context(), ch.eng, b.ID)
	return err
}

// schedule returns the schedule of the form if the person sees the lane of its executions.
func (ch *change) schedule() (schedule.Name, error) {
	namespace, err := ch.namespace()
	if err != nil {
		return schedule.Name{}, err
	}
	name := schedule.Name{Namespace: namespace, Name: ch.text("name")}
	ch.entry.Object = objectName(namespace, name.Name)
	s, _, err := schedule.Describe(ch.Context(), ch.eng, name, 0)
	if err == nil && !ch.access.seesLane(s.Lane) {
		err = errHidden
	}
	return name, err
}

func (ch *change) pauseSchedule() error {
	name, err := ch.schedule()
	if err != nil {
		return err
	}
	ch.entry.Detail = ch.text("reason")
	return schedule.Pause(ch.Context(), ch.eng, name, ch.entry.Detail)
}

func (ch *change) resumeSchedule() error {
	name, err := ch.schedule()
	if err != nil {
		return err
	}
	return schedule.Resume(ch.Context(), ch.eng, name)
}

func (ch *change) triggerSchedule() error {
	name, err := ch.schedule()
	if err != nil {
		return err
	}
	x, err := schedule.Trigger(ch.Context(), ch.eng, name)
	ch.entry.Execution, ch.then = x, "executions/"+x.Short()
	return err
}

func (ch *change) backfillSchedule() error {
	name, err := ch.schedule()
	if err != nil {
		return err
	}
	from, err := ch.instant("from")
	if err != nil {
		return err
	}
	to, err := ch.instant("to")
	if err != nil {
		return err
	}
	created, err := schedule.Backfill(ch.Context(), ch.eng, name, from, to)
	ch.entry.Detail = fmt.Sprintf("%d executions from %s to %s", len(created), from.Format("2006-01-02 15:04"), to.Format("2006-01-02 15:04"))
	return err
}

func (ch *change) continueSequence() error {
	namespace, err := ch.namespace()
	if err != nil {
		return err
	}
	name := engine.SequenceName{Namespace: namespace, Key: ch.FormValue("key")}
	ch.entry.Object = objectName(namespace, name.Key)
	ch.then = "sequences" // the last execution may end meanwhile, and the sequence with it
	return operator.ContinueSequence(ch.Context(), ch.eng, name)
}

// instance returns the worker of the form. A worker claims from several lanes, so draining needs the right to all lanes.
func (ch *change) instance() (id.WorkerInstanceID, error) {
	if ch.access.Lanes != nil {
		return "", errHidden
	}
	instance := id.WorkerInstanceID(strings.TrimSpace(ch.FormValue("instance")))
	ch.entry.Object = string(instance)
	return instance, nil
}

func (ch *change) drainWorker() error {
	instance, err := ch.instance()
	if err != nil {
		return err
	}
	return operator.DrainWorker(ch.Context(), ch.eng, instance)
}

func (ch *change) resumeWorker() error {
	instance, err := ch.instance()
	if err != nil {
		return err
	}
	return operator.ResumeWorker(ch.Context(), ch.eng, instance)
}
