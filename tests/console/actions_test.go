package console

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/console"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/schedule"
	"github.com/flowfabric/flowfabric-go/schema"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// act is the use of a form: its page, fields, and the effect in the database.
type act struct {
	action console.Action
	page   string
	fields map[string]string
	effect string // a query
	want   string
}

// acts returns a use of every form, in an order that keeps each possible.
func (w *world) acts(t *testing.T) []act {
	t.Helper()
	x := func(kind engine.Kind[string, string], args string) id.ExecutionID {
		created, err := kind.Create(t.Context(), w.eng, args)
		must(t, err)
		return created.ID
	}
	page := func(x id.ExecutionID) string { return "executions/" + x.Short() }
	column := func(column string, x id.ExecutionID) string {
		return fmt.Sprintf("SELECT %s::text FROM ff_exec_core WHERE partition_key = %d AND execution_id = '%s'", column, x.Partition(), x.UUID())
	}
	retried, cancelled, delayed, urgent, moved, answered := x(broken, "retry"), x(lonely, "cancel"), x(lonely, "delay"), x(lonely, "hurry"), x(lonely, "move"), x(ask, "answer")
	w.await(t, retried, state.PublicFailed)
	w.await(t, answered, state.PublicSuspended)
	many := func(tag string) string {
		for range 3 {
			_, err := lonely.Create(t.Context(), w.eng, tag, engine.WithTag("test.many", tag))
			must(t, err)
		}
		return "executions/many?tag=test.many%3D" + tag
	}
	tagged := func(column, tag string) string {
		return fmt.Sprintf("SELECT string_agg(DISTINCT %s::text, ',') FROM ff_exec_core WHERE raw_fields -> 'tags' ->> 'test.many' = '%s'", column, tag)
	}
	failedMany := func() string {
		_, err := broken.Create(t.Context(), w.eng, "many", engine.WithTag("test.many", "retry"))
		must(t, err)
		fixture.Await(t, "a failure", func() bool { return w.text(t, tagged("public_state", "retry")) == "failed" })
		return "executions/many?tag=test.many%3Dretry&state=failed"
	}
	ticks := "SELECT count(*)::text FROM ff_exec_core WHERE raw_fields -> 'tags' ->> '" + schedule.Tag + "' IS NOT NULL"
	return []act{
		{console.PauseLane, "lanes?lane=nobody", map[string]string{"reason": "a reason", "for": "1h"}, "SELECT reason FROM ffx_pause WHERE name = 'nobody' AND until_ms > 0", "a reason"},
		{console.ResumeLane, "lanes?lane=nobody", nil, "SELECT count(*)::text FROM ffx_pause WHERE name = 'nobody'", "0"},
		{console.CancelExecution, page(cancelled), map[string]string{"reason": "not needed"}, column("cancellation_reason", cancelled), "not needed"},
		{console.RetryExecution, page(retried), nil, column("raw_fields ->> 'replay_count'", retried), "1"},
		{console.ForkExecution, page(w.greeted), nil, "SELECT count(*)::text FROM ff_exec_core WHERE raw_fields -> 'tags' ->> 'ffx.forked_from' = '" + w.greeted.String() + "'", "1"},
		{console.DelayExecution, page(delayed), map[string]string{"for": "2h"}, column("eligibility_state", delayed), "not_eligible_until_time"},
		{console.PrioritizeExecution, page(urgent), map[string]string{"priority": "42"}, column("priority", urgent), "42"},
		{console.MoveExecution, page(moved), map[string]string{"to": "elsewhere"}, column("lane_id", moved), "elsewhere"},
		{console.SignalExecution, "waits", map[string]string{"payload": `{"ok":true}`}, "", ""},
		{console.RevokeLease, page(w.holding), map[string]string{"reason": "stuck"}, column("lease_reclaim_count IS NOT NULL", w.holding), "true"},
		{console.CancelMany, many("cancel"), map[string]string{"reason": "all"}, tagged("public_state", "cancel"), "cancelled"},
		{console.RetryMany, failedMany(), nil, tagged("raw_fields ->> 'replay_count'", "retry"), "1"},
		{console.PrioritizeMany, many("hurry"), map[string]string{"priority": "7"}, tagged("priority", "hurry"), "7"},
		{console.MoveMany, many("move"), map[string]string{"to": "elsewhere"}, tagged("lane_id", "move"), "elsewhere"},
		{console.CancelFlow, "flows/" + w.flow.String(), map[string]string{"reason": "stop"}, "SELECT public_flow_state FROM ff_flow_core WHERE flow_id = '" + w.flow.String() + "'", "cancelled"},
		{console.SetLimit, "limits/default/hold%2Ftenant", map[string]string{"units": "3"}, "SELECT units::text FROM ffx_limit WHERE name = 'hold/tenant'", "3"},
		{console.ResetLimit, "limits/default/hold%2Ftenant", nil, "SELECT units::text FROM ffx_limit WHERE name = 'hold/tenant'", "1"},
		{console.HoldLimit, "limits/default/hold%2Ftenant", map[string]string{"key": "Grace", "for": "1h"}, "SELECT count(*)::text FROM ffx_gate WHERE hold_until_ms IS NOT NULL", "1"},
		{console.SetBudget, "budgets", map[string]string{"hard": "5000", "soft": "900"}, "SELECT policy_json -> 'hard_limits' ->> 'tokens' FROM ff_budget_policy", "5000"},
		{console.ResetBudget, "budgets", nil, "SELECT coalesce(sum(current_value), 0)::text FROM ff_budget_usage", "0"},
		{console.PauseSchedule, "schedules/default/Ada", map[string]string{"reason": "holiday"}, "SELECT pause_reason FROM ffx_schedule", "holiday"},
		{console.ResumeSchedule, "schedules/default/Ada", nil, "SELECT (paused_at_ms IS NULL)::text FROM ffx_schedule", "true"},
		{console.TriggerSchedule, "schedules/default/Ada", nil, ticks, "1"},
		{console.BackfillSchedule, "schedules/default/Ada", map[string]string{"from": ticked.Format("2006-01-02T15:04"), "to": ticked.Add(time.Hour).Format("2006-01-02T15:04")}, ticks, "2"},
		{console.ContinueSequence, "sequences/default/Ada", nil, "SELECT count(*)::text FROM ffx_sequence WHERE stopped_at_ms IS NOT NULL", "0"},
		{console.DrainWorker, "workers", nil, "SELECT count(*)::text FROM ffx_pause WHERE subject <> 'lane'", "1"},
		{console.ResumeWorker, "workers", nil, "SELECT count(*)::text FROM ffx_pause WHERE subject <> 'lane'", "0"},
	}
}

