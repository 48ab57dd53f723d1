package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/policy"
)

// Grants is for a scheduler apart from the workers: it decides which worker shall have which execution, and sends that
// worker a grant, a signed permission for a short time, instead of letting it claim what comes next. Workers that claim
// for themselves, by [Engine.Claim] or package worker, need none of it, and so do most programs.
//
// A claim grant takes an execution out of its lane until it is used, by [Grants.ClaimExecution], or expires, after which
// [Maintenance.ExpireGrants] gives it back. A reclaim grant lets a worker take over what another one lost, as an attempt
// of its own: [Grants.ReclaimExecution]. What these return is a lease like that of any claim.
//
// Grants are signed with the newest active key of ff_waitpoint_hmac: without one they are neither issued nor verified,
// [ErrUnavailable].
//
// It comes from [Engine.Grants] and works where that engine does: in a caller's transaction, or on a pool. Each
// operation is one transaction. It queues for the rows of its execution and is refused with [ErrContention] rather than
// wait long; [Grants.ClaimForWorker] waits for nobody.
type Grants struct {
	e *Engine
}

// Grants returns the calls of a scheduler upon e.
func (e *Engine) Grants() Grants { return Grants{e} }

// ClaimGrant permits one worker to claim one execution. It is plain data, to be sent to the worker as JSON or field by
// field. Whoever has the Key and knows the worker's ids can use it: it is rendered in JSON and by string conversion
// alone.
type ClaimGrant struct {
	Execution id.ExecutionID `json:"execution"`
	Lane      id.LaneID      `json:"lane,omitempty"`
	Key       wire.GrantKey  `json:"key,omitempty"`
	ExpiresAt time.Time      `json:"expires_at"` // from then on it cannot be used
}

// ReclaimGrant permits one worker to take over one execution whose lease was lost. It is sent as a [ClaimGrant] is.
type ReclaimGrant struct {
	Execution id.ExecutionID `json:"execution"`
	Lane      id.LaneID      `json:"lane,omitempty"`
	Key       wire.GrantKey  `json:"key,omitempty"`
	ExpiresAt time.Time      `json:"expires_at"` // from then on it cannot be used
}

// ResumeGrant permits one worker to go on with the interrupted attempt of one execution. A [ClaimGrant] for such an
// execution is one: ResumeGrant(grant). Other programs make some with keys of their own: see
// [Config.UnsignedResumeGrants].
type ResumeGrant struct {
	Execution id.ExecutionID `json:"execution"`
	Lane      id.LaneID      `json:"lane,omitempty"`
	Key       wire.GrantKey  `json:"key,omitempty"`
	ExpiresAt time.Time      `json:"expires_at"` // from then on it cannot be used
}

// MaxGrantNote is the longest text that is kept with a grant, in bytes.
const MaxGrantNote = 64 << 10

// GrantSpec says for which worker a grant is issued. Lane, Capabilities and the notes may be left out.
type GrantSpec struct {
	Execution    id.ExecutionID
	Lane         id.LaneID       // where the execution must be; "": wherever it is
	Capabilities id.Capabilities // what the worker can do: all that the execution requires
	Worker       id.WorkerID
	Instance     id.WorkerInstanceID
	TTL          time.Duration // how long the grant may be used: one millisecond to [MaxLeaseTTL]

	// Notes of the scheduler, kept with the grant and read by nobody here: at most [MaxGrantNote] each.
	CapabilityHash   string
	RouteSnapshot    string
	AdmissionSummary string
}

func (s GrantSpec) validate() error {
	if s.Lane != "" {
		if err := s.Lane.Validate(); err != nil {
			return invalidBecause("lane", err)
		}
	}
	if err := s.Capabilities.Validate(); err != nil {
		return invalidBecause("capabilities", err)
	}
	for _, note := range []struct{ field, text string }{
		{"CapabilityHash", s.CapabilityHash}, {"RouteSnapshot", s.RouteSnapshot}, {"AdmissionSummary", s.AdmissionSummary},
	} {
		if err := checkText(note.field, note.text, MaxGrantNote); err != nil {
			return err
		}
	}
	return checkHolder(s.Worker, s.Instance, "grant TTL", s.TTL)
}

// checkHolder refuses whom neither a grant nor a lease can be given to.
func checkHolder(worker id.WorkerID, instance id.WorkerInstanceID, field string, ttl time.Duration) error {
	if err := worker.Validate(); err != nil {
		return invalidBecause("worker", err)
	}
	if err := instance.Validate(); err != nil {
		return invalidBecause("worker instance", err)
	}
	return checkTTL(field, ttl)
}

