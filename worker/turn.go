package worker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/backoff"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/stream"
)

// Turn is a step that commits everything at once: the writes by tx, the work and the signals of t.Engine, the frames of
// t.WriteFrame, the step itself, and, if fn asks for it, the next wait or the end of the execution. Either all of it
// happens, once, or nothing does. If another worker has the execution, nothing does.
//
//	err := worker.Turn(ctx, job, "reserve", func(ctx context.Context, tx pgx.Tx, t *worker.TurnTx) error {
//		if err := stock.Reserve(ctx, tx, job.Args.Item); err != nil {
//			return err
//		}
//		if _, err := AskForApproval.Create(ctx, t.Engine(), job.Args); err != nil {
//			return err
//		}
//		return t.Await(Approved.Received(), wait)
//	})
//	if err != nil {
//		return Receipt{}, err
//	}
//	approval, err := Approved.Await(ctx, job, wait)
//
// If fn returns nil, the turn is committed. If fn has called t.Complete, t.Sleep or t.Await, Turn then returns an error
// for the handler to return, wrapped or not. If the handler continues instead, it has no lease, and none of its later
// work is stored. If fn returns an error, nothing has happened, and the error is handled like an error of a [Step].
//
// When the handler runs again, Turn returns nil without calling fn, and the handler continues after it. After t.Sleep,
// the handler runs again once the pause has ended.
//
// fn runs again, in a new transaction, if the server aborts the transaction in favour of another, in an outage of the
// database, or if the answer to the commit is lost. If the first commit took effect, the repeated writes are rolled
// back. fn must not commit or roll back: a COMMIT among its statements fails the execution for good. A [Step] or
// similar, a [Call] or a wait for signals of the job, with the context of fn or on its goroutine, fails the turn. Keep
// fn short: its locks are held until the commit.
//
// Errors: as [Step]; [fferr.ErrInvalidInput] if fn called more than one of t.Complete, t.Sleep and t.Await, or a step
// or wait of the job: nothing was written.
func Turn[In any](
	ctx context.Context, job Job[In], name string,
	fn func(ctx context.Context, tx pgx.Tx, t *TurnTx) error, options ...StepOption,
) error {
	p, stored, err := job.beginStep(ctx, name, engine.FormTurn, options)
	switch {
	case err != nil:
		return err
	case stored != nil && stored.Outcome == engine.StepSlept:
		return job.pauseUntil(p, stored.Result, job.databaseNow())
	case stored != nil:
		return nil
	}
	if job.isForTest() {
		return p.wrap(errNoTx)
	}
	// See docs/internals/decisions.md#turn.
	turn := newTurn(job, p)
	_, err = inPart(ctx, job.parts(), Part{PartTurn, name}, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, doTurn(context.WithValue(withStepKey(ctx, job.ID, name), turnOf{job.steps}, turn), job, turn, fn)
	})
	return err
}

// doTurn runs a turn until it is committed or has failed.
func doTurn[In any](ctx context.Context, job Job[In], turn *turn, fn func(context.Context, pgx.Tx, *TurnTx) error) error {
	err := turn.place.try(ctx, func(ctx context.Context, _ *stepTry) error {
		recorded, err := job.eng.turnIn(ctx, func(tx pgx.Tx, eng *engine.Engine) (engine.StepRecord, error) {
			return turn.run(ctx, tx, eng, fn)
		}, turn.appendFrames, turn.settle)
		turn.endJoint(err == nil && !recorded.Repeated)
		if err == nil && !recorded.Repeated {
			turn.committed()
		}
		return err
	})
	switch {
	case err != nil:
		return turn.place.wrap(err)
	case turn.ending != nil:
		return turn.ending
	}
	return nil
}

// TurnTx is the transaction of a [Turn]. Use it only within the turn's function.
type TurnTx struct {
	eng  *engine.Engine
	turn *turn

	mu    sync.Mutex
	end   *later // how the turn ends the run; nil: it does not
	err   error  // of a refused call, which fails the turn even if fn ignores it
	over  bool
	taken []engine.ReceivedSignal

	frames     []stream.FrameSpec
	frameBytes int
}

// Engine returns the engine bound to the transaction: its operations are committed with the turn, and workers are
// notified afterwards.
func (t *TurnTx) Engine() *engine.Engine { return t.eng }