// Every action has a form; the form has its effect in the database, and an entry in the log with the name of the person.
func TestActionsChangeTheDatabaseInABrowser(t *testing.T) {
	w := newWorld(t, "Ada")
	b := open(t)
	used := map[console.Action]bool{console.ShowPayload: true}
	for _, a := range w.acts(t) {
		used[a.action] = true
		fields, err := json.Marshal(a.fields)
		must(t, err)
		b.Visit(t, w.base+a.page)
		entries := "SELECT count(*)::text FROM ff_operator_event WHERE event_type = 'action' AND details ->> 'by' = 'Ada' AND details ->> 'action' = '" + string(a.action) + "'"
		if n := w.text(t, entries); n != "0" {
			t.Errorf("%s: %s entries before the action", a.action, n)
		}
		sent := b.Evaluate(t, fmt.Sprintf(`(() => {
			const form = document.querySelector('form[action$="do/%s"]');
			if (!form) return 'no form';
			form.closest('details').open = true;
			for (const [name, value] of Object.entries(%s || {})) form.elements[name].value = value;
			form.requestSubmit(form.querySelector('button'));
			return 'sent';
		})()`, a.action, fields))
		if sent != "sent" {
			t.Errorf("%s: %s on %s", a.action, sent, a.page)
			continue
		}
		b.Await(t, "document.querySelector('.done, .alert')?.textContent.includes('"+string(a.action)+"')", "true")
		if title := b.Evaluate(t, "document.title"); strings.HasPrefix(title, "Not Found") {
			t.Errorf("%s leads to %s", a.action, title)
		}
		if n := w.text(t, entries); n == "0" {
			t.Errorf("%s: no entry in the log", a.action)
		}
		if a.effect == "" {
			continue
		}
		fixture.Await(t, fmt.Sprintf("%s: %s to be %s", a.action, a.effect, a.want), func() bool { return w.text(t, a.effect) == a.want })
	}
	for _, action := range console.Actions() {
		if !used[action] {
			t.Errorf("no test uses the action %s", action)
		}
	}
	b.wantQuiet(t)
}

// An answer carries the name of the person, and the waiting execution continues.
func TestAnswersCarryTheName(t *testing.T) {
	w := newWorld(t, "Ada")
	w.post(t, console.SignalExecution, http.StatusOK, "id", w.asking.String(), "signal", "rejected", "payload", "true")
	w.await(t, w.asking, state.PublicCompleted)
	result, err := ask.Await(t.Context(), w.eng, w.asking)
	if err != nil || result != "rejected by Ada" {
		t.Errorf("answered %q, %v", result, err)
	}
}