// grantable is an execution that is locked, with what a grant or a lease by one is decided by.
type grantable struct {
	*heldExecution
	facts db.ReadGrantFactsRow
}

// onGrantable acts on one execution, whose row and current attempt it has locked, in a transaction, for a worker
// instance. What act refuses is rolled back.
func onGrantable[T any](
	ctx context.Context, e *Engine, op string, x id.ExecutionID, instance id.WorkerInstanceID, needsFlow func(forecast) bool,
	act func(tx *txn, x *grantable) (Outcome[T], error),
) (T, error) {
	v := intervention[Outcome[T]]{
		op: op,
		judge: func(_ int, x *heldExecution) (Outcome[T], bool, error) {
			return Outcome[T]{}, true, x.check()
		},
		write: func(tx *txn, items []heldItem, answers []Outcome[T]) error {
			held, err := e.grantable(ctx, tx, items[0].heldExecution, instance)
			if err != nil {
				return err
			}
			answers[items[0].n], err = act(tx, held)
			return err
		},
		refused: func(err error) Outcome[T] { return Outcome[T]{Err: err} },
	}
	if needsFlow != nil {
		v.needsFlow = func(_ int, f forecast) bool { return needsFlow(f) }
	}
	answer, err := interveneAlone(ctx, e, x, v)
	return answer.Value, cmp.Or(err, answer.Err)
}

// grantable reads the facts of a locked execution. Nothing is granted or leased where an operator has halted it.
func (e *Engine) grantable(ctx context.Context, tx *txn, x *heldExecution, instance id.WorkerInstanceID) (*grantable, error) {
	facts, err := e.q.ReadGrantFacts(ctx, tx, db.ReadGrantFactsParams{
		PartitionKey: x.id.Partition(), ExecutionID: x.id.UUID(), CurrentIndex: x.CurrentIndex, WorkerInstanceID: string(instance),
		DefaultCap: policy.ReclaimLimit,
	})
	switch halt := Halt(facts.Halt); {
	case err != nil:
		return nil, err
	case halt == LanePaused:
		return nil, &HaltedError{Halt: halt, Name: x.LaneID}
	case halt == WorkerDrained:
		return nil, &HaltedError{Halt: halt, Name: string(instance)}
	}
	return &grantable{heldExecution: x, facts: facts}, nil
}

// checkLane refuses an execution that is on another lane than was asked for.
func (x *grantable) checkLane(lane id.LaneID) error {
	if lane != "" && string(lane) != x.LaneID {
		return invalid("lane", fmt.Sprintf("execution %s is on another one, %s", x.id, x.LaneID))
	}
	return nil
}

// checkCapabilities refuses a worker that cannot do what the execution requires.
func (x *grantable) checkCapabilities(has id.Capabilities) error {
	var missing []string
	for _, token := range x.RequiredCapabilities {
		if token != "" && !slices.Contains(has, token) {
			missing = append(missing, token)
		}
	}
	if len(missing) > 0 {
		return invalid("capabilities", "lack "+id.NewCapabilities(missing...).CSV())
	}
	return nil
}

// cannot is a refusal because of the state that the execution is in.
func (x *grantable) cannot(err error, reason string) error {
	v, broken := x.vector()
	if broken != nil {
		return broken
	}
	return &StateError{Execution: x.id, State: v, Reason: reason, Err: err}
}

// reclaims is how many leases the execution has lost.
func (x *grantable) reclaims() int32 { return max(x.LeaseReclaimCount, 0) }

// notAdmitted says that a budget or a quota has to let the execution in, and has not. No claim asks them: whoever lets
// an execution in notes that it is admitted, and until the gate that does so is built there is nobody to ask. An
// execution that was granted already was let in before.
func (x *grantable) notAdmitted() error {
	if x.EligibilityState != "eligible_now" || admits(x.facts.Attached, x.Admitted) {
		return nil
	}
	return &UnavailableError{Reason: fmt.Sprintf("execution %s has a budget or a quota, and nobody checks these yet", x.id)}
}

// admits judges an execution by its attachments: this is where budgets and quotas are asked.
func admits(attached, admitted bool) bool { return !attached || admitted }

// deleteGrants deletes grants of an execution that the caller has locked.
func (e *Engine) deleteGrants(ctx context.Context, conn db.DBTX, x id.ExecutionID, kinds ...wire.GrantKind) error {
	params := db.DeleteGrantsParams{PartitionKey: x.Partition(), ExecutionID: x.UUID()}
	for _, kind := range kinds {
		params.Kinds = append(params.Kinds, string(kind))
	}
	return e.q.DeleteGrants(ctx, conn, params)
}
