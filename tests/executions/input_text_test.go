package executions

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/budget"
	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/events"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/limit"
	"github.com/flowfabric/flowfabric-go/schedule"
	"github.com/flowfabric/flowfabric-go/state"
	"github.com/flowfabric/flowfabric-go/stream"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// Text that the server cannot store is refused before it is sent: sent, it would abort a caller's transaction, or end the
// operation as if the database had failed. Every exported call that takes text is called with such text in each place.
func TestNoTextThatCannotBeStoredIsSent(t *testing.T) {
	f := fixture.NewCloned(t) // in the shared database other tests seed keys
	for _, of := range []func(*engine.Engine) any{
		func(e *engine.Engine) any { return e },
		func(e *engine.Engine) any { return e },
		func(e *engine.Engine) any { return upkeep.Of(e) },
		func(e *engine.Engine) any { return e },
		func(e *engine.Engine) any { return budgets{e} },
		func(e *engine.Engine) any { return consumers{e} },
	} {
		methods := reflect.TypeOf(of(f.Engine))
		for i := range methods.NumMethod() {
			name := methods.Method(i).Name
			call := func(e *engine.Engine) reflect.Value { return reflect.ValueOf(of(e)).MethodByName(name) }
			t.Run(fmt.Sprintf("%s/%s", strings.TrimPrefix(methods.String(), "*"), name), func(t *testing.T) { sendNoBadText(t, f, name, call) })
		}
	}
	for name, function := range fixture.Functions {
		call := func(e *engine.Engine) reflect.Value { return fixture.Bind(function, e) }
		_, short, _ := strings.Cut(name, ".")
		t.Run(name, func(t *testing.T) { sendNoBadText(t, f, short, call) })
	}
}

// consumers are the functions of package events that take text.
type consumers struct{ e *engine.Engine }

func (c consumers) MoveConsumer(ctx context.Context, o events.Outbox, name string) error {
	return events.MoveConsumer(ctx, c.e, o, name, events.Beginning)
}

func (c consumers) RemoveConsumer(ctx context.Context, o events.Outbox, name string) error {
	return events.RemoveConsumer(ctx, c.e, o, name)
}

func (c consumers) SetAside(ctx context.Context, o events.Outbox, name string) error {
	_, err := events.SetAside(ctx, c.e, o, name, events.Beginning, 1)
	return err
}

// budgets are the functions of package budget that take text.
type budgets struct{ e *engine.Engine }

func (b budgets) Create(ctx context.Context, spec budget.Spec) (budget.Created, error) {
	return budget.Create(ctx, b.e, spec)
}

func (b budgets) Set(ctx context.Context, spec budget.Spec) error { return budget.Set(ctx, b.e, spec) }

func (b budgets) Report(ctx context.Context, usage budget.Usage) (budget.Result, error) {
	return budget.Report(ctx, b.e, usage)
}

func (b budgets) RecordSpend(ctx context.Context, spend budget.Spend) (budget.Result, error) {
	return budget.RecordSpend(ctx, b.e, spend)
}

func (b budgets) Reserve(ctx context.Context, f id.Fence, spec budget.ReserveSpec) (budget.Result, error) {
	return budget.Reserve(ctx, b.e, f, spec)
}

func (b budgets) Settle(ctx context.Context, f id.Fence, spec budget.SettleSpec) (budget.Result, error) {
	return budget.Settle(ctx, b.e, f, spec)
}