// post sends a form of an action, and returns the page that follows.
func (w *world) post(t *testing.T, action console.Action, want int, fields ...string) string {
	t.Helper()
	form := url.Values{}
	for i := 0; i < len(fields); i += 2 {
		form.Set(fields[i], fields[i+1])
	}
	response, err := http.PostForm(w.base+"do/"+string(action), form)
	must(t, err)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	must(t, err)
	if response.StatusCode != want {
		t.Errorf("%s: status %d, want %d: %s", action, response.StatusCode, want, main(string(body)))
	}
	return string(body)
}

// A person does only what Authorize allows, and sees only their lanes and namespaces.
func TestAccessIsLimited(t *testing.T) {
	w := newWorld(t, "Ada")
	w.person.Store(&console.Access{Name: "Grace", Actions: []console.Action{console.CancelExecution}, Lanes: []id.LaneID{"sync"}})
	for path, want := range map[string]int{
		"lanes": 200, "lanes?lane=mail": 200, "executions": 200, "executions?lane=mail": 404, "executions/" + w.holding.Short(): 200,
		"executions/" + w.greeted.Short(): 404, "executions/" + w.holding.Short() + "/payloads": 403, "executions/" + w.holding.Short() + "/output": 403,
		"frames/" + w.holding.Short(): 403, "flows": 404, "flows/" + w.flow.String(): 404, "sequences": 404, "health": 404, "database": 404, "log": 404,
		"schedules/default/Ada": 404,
	} {
		if status, body := w.get(t, path); status != want {
			t.Errorf("%s: status %d, want %d: %s", path, status, want, main(body))
		}
	}
	if _, body := w.get(t, "lanes"); strings.Contains(body, "nobody") || !strings.Contains(body, "sync") || strings.Contains(body, "lane.pause") || strings.Contains(body, "Health") {
		t.Errorf("the lanes of Grace: %s", main(body))
	}
	if _, body := w.get(t, "waits"); strings.Contains(body, "Publish") {
		t.Errorf("the questions of Grace: %s", main(body))
	}
	w.post(t, console.PauseLane, http.StatusForbidden, "lane", "sync")
	w.post(t, console.CancelExecution, http.StatusNotFound, "id", w.waiting.String())
	w.post(t, "nothing", http.StatusNotFound)
	w.post(t, console.CancelExecution, http.StatusBadRequest, "id", "x")
	w.post(t, console.CancelExecution, http.StatusOK, "id", w.limited.String(), "here", "https://example.com/")
	w.await(t, w.limited, state.PublicCancelled)

	w.person.Store(&console.Access{Name: "Grace", Namespaces: []id.Namespace{"other"}})
	for path, want := range map[string]int{
		"executions": 200, "executions?namespace=default": 404, "executions/" + w.holding.Short(): 404, "limits/default/hold%2Ftenant": 404,
		"flows/" + w.flow.String(): 404, "sequences/default/Ada": 404, "schedules/default/Ada": 404,
	} {
		if status, body := w.get(t, path); status != want {
			t.Errorf("%s in a namespace: status %d, want %d: %s", path, status, want, main(body))
		}
	}
	for _, path := range []string{"budgets", "limits", "schedules", "sequences", "waits", "executions", "flows"} {
		if _, body := w.get(t, path); strings.Contains(body, "Ada") || strings.Contains(body, w.greeted.UUID().String()) {
			t.Errorf("%s shows another namespace: %s", path, main(body))
		}
	}

	w.person.Store(&console.Access{Actions: console.Actions()})
	w.post(t, console.PauseLane, http.StatusForbidden, "lane", "sync") // without a name
}

// A reader's role of the database suffices for all pages. Their buttons are shown as not allowed, and actions are refused.
func TestReadersSeeEverythingAndChangeNothing(t *testing.T) {
	w := newWorld(t, "Ada")
	role := "ff_reader_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	grants, err := schema.Grants(role, schema.GrantOptions{Reader: true})
	must(t, err)
	_, err = w.pool.Exec(t.Context(), "CREATE ROLE "+role+";"+grants, pgx.QueryExecModeSimpleProtocol)
	must(t, err)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		pool, err := pgxpool.New(ctx, w.url)
		must(t, err)
		defer pool.Close()
		_, err = pool.Exec(ctx, "DROP OWNED BY "+role+"; DROP ROLE "+role, pgx.QueryExecModeSimpleProtocol)
		must(t, err)
	})
	w.serve(t, fixture.OpenPool(t, w.url, func(config *pgxpool.Config) { config.ConnConfig.RuntimeParams["role"] = role }))
	for name, path := range w.pages() {
		status, body := w.get(t, path)
		if status != http.StatusOK {
			t.Errorf("%s: status %d: %s", name, status, main(body))
		}
		if strings.Contains(body, "<button>") && strings.Contains(body, `action="/do/`) && !strings.Contains(body, "<button disabled>") {
			t.Errorf("%s has a button without the rights for it", name)
		}
	}
	if _, body := w.get(t, "lanes"); !strings.Contains(body, "Not allowed: the database role") {
		t.Errorf("the lanes don't say what is missing: %s", main(body))
	}
	if body := w.post(t, console.PauseLane, http.StatusForbidden, "lane", "sync"); !strings.Contains(body, "permission denied for table ffx_pause") {
		t.Errorf("the refusal doesn't name the table: %s", main(body))
	}
}