// TakeSignal takes the oldest kept signal of a name with the turn. [engine.Signal.Take] also decodes it. From then
// until the commit, the turn locks the lease's row, and the lease is not renewed: take signals after slow parts.
//
// Errors: as [engine.Engine.TakeSignal]; [fferr.ErrInvalidInput] after the return of the turn's function.
func (t *TurnTx) TakeSignal(ctx context.Context, name string) (engine.ReceivedSignal, bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return engine.ReceivedSignal{}, false, t.turn.place.refuse(&fferr.InputError{Field: "turn", Reason: "is over: take signals before its function returns"})
	}
	signal, ok, err := t.eng.TakeSignal(ctx, t.turn.lease, name)
	if ok {
		t.taken = append(t.taken, signal)
	}
	return signal, ok, err
}

// Complete ends the execution with the turn. out has the Out type of the kind.
//
// Errors: [fferr.ErrInvalidInput] if out has another type or can't be encoded, or if the turn has an end already.
func (t *TurnTx) Complete(out any) error {
	result, err := t.turn.encode(out)
	if err != nil {
		return t.refuse(badResult(&fferr.InputError{Field: "out", Reason: err.Error()}))
	}
	return t.endWith(&later{verdict: complete, result: result})
}

// Sleep pauses the execution for d after the turn, without a worker, as [Sleep] does. Then the handler runs again and goes
// on behind the turn. The database's clock counts d, from the call on.
//
// Errors: [fferr.ErrInvalidInput] if the turn has an end already.
func (t *TurnTx) Sleep(d time.Duration) error {
	until := t.turn.now().Add(max(d, 0)).Truncate(time.Millisecond)
	return t.endWith(&later{verdict: delay, until: until})
}

// Await lets the execution wait for signals after the turn. After they have come, the handler runs again and gets them
// from a call after the turn that waits for the same signals: the next of its waits for these names. For
// [engine.Signal.Await] the condition is [engine.Signal.Received], with the Where and the Key of the wait, if any, as
// its Where and At.
//
// Errors: [fferr.ErrInvalidInput] for a wait that is not possible, or if the turn has an end already.
func (t *TurnTx) Await(condition engine.Condition, wait engine.Wait) error {
	spec := engine.SuspendSpec{
		Condition: condition, Timeout: wait.Timeout, OnTimeout: wait.OnTimeout, ResumeDelay: wait.ResumeDelay,
		Asked: wait.Asked, Reason: wait.Reason,
	}
	switch {
	case wait.Key != "":
		return t.refuse(badWait(&fferr.InputError{Field: "Wait.Key", Reason: "is not used in a turn: give the condition its own by At"}))
	case wait.Where != "":
		return t.refuse(badWait(&fferr.InputError{Field: "Wait.Where", Reason: "is not used in a turn: give the condition its own by Where"}))
	}
	if err := spec.Validate(); err != nil {
		return t.refuse(badWait(err))
	}
	spec.Lease, spec.ID = t.turn.lease, id.NewSuspensionID()
	if err := t.turn.steps.following(&spec); err != nil {
		return t.refuse(badWait(err))
	}
	return t.endWith(&later{verdict: suspend, wait: spec})
}

// endWith notes the end of the turn. A second one is a mistake.
func (t *TurnTx) endWith(end *later) error {
	t.mu.Lock()
	another := t.end != nil || t.over
	if !another {
		t.end = end
	}
	t.mu.Unlock()
	if another {
		return t.refuse(t.turn.place.refuse(&fferr.InputError{
			Field: "turn", Reason: "has an end already: call one of Complete, Sleep and Await, once, before its function returns",
		}))
	}
	return nil
}

// turnOf is the key of a context in which a turn of a job runs.
type turnOf struct{ steps *steps }

// outsideTurn returns an error if a turn of the job runs in ctx, or on this goroutine with another context. The turn
// then fails, even if its function ignores the error. Steps of other goroutines may run beside a turn, and at most wait
// for its locks.
func (j Job[In]) outsideTurn(ctx context.Context) error {
	t, ok := ctx.Value(turnOf{j.steps}).(*turn)
	if !ok && j.steps != nil {
		t, ok = j.steps.turnHere()
	}
	if !ok {
		return nil
	}
	return t.current.refuse(t.place.refuse(&fferr.InputError{
		Field: "turn", Reason: fmt.Sprintf("the function of the turn %q calls a step or wait of its job: call it before or after the turn", t.place.name),
	}))
}