func sendNoBadText(t *testing.T, f *fixture.Fixture, name string, call func(*engine.Engine) reflect.Value) {
	if in := call(f.Engine).Type(); in.NumIn() < 2 || in.IsVariadic() && in.NumIn() < 3 || in.In(0) != reflect.TypeFor[context.Context]() || name == "ListenLost" || strings.HasSuffix(name, "Where") {
		return // without text, or, the last ones, without a statement, or not in a transaction, which this test looks at
	}
	arguments := func() (args []reflect.Value, places []textPlace) {
		in := call(f.Engine).Type()
		filler := newFiller(f)
		filler.sequences = name == "CreateExecution"
		filler.form = engine.FormStep
		if name == "Call" {
			filler.form = engine.FormCall
		}
		filler.group = name == "DrainWorkers" || name == "ResumeWorkers"
		last := in.NumIn()
		if in.IsVariadic() {
			last-- // options: each call knows all there are
		}
		for i := 1; i < last; i++ {
			arg := reflect.New(in.In(i)).Elem()
			cursor := strings.HasPrefix(name, "List") && i == in.NumIn()-2 && arg.Kind() == reflect.String
			if arg.Type() == reflect.TypeFor[time.Time]() {
				arg.Set(reflect.ValueOf(f.Time()))
			}
			if !cursor {
				places = append(places, filler.fill(arg, fmt.Sprint(i))...)
			}
			args = append(args, arg)
		}
		return args, places
	}
	run := func(what string, args []reflect.Value) error {
		tx := f.BeginTx(t)
		err := answer(call(f.WithTx(tx)).Call(append([]reflect.Value{reflect.ValueOf(t.Context())}, args...)))
		if errors.Is(err, fferr.ErrTransport) {
			t.Errorf("%s: got %v", what, err)
		}
		if _, err := tx.Exec(t.Context(), "SELECT"); err != nil {
			t.Errorf("%s: the caller's transaction is aborted: %v", what, err)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		return err
	}
	args, places := arguments()
	if len(places) == 0 {
		return
	}
	if name == "CreateExecutions" { // with limits, which must exist
		if err := limit.Declare(t.Context(), f.Engine, limit.Spec{Name: "app.text", Namespace: "app.text", Units: 1, Window: 24 * time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	if err := run("with text that can be stored", args); errors.Is(err, fferr.ErrInvalidInput) {
		t.Fatalf("what this test fills in is refused, so that it tests nothing: %v", err)
	}
	for place := range places {
		for _, bad := range []string{"a\x00b", "a\xffb"} {
			args, places := arguments()
			places[place].set(bad)
			_ = run(fmt.Sprintf("%s: %q", places[place].path, bad), args)
		}
	}
}

// answer returns the errors among the results of a call, including those of each item.
func answer(results []reflect.Value) error {
	var all []error
	var collect func(v reflect.Value)
	collect = func(v reflect.Value) {
		if err, ok := v.Interface().(error); ok {
			all = append(all, err)
			return
		}
		switch v.Kind() {
		case reflect.Slice:
			for i := range v.Len() {
				collect(v.Index(i))
			}
		case reflect.Struct:
			if err := v.FieldByName("Err"); err.IsValid() {
				collect(err)
			}
		case reflect.Func: // an iterator
			for _, err := range v.Seq2() {
				collect(err)
				break
			}
		}
	}
	for _, result := range results {
		collect(result)
	}
	return errors.Join(all...)
}

// textPlace is a text among the arguments of a call.
type textPlace struct {
	path string
	set  func(string)
}

// filler fills arguments with values that are accepted, so that a refusal is that of a text.
type filler struct {
	f    *fixture.Fixture
	flow id.FlowID
	x    id.ExecutionID

	group     bool // a filter of workers takes no instance
	sequences bool // specs of executions have a sequence instead of limits

	form engine.StepForm
}

func newFiller(f *fixture.Fixture) *filler {
	flow := id.NewFlowID()
	return &filler{f: f, flow: flow, x: id.MemberExecutionIDFor(flow, id.Partitions{}, id.NewExecutionUUID())}
}

func (r *filler) fill(v reflect.Value, path string) (places []textPlace) {
	if known, ok := r.known(v.Type()); ok {
		v.Set(reflect.ValueOf(known))
		if v.Kind() != reflect.String {
			return nil
		}
	}
	switch v.Kind() {
	case reflect.String:
		if !strings.HasSuffix(v.Type().PkgPath(), "/state") && !strings.HasSuffix(v.Type().PkgPath(), "/policy") && v.String() == "" {
			v.SetString("app.text")
		}
		return []textPlace{{path, v.SetString}}
	case reflect.Pointer:
		if v.Type().Elem().Kind() == reflect.Struct && v.Type().Elem().NumField() > 0 && strings.HasSuffix(v.Type().Elem().PkgPath(), "/engine") {
			v.Set(reflect.New(v.Type().Elem()))
			return r.fill(v.Elem(), path)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return nil
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		return r.fill(v.Index(0), path+"[0]")
	case reflect.Map:
		if v.Type() != reflect.TypeFor[map[string]string]() {
			return nil
		}
		set := func(key, value string) { v.Set(reflect.ValueOf(map[string]string{key: value})) }
		set("app.text", "text")
		return []textPlace{
			{path + " key", func(bad string) { set(bad, "text") }}, {path + " value", func(bad string) { set("app.text", bad) }},
		}
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			instead := v.Type() == reflect.TypeFor[engine.Node]() && field.Name == "Execution" || // of a Spec
				v.Type() == reflect.TypeFor[engine.SignalSpec]() && field.Name == "BusinessKey" || // of an Execution
				v.Type() == reflect.TypeFor[engine.ExecutionSpec]() && field.Name == "Unique" || // of a Flow; TestUniqueIsChecked
				v.Type() == reflect.TypeFor[engine.SuspendSpec]() && field.Name == "Call" || // of a Condition
				v.Type() == reflect.TypeFor[engine.StepRecord]() && field.Name == "Taken" || // by TakeSignal
				v.Type() == reflect.TypeFor[budget.Spec]() && field.Name == "ID" || // of a Key
				v.Type() == reflect.TypeFor[engine.WorkerFilter]() && field.Name == "Instance" && r.group
			if v.Type() == reflect.TypeFor[budget.Spec]() && field.Name == "Retention" {
				continue // ResetEvery instead
			}
			if v.Type() == reflect.TypeFor[schedule.Spec]() && !slices.Contains([]string{"Name", "Namespace", "Every"}, field.Name) {
				if field.Name == "Execution" {
					v.Field(i).Set(reflect.ValueOf(engine.ExecutionSpec{Kind: "tick"})) // as CallSpec
				}
				continue // Every instead of an expression
			}
			if v.Type() == reflect.TypeFor[engine.CallSpec]() && field.Name == "Executions" {
				v.Field(i).Set(reflect.ValueOf([]engine.ExecutionSpec{{Kind: "called"}})) // which have no ids, flows and keys
				continue
			}
			if v.Type() == reflect.TypeFor[engine.ExecutionSpec]() {
				// A member of a flow has no sequence, and a member of a sequence no limits.
				limits := slices.Contains([]string{"Limits", "Budgets", "QuotaPolicy"}, field.Name)
				instead = instead || field.Name == "Sequence" && !r.sequences || limits && r.sequences
			}
			if field.IsExported() && !instead {
				places = append(places, r.fill(v.Field(i), path+"."+field.Name)...)
			}
		}
	}
	return places
}

// known returns the value of a type that not every value will do for.
func (r *filler) known(t reflect.Type) (any, bool) {
	fence := id.Fence{Execution: r.x, Epoch: 1}
	switch t {
	case reflect.TypeFor[id.ExecutionID]():
		return r.x, true
	case reflect.TypeFor[id.FlowID]():
		return r.flow, true
	case reflect.TypeFor[id.BudgetID]():
		return id.BudgetID(r.flow), true
	case reflect.TypeFor[id.Fence]():
		return fence, true
	case reflect.TypeFor[id.LaneID]():
		return r.f.Lane, true
	case reflect.TypeFor[state.BlockingReason]():
		return state.PausedByOperator, true
	case reflect.TypeFor[state.Kept]():
		return state.KeptLost, true
	case reflect.TypeFor[upkeep.Job]():
		return upkeep.JobRetain, true
	case reflect.TypeFor[events.Outbox]():
		return events.LeaseOutbox, true
	case reflect.TypeFor[time.Duration]():
		return 24 * time.Hour, true
	case reflect.TypeFor[int]():
		return 1, true
	case reflect.TypeFor[engine.StepOutcome]():
		return engine.StepSucceeded, true
	case reflect.TypeFor[engine.StepForm]():
		return r.form, true
	case reflect.TypeFor[engine.OnTimeout]():
		return engine.ResumeOnTimeout, true
	case reflect.TypeFor[engine.Condition]():
		return engine.Received("ready"), true
	case reflect.TypeFor[engine.OnFailure]():
		return engine.SequenceSkips, true
	case reflect.TypeFor[schedule.Vanished]():
		return schedule.RemoveVanished, true
	case reflect.TypeFor[stream.Mode]():
		return stream.Durable, true
	case reflect.TypeFor[wire.FrameCursor]():
		return wire.FrameStart, true
	case reflect.TypeFor[wire.Secret]():
		return wire.NewSecret(), true
	}
	return nil, false
}