// An action whose entry can't be written has no effect.
func TestActionsCommitWithTheirEntries(t *testing.T) {
	w := newWorld(t, "Ada")
	w.person.Store(&console.Access{Name: strings.Repeat("A", 257), Actions: console.Actions()})
	w.post(t, console.PauseLane, http.StatusBadRequest, "lane", "sync")
	w.post(t, console.CancelExecution, http.StatusBadRequest, "id", w.waiting.String())
	state, err := w.eng.ExecutionState(t.Context(), w.waiting)
	must(t, err)
	if n := w.text(t, "SELECT count(*)::text FROM ffx_pause"); n != "0" || state != "waiting" {
		t.Errorf("%s lanes are paused, and the execution is %s", n, state)
	}
}

// An execution that another transaction moves to a hidden lane, between the check and the change, is not changed.
func TestAccessIsCheckedUnderTheLock(t *testing.T) {
	w := newWorld(t, "Ada")
	w.person.Store(&console.Access{Name: "Grace", Actions: console.Actions(), Lanes: []id.LaneID{"nobody"}})
	tx, err := w.pool.Begin(t.Context())
	must(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	must(t, operator.Move(t.Context(), w.eng.WithTx(tx), w.waiting, "secret"))
	answered := fixture.Async(t, func(context.Context) string {
		return w.post(t, console.CancelExecution, http.StatusNotFound, "id", w.waiting.String())
	})
	fixture.Await(t, "the cancel to wait for the move", func() bool {
		return w.text(t, "SELECT count(*)::text FROM pg_locks WHERE NOT granted AND locktype IN ('transactionid', 'tuple')") != "0"
	})
	must(t, tx.Commit(t.Context()))
	answered()
	state, err := w.eng.ExecutionState(t.Context(), w.waiting)
	must(t, err)
	if n := w.text(t, "SELECT count(*)::text FROM ff_operator_event WHERE event_type = 'action'"); state != "waiting" || n != "0" {
		t.Errorf("the execution is %s, with %s entries in the log", state, n)
	}
}

// Payloads, results, signals, steps and frames are shown as Config.Redact returns them.
func TestPayloadsAreRedacted(t *testing.T) {
	w := newWorld(t, "a secret")
	for path, want := range map[string]string{"payloads": "hello a …", "output": "looking up a …"} {
		_, body := w.get(t, w.pages()[path])
		if hidden := strings.ReplaceAll(want, "…", "secret"); strings.Contains(body, hidden) || !strings.Contains(body, want) {
			t.Errorf("%s: %s", path, main(body))
		}
	}
}

// Without Authorize nothing is served but the stylesheet and the script.
func TestNothingIsServedWithoutAuthorize(t *testing.T) {
	w := newWorld(t, "Ada")
	closed := httptest.NewServer(console.Handler(w.eng, console.Config{Path: "/"}))
	t.Cleanup(closed.Close)
	w.base = closed.URL + "/"
	for name, path := range w.pages() {
		if status, _ := w.get(t, path); status != http.StatusForbidden {
			t.Errorf("%s: status %d", name, status)
		}
	}
	for _, path := range []string{"live/lanes", "frames/" + w.greeted.Short()} {
		if status, _ := w.get(t, path); status != http.StatusForbidden {
			t.Errorf("%s: status %d", path, status)
		}
	}
	w.post(t, console.PauseLane, http.StatusForbidden, "lane", "sync")
}

// A form of another site changes nothing, and nothing is read or changed without Authorize.
func TestForeignFormsAreRefused(t *testing.T) {
	w := newWorld(t, "Ada")
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.base+"do/lane.pause", strings.NewReader("lane=sync"))
	must(t, err)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Sec-Fetch-Site", "cross-site")
	response, err := http.DefaultClient.Do(request)
	must(t, err)
	must(t, response.Body.Close())
	if response.StatusCode != http.StatusForbidden {
		t.Errorf("a form of another site: %s", response.Status)
	}
	if n := w.text(t, "SELECT count(*)::text FROM ffx_pause"); n != "0" {
		t.Error("a form of another site paused a lane")
	}
	policy := response.Header.Get("Content-Security-Policy")
	if policy != "" && (strings.Contains(policy, "unsafe") || !strings.Contains(policy, "default-src 'none'")) {
		t.Errorf("the policy is %q", policy)
	}
}
