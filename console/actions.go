package console

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/operator"
)

// command is the change of a form. It runs in a transaction together with its entry in the operators' log.
type command struct {
	action Action
	run    func(*change) error

	// many is for a change in several transactions, which writes its own entries and returns a page.
	many func(*console, *request) (view, error)
}

// commands are all changes.
var commands = []command{
	{action: PauseLane, run: (*change).pauseLane},
	{action: ResumeLane, run: (*change).resumeLane},
	{action: CancelExecution, run: (*change).cancelExecution},
	{action: RetryExecution, run: (*change).retryExecution},
	{action: ForkExecution, run: (*change).forkExecution},
	{action: DelayExecution, run: (*change).delayExecution},
	{action: PrioritizeExecution, run: (*change).prioritizeExecution},
	{action: MoveExecution, run: (*change).moveExecution},
	{action: SignalExecution, run: (*change).signalExecution},
	{action: RevokeLease, run: (*change).revokeLease},
	{action: CancelMany, many: (*console).cancelMany},
	{action: RetryMany, many: (*console).retryMany},
	{action: PrioritizeMany, many: (*console).prioritizeMany},
	{action: MoveMany, many: (*console).moveMany},
	{action: CancelFlow, run: (*change).cancelFlow},
	{action: SetLimit, run: (*change).setLimit},
	{action: ResetLimit, run: (*change).resetLimit},
	{action: HoldLimit, run: (*change).holdLimit},
	{action: SetBudget, run: (*change).setBudget},
	{action: ResetBudget, run: (*change).resetBudget},
	{action: PauseSchedule, run: (*change).pauseSchedule},
	{action: ResumeSchedule, run: (*change).resumeSchedule},
	{action: TriggerSchedule, run: (*change).triggerSchedule},
	{action: BackfillSchedule, run: (*change).backfillSchedule},
	{action: ContinueSequence, run: (*change).continueSequence},
	{action: DrainWorker, run: (*change).drainWorker},
	{action: ResumeWorker, run: (*change).resumeWorker},
}

// change is a running command. The command fills the entry for the log.
type change struct {
	*request
	eng   *engine.Engine // in the transaction
	entry operator.Action
	then  string // where to go afterwards, below the path of the handler; "": to the page of the form
}

// maxForm is the largest form in bytes: a signal's payload as a form writes it, and the other fields.
const maxForm = 3*engine.MaxSignalPayload + 64<<10

// errForbidden refuses an action.
var errForbidden = errors.New("not allowed")

// serveAction runs the command of a form and returns to its page.
func (c *console) serveAction(w http.ResponseWriter, r *http.Request) {
	req, ok := c.authorize(w, r)
	if !ok {
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		c.fail(w, req, &fferr.InputError{Field: "form", Reason: fmt.Sprintf("can't be read, or has more than %d bytes", maxForm)})
		return
	}
	action := Action(r.PathValue("action"))
	cmd := commandOf(action)
	switch {
	case cmd == nil:
		c.fail(w, req, errHidden)
		return
	case !req.access.may(action):
		c.fail(w, req, fmt.Errorf("%w: %s", errForbidden, action))
		return
	}
	if cmd.many != nil {
		v, err := cmd.many(c, req)
		if err != nil {
			c.fail(w, req, err)
			return
		}
		c.show(w, req, http.StatusOK, "executions", v)
		return
	}
	then, err := c.change(req, cmd)
	if err != nil {
		c.fail(w, req, err)
		return
	}
	http.Redirect(w, r, c.after(then, r.PostFormValue("here"), action), http.StatusSeeOther)
}

func commandOf(action Action) *command {
	for i := range commands {
		if commands[i].action == action {
			return &commands[i]
		}
	}
	return nil
}

// change runs a command and writes its entry into the operators' log, in one transaction.
func (c *console) change(r *request, cmd *command) (then string, err error) {
	err = c.eng.InTx(r.Context(), func(_ pgx.Tx, eng *engine.Engine) error {
		ch := &change{request: r, eng: eng, entry: operator.Action{By: r.access.Name, Name: string(cmd.action)}}
		if err := cmd.run(ch); err != nil {
			return err
		}
		// The command has locked the execution, which another transaction may have moved after the first check.
		if !ch.entry.Execution.IsZero() {
			if _, err := visible(r, eng, ch.entry.Execution); err != nil {
				return err
			}
		}
		then = ch.then
		return operator.RecordAction(r.Context(), eng, ch.entry)
	})
	return then, err
}

// after returns the page to show after an action: the given one, or the page of the form if it is one of the handler's.
func (c *console) after(then, here string, action Action) string {
	u, err := url.Parse(here)
	if then != "" || err != nil || u.Host != "" || u.Scheme != "" || !strings.HasPrefix(u.Path, c.cfg.Path) {
		u = &url.URL{Path: c.cfg.Path + then}
	}
	query := u.Query()
	query.Set("done", string(action))
	u.RawQuery = query.Encode()
	return u.RequestURI()
}

// invalid returns an error for a field of a form.
func invalid(field, reason string) error { return &fferr.InputError{Field: field, Reason: reason} }

// number returns a field with a whole number.
func (r *request) number(field string) (int, error) {
	n, err := strconv.Atoi(r.text(field))
	if err != nil {
		return 0, invalid(field, "is no whole number")
	}
	return n, nil
}

// duration returns a field with a duration such as 90s, 15m, 36h or 7d, or 0 if it is empty.
func (r *request) duration(field string) (time.Duration, error) {
	text := r.text(field)
	if text == "" {
		return 0, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n >= 0 && n <= 3650 {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, invalid(field, "is no duration such as 90s, 15m, 36h or 7d")
	}
	return d, nil
}

// later returns the instant after a field's duration from now on by the clock of the database. An empty field is the zero time.
func (ch *change) later(field string) (time.Time, error) {
	d, err := ch.duration(field)
	if err != nil || d == 0 {
		return time.Time{}, err
	}
	now, err := ch.eng.Now(ch.Context())
	return now.Add(d), err
}

// instant returns a field of type datetime-local, in UTC.
func (r *request) instant(field string) (time.Time, error) {
	for _, layout := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05", time.RFC3339} {
		if at, err := time.Parse(layout, r.text(field)); err == nil {
			return at, nil
		}
	}
	return time.Time{}, invalid(field, "is no time such as 2026-11-28T18:00, in UTC")
}

// lane returns a field with a lane the person sees.
func (r *request) lane(field string) (id.LaneID, error) {
	lane := id.LaneID(r.text(field))
	switch {
	case lane == "":
		return "", invalid(field, "is empty")
	case !r.access.seesLane(lane):
		return "", errHidden
	}
	return lane, nil
}

// namespace returns a field with a namespace the person sees. An empty one is the engine's.
func (r *request) namespace() (id.Namespace, error) {
	namespace := id.Namespace(r.text("namespace"))
	if !r.access.seesNamespace(namespace) {
		return "", errHidden
	}
	return namespace, nil
}
