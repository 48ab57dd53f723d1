package system

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/tests/internal/soak"
)

// historyCall is a call on one execution, by an actor.
type historyCall struct {
	execution id.ExecutionID
	what      string
	epoch     int64 // of the lease that was presented
}

// historyAnswer is the answer. One that never came, or reports a lost connection, is unknown: the call may have been
// done, or not, at any time since.
type historyAnswer struct {
	unknown bool
	epoch   int64 // of the lease that was given
	err     error
}

// heldBy is the state of a lease: without a holder, held, or ended, and the newest epoch.
type heldBy struct {
	phase string
	epoch int64
}

const isFree = "free"

const isHeld = "held"

const hasDone = "done"

// leaseHistories is the model of a lease. It returns the possible states after a call, given the answer: none if the
// answer is wrong.
var leaseHistories = porcupine.NondeterministicModel{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byExecution := make(map[id.ExecutionID][]porcupine.Operation)
		for _, o := range history {
			x := o.Input.(historyCall).execution
			byExecution[x] = append(byExecution[x], o)
		}
		var parts [][]porcupine.Operation
		for _, part := range byExecution {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() []any { return []any{heldBy{isFree, 0}} },
	Step: func(state, input, output any) []any {
		s, call, answer := state.(heldBy), input.(historyCall), output.(historyAnswer)
		after, err := s.after(call)
		switch {
		case answer.unknown, call.what == "expire":
			return []any{s, after}
		case call.what == "claim":
			if s.phase != isFree || after.epoch != answer.epoch {
				return nil
			}
		case errors.Is(answer.err, fferr.ErrLeaseExpired):
			// The clock moved on: a holder may learn so from a call, and keeps the lease until another takes it.
			if s.phase != isHeld || s.epoch != call.epoch {
				return nil
			}
			return []any{s}
		case !errors.Is(answer.err, err):
			return nil
		}
		return []any{after}
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprint(input, output) },
	DescribeState:     func(state any) string { return fmt.Sprint(state) },
}

// after is the state after a call, and the refusal if it is one.
func (s heldBy) after(call historyCall) (heldBy, error) {
	switch call.what {
	case "claim":
		if s.phase == isFree {
			return heldBy{isHeld, s.epoch + 1}, nil
		}
		return s, nil
	case "expire":
		if s.phase == isHeld {
			return heldBy{isFree, s.epoch + 1}, nil
		}
		return s, nil
	}
	does := map[string]heldBy{"renew": {isHeld, s.epoch}, "complete": {hasDone, s.epoch}, "release": {isFree, s.epoch}}[call.what]
	switch {
	case s.epoch != call.epoch:
		return s, fferr.ErrStaleLease
	case s.phase == isHeld, call.what != "renew" && s == does: // or it was done before
		return does, nil
	}
	return s, fferr.ErrNotActive
}

// historian writes a history down.
type historian struct {
	*fixture.Fixture
	begun time.Time

	mu     sync.Mutex
	calls  []porcupine.Operation
	all    []id.ExecutionID
	open   map[id.ExecutionID]bool // not yet known to be done
	leases []engine.Lease
}

// record makes a call and records the answer for each execution.
func (h *historian) record(actor int, make func() (map[historyCall]historyAnswer, error)) {
	called := time.Since(h.begun)
	answers, err := make()
	returned := time.Since(h.begun)
	h.mu.Lock()
	defer h.mu.Unlock()
	for call, answer := range answers {
		o := porcupine.Operation{ClientId: actor, Input: call, Call: int64(called), Output: answer, Return: int64(returned)}
		if answer.unknown = answer.unknown || err != nil || isUnknown(answer.err); answer.unknown {
			o.Output, o.Return = answer, math.MaxInt64
		}
		if call.what == "complete" && !answer.unknown && answer.err == nil {
			delete(h.open, call.execution)
		}
		if !errors.Is(answer.err, fferr.ErrBusy) && !errors.Is(answer.err, fferr.ErrContention) { // these did nothing
			h.calls = append(h.calls, o)
		}
	}
}

func isUnknown(err error) bool {
	return errors.Is(err, fferr.ErrTransport) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// create creates an execution and notes it.
func (h *historian) create(ctx context.Context) {
	if created, err := h.CreateExecution(ctx, engine.ExecutionSpec{Kind: "test", Lane: h.Lane}); err == nil {
		h.mu.Lock()
		h.all = append(h.all, created.ID)
		h.open[created.ID] = true
		h.mu.Unlock()
	}
}

// each records that a call may have concerned every execution that existed at some time during it. Ended ones are
// left out: nothing concerns them any more.
func (h *historian) each(what string, unknown bool, before []id.ExecutionID) map[historyCall]historyAnswer {
	answers := make(map[historyCall]historyAnswer)
	for _, x := range append(before, h.opened()...) {
		answers[historyCall{execution: x, what: what}] = historyAnswer{unknown: unknown}
	}
	return answers
}

func (h *historian) opened() []id.ExecutionID {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Keys(h.open))
}

// recent returns some of the newest leases.
func (h *historian) recent() []engine.Lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	var some []engine.Lease
	for range min(len(h.leases), 1+rand.IntN(3)) {
		l := h.leases[len(h.leases)-1-rand.IntN(min(len(h.leases), 16))]
		if !slices.ContainsFunc(some, func(o engine.Lease) bool { return o.Execution == l.Execution }) {
			some = append(some, l)
		}
	}
	return some
}