// turnHere returns the turn whose function runs on the calling goroutine.
func (s *steps) turnHere() (t *turn, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.turns) > 0 { // or the goroutine's id is not needed
		t, ok = s.turns[thisGoroutine()]
	}
	return t, ok
}

// entered notes that the function of a turn runs on the calling goroutine, until left is called.
func (s *steps) entered(t *turn) (left func()) {
	goroutine := thisGoroutine()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.turns == nil {
		s.turns = make(map[int64]*turn)
	}
	s.turns[goroutine] = t
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.turns, goroutine)
	}
}

// refuse notes why the turn is refused.
func (t *TurnTx) refuse(err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err = err
	return err
}

// badResult is the failure for a result that can't be stored.
func badResult(err error) error {
	return &Fail{Class: policy.Permanent, Category: "result", Err: err}
}

// turn is a running turn of a job. Its transaction may take several tries.
type turn struct {
	place  *place
	lease  engine.Lease
	encode func(out any) ([]byte, error)
	steps  *steps
	now    func() time.Time
	stream func() *Stream // of the job

	current *TurnTx
	ending  *later // that the last commit has, or may have, written; nil: none
	joint   *joint // frames that the transaction has appended; nil: none
}

func newTurn[In any](job Job[In], p *place) *turn {
	return &turn{place: p, lease: job.Lease, encode: job.encode, steps: job.steps, now: job.databaseNow, stream: job.Stream}
}

// run calls fn in a transaction and returns the step to store there.
func (t *turn) run(
	ctx context.Context, tx pgx.Tx, eng *engine.Engine, fn func(context.Context, pgx.Tx, *TurnTx) error,
) (engine.StepRecord, error) {
	t.endJoint(false)
	x := &TurnTx{eng: eng, turn: t}
	t.current = x
	if err := t.call(ctx, tx, x, fn); err != nil {
		return engine.StepRecord{}, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.over = true
	p := t.place
	record := engine.StepRecord{
		Lease: t.lease, Name: p.name, Seq: p.seq, Form: p.form, Tries: p.tries + 1, Took: time.Since(p.began), Ends: x.end != nil,
		Taken: x.taken,
	}
	if p.failure != nil {
		record.Error = storable(p.failure.Error(), maxMessage)
	}
	if x.end != nil && x.end.verdict == delay {
		record.Outcome, record.Result = engine.StepSlept, pauseEnd(x.end.until)
	}
	return record, x.err
}

// call calls fn, whose goroutine may call no step of the job meanwhile.
func (t *turn) call(ctx context.Context, tx pgx.Tx, x *TurnTx, fn func(context.Context, pgx.Tx, *TurnTx) error) error {
	defer t.steps.entered(t)()
	return fn(ctx, tx, x)
}

// settle ends the lease in the turn's transaction, if fn has asked for an end. It reports whether the commit will end
// the lease.
func (t *turn) settle(ctx context.Context, eng *engine.Engine) (ended bool, err error) {
	end := t.current.end
	t.ending = end
	if end == nil {
		return false, nil
	}
	ended = true
	switch end.verdict {
	case complete:
		err = eng.CompleteExecution(ctx, traced(ctx, eng, t.lease), end.result)
		if errors.Is(err, fferr.ErrInvalidInput) {
			err = badResult(err)
		}
	case delay:
		err = eng.DelayExecution(ctx, traced(ctx, eng, t.lease), end.until)
	default:
		var suspended engine.Suspended
		end.wait.Lease = traced(ctx, eng, t.lease)
		suspended, err = eng.Suspend(ctx, end.wait)
		if errors.Is(err, fferr.ErrInvalidInput) {
			err = badWait(err)
		}
		ended = !suspended.Satisfied
		end.early = suspended.Satisfied
	}
	return ended, err
}

// committed records that the end of the turn is committed, so the worker need not repeat the end.
func (t *turn) committed() {
	if t.ending == nil || t.ending.early { // the lease is still held, and the worker gives it back
		return
	}
	switch t.ending.verdict {
	case complete:
		t.ending.settled = Completed
	case delay:
		t.ending.settled = Delayed
	default:
		t.ending.settled = Suspended
	}
}

// following numbers a wait as the next one for its keys, without counting the wait, and gives it a step.
func (s *steps) following(spec *engine.SuspendSpec) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	spec.Condition = spec.Condition.Renamed(s.nextKey)
	if keys := spec.Condition.WaitpointKeys(); len(keys) > 0 {
		spec.Step = waitName(keys)
		spec.StepSeq, err = s.place()
	}
	return err
}