// act makes one call by chance.
func (h *historian) act(ctx context.Context, actor int, e *engine.Engine) {
	switch what := []string{"claim", "claim", "renew", "complete", "release"}[rand.IntN(5)]; what {
	case "claim":
		h.record(actor, func() (map[historyCall]historyAnswer, error) {
			before := h.opened()
			claimed, err := e.Claim(ctx, h.Worker(), 1+rand.IntN(3))
			if err != nil {
				return h.each("claim", true, before), err
			}
			answers := make(map[historyCall]historyAnswer)
			for _, c := range claimed {
				answers[historyCall{execution: c.ID, what: "claim"}] = historyAnswer{epoch: c.Lease.Epoch}
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			for _, c := range claimed {
				h.leases = append(h.leases, c.Lease)
			}
			return answers, nil
		})
	default:
		leases := h.recent()
		if len(leases) == 0 {
			return
		}
		h.record(actor, func() (map[historyCall]historyAnswer, error) {
			outcomes, err := fixture.Batches[what](ctx, e, leases)
			answers := make(map[historyCall]historyAnswer)
			for i, l := range leases {
				answers[historyCall{execution: l.Execution, what: what, epoch: l.Epoch}] = historyAnswer{err: errors.Join(err, outcomes[i])}
			}
			return answers, err
		})
		if what == "complete" {
			h.create(ctx)
		}
	}
}

// mostCalls is how many calls can be judged in reasonable time.
const mostCalls = 50_000

// isEnough reports whether the history is to end once its time is over, or at once.
func (h *historian) isEnough(timeIsOver bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return timeIsOver && len(h.leases) >= 60 || len(h.calls) >= mostCalls
}

// expire advances the clock, so that silent holders lose their leases.
func (h *historian) expire(ctx context.Context, actor int, e *engine.Engine) {
	h.Advance(fixture.LeaseTTL / 2)
	h.record(actor, func() (map[historyCall]historyAnswer, error) {
		before := h.opened()
		_, err := upkeep.Of(e).ExpireLeases(ctx, 100)
		return h.each("expire", false, before), err
	})
}

// Whatever processes do to the same leases at once, and however often their connections are cut, there is an order of
// their calls, each at some moment between its beginning and its answer, in which one by one they would have had the
// same answers.
func TestHistoriesAreLinearizable(t *testing.T) {
	f := fixture.NewCloned(t)
	h := &historian{Fixture: f, begun: time.Now(), open: make(map[id.ExecutionID]bool)}
	ctx := t.Context()
	goesOn := soak.For(t, fixture.Moment)
	for range 8 {
		h.create(ctx)
	}
	var actors sync.WaitGroup
	var others []*fixture.Rival
	for range 6 {
		process := f.Rival(t, func(config *pgxpool.Config) { config.MaxConns = 1 })
		others = append(others, process)
	}
	for actor, process := range others {
		actors.Go(func() {
			for !h.isEnough(!goesOn()) {
				switch rand.IntN(40) {
				case 0: // a connection is cut
					_, _ = f.Pool.Exec(ctx,
						"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1", others[rand.IntN(len(others))].Name)
				case 1, 2, 3, 4:
					h.expire(ctx, actor, process.Engine)
				default:
					h.act(ctx, actor, process.Engine)
				}
			}
		})
	}
	actors.Wait()
	judged, _ := porcupine.CheckOperationsVerbose(leaseHistories.ToModel(), h.calls, time.Hour)
	counts := make(map[string]int)
	for _, o := range h.calls {
		answer := o.Output.(historyAnswer)
		what := o.Input.(historyCall).what
		switch {
		case answer.unknown:
			what += ", unknown"
		case answer.err != nil:
			what += ", refused"
		}
		counts[what]++
	}
	t.Logf("%d executions, %v", len(h.all), counts)
	switch judged {
	case porcupine.Illegal:
		for _, x := range h.all {
			var calls []porcupine.Operation
			for _, o := range h.calls {
				if o.Input.(historyCall).execution == x {
					calls = append(calls, o)
				}
			}
			if porcupine.CheckOperations(leaseHistories.ToModel(), calls) {
				continue
			}
			slices.SortFunc(calls, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
			for _, o := range calls {
				call := o.Input.(historyCall)
				t.Logf("%v to %v: %s %d: %+v", time.Duration(o.Call), time.Duration(o.Return), call.what, call.epoch, o.Output)
			}
			t.Fatalf("no order explains the history of %s", x)
		}
	case porcupine.Unknown:
		t.Error("the histories could not be judged in an hour")
	}
}