// turnIn runs fn, calls frames, stores the step that fn returned and then calls end, all in one transaction. If the execution
// has the step already, nothing of the transaction is written. end reports whether it ended the lease.
//
// It begins again if the server aborted the transaction in favour of another, and in an outage: a connection lost
// before the commit has written nothing. If the answer to the commit is lost, the next try waits for the end of the
// former. The next try then finds its step, no step, or no lease. Without a lease, the former may have ended it, and
// the result is marked as repeated.
func (e onEngine) turnIn(
	ctx context.Context, fn func(tx pgx.Tx, eng *engine.Engine) (engine.StepRecord, error),
	frames func(ctx context.Context, eng frameAppender) error,
	end func(ctx context.Context, eng *engine.Engine) (ended bool, err error),
) (engine.Recorded, error) {
	o := newOutages()
	aborted, mayHaveEnded := 0, false
	for {
		var ended, committing, failed, cut bool // failed: an error is fn's; cut: its transaction is lost
		recorded, err := e.InStep(ctx, func(tx pgx.Tx, bound *engine.Engine) (engine.StepRecord, error) {
			record, err := fn(tx, bound)
			failed = err != nil
			cut = failed && (tx.Conn().IsClosed() || pgtx.SQLState(err) == sqlReadOnly)
			if err == nil && frames != nil {
				err = frames(ctx, onEngine{bound})
			}
			committing = err == nil && !record.Ends
			return record, err
		}, func(bound *engine.Engine) (err error) {
			ended, err = end(ctx, bound)
			committing = err == nil
			return err
		})
		refusal, refused := errors.AsType[*pgconn.PgError](err)
		switch {
		case err == nil:
			return recorded, nil
		case isEndedByFn(err): // another try would repeat the writes that fn has committed
			return engine.Recorded{}, &Fail{Class: policy.Permanent, Category: "step", Err: err}
		case !failed && ctx.Err() != nil:
			return engine.Recorded{}, context.Cause(ctx)
		case !failed && isLost(err) && mayHaveEnded:
			return engine.Recorded{Repeated: true}, nil
		case !failed && isLost(err):
			return engine.Recorded{}, lossOf(err)
		case refused && isAbort(refusal.Code) && aborted < maxAborts:
			aborted++
		case committing && errors.Is(err, fferr.ErrTransport) && !(refused && isRefusal(refusal.Code)):
			mayHaveEnded = mayHaveEnded || ended
		case ctx.Err() == nil && (cut || !failed) && o.goesOn(err, cut):
		default:
			return engine.Recorded{}, err
		}
		if !backoff.Wait(ctx, o.pause.Next()) {
			return engine.Recorded{}, context.Cause(ctx)
		}
	}
}

// isEndedByFn reports whether the function of a transaction has ended it by a statement.
func isEndedByFn(err error) bool {
	refused, ok := errors.AsType[*fferr.InputError](err)
	return ok && refused.Field == "transaction"
}

// maxAborts is how often a transaction begins again that the server aborted in favour of others.
const maxAborts = 2

// isAbort reports whether the server aborted a transaction in favour of another: by a serialization failure or a deadlock.
func isAbort(code string) bool { return code == "40001" || code == "40P01" }

// isRefusal reports whether the server refused a commit, for example by a deferred constraint. After an error of the
// connection, of the server's system or by an operator the commit may have taken effect.
func isRefusal(code string) bool {
	switch code[:min(2, len(code))] {
	case "08", "57", "58", "XX", "":
		return false
	}
	return true
}

// pauseEnd returns the stored form of a pause's end.
func pauseEnd(until time.Time) []byte { return strconv.AppendInt(nil, until.UnixMilli(), 10) }

// pauseUntil returns nil if a stored pause is over at an instant, else an error for the handler to return.
func (j Job[In]) pauseUntil(p *place, end []byte, now time.Time) error {
	ms, err := strconv.ParseInt(string(end), 10, 64)
	if err != nil {
		return p.refuse(&fferr.DecodeError{Kind: j.Kind, What: "end of the pause " + strconv.Quote(p.name), Type: "time.Time", Err: err})
	}
	if until := time.UnixMilli(ms); until.After(now) && !j.isForTest() {
		return j.steps.pauses(p.name, &later{verdict: delay, until: until})
	}
	return nil
}
