package interop

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/state"
)

// ClaimGrant permits one worker to claim one execution. Send it to the worker as JSON or field by field. The Key is a secret:
// together with the worker's ids it suffices to claim. Only JSON and string conversion render the Key.
type ClaimGrant struct {
	Execution id.ExecutionID `json:"execution"`
	Lane      id.LaneID      `json:"lane,omitempty"`
	Key       wire.GrantKey  `json:"key,omitempty"`
	ExpiresAt time.Time      `json:"expires_at"` // invalid from then on
}

// ReclaimGrant permits one worker to take over one execution with a lost lease. Send it like a [ClaimGrant].
type ReclaimGrant struct {
	Execution id.ExecutionID `json:"execution"`
	Lane      id.LaneID      `json:"lane,omitempty"`
	Key       wire.GrantKey  `json:"key,omitempty"`
	ExpiresAt time.Time      `json:"expires_at"` // invalid from then on
}

// ResumeGrant permits one worker to continue the interrupted attempt of one execution. A [ClaimGrant] for such an execution
// can be converted: ResumeGrant(grant). Other programs issue resume grants with keys of their own: see
// [engine.Config.UnsignedResumeGrants].
type ResumeGrant struct {
	Execution id.ExecutionID `json:"execution"`
	Lane      id.LaneID      `json:"lane,omitempty"`
	Key       wire.GrantKey  `json:"key,omitempty"`
	ExpiresAt time.Time      `json:"expires_at"` // invalid from then on
}

// MaxGrantNote is the longest note stored with a grant, in bytes.
const MaxGrantNote = 64 << 10

// GrantSpec describes a grant to issue. Lane, Capabilities and the notes are optional.
type GrantSpec struct {
	Execution    id.ExecutionID
	Lane         id.LaneID       // expected lane of the execution; "" for any
	Capabilities id.Capabilities // of the worker; must include all required by the execution
	Worker       id.WorkerID
	Instance     id.WorkerInstanceID
	TTL          time.Duration // how long the grant is valid: one millisecond to [engine.MaxLeaseTTL]

	// Notes of the scheduler, stored with the grant and not used here: at most [MaxGrantNote] each.
	CapabilityHash   string
	RouteSnapshot    string
	AdmissionSummary string
}

func (s GrantSpec) validate() error {
	if s.Lane != "" {
		if err := s.Lane.Validate(); err != nil {
			return core.InvalidBecause("lane", err)
		}
	}
	if err := s.Capabilities.Validate(); err != nil {
		return core.InvalidBecause("capabilities", err)
	}
	for _, note := range []struct{ field, text string }{
		{"CapabilityHash", s.CapabilityHash}, {"RouteSnapshot", s.RouteSnapshot}, {"AdmissionSummary", s.AdmissionSummary},
	} {
		if err := core.CheckText(note.field, note.text, MaxGrantNote); err != nil {
			return err
		}
	}
	return checkHolder(s.Worker, s.Instance, "grant TTL", s.TTL)
}

// checkHolder refuses invalid holders of grants and leases.
func checkHolder(worker id.WorkerID, instance id.WorkerInstanceID, field string, ttl time.Duration) error {
	if err := worker.Validate(); err != nil {
		return core.InvalidBecause("worker", err)
	}
	if err := instance.Validate(); err != nil {
		return core.InvalidBecause("worker instance", err)
	}
	return core.CheckTTL(field, ttl)
}

// grantable is a locked execution with the facts for deciding about a grant or a lease.
type grantable struct {
	*core.HeldExecution
	facts db.ReadGrantFactsRow
}

// onGrantable locks one execution and its current attempt in a transaction, and runs act for a worker instance. If act
// returns an error, the transaction is rolled back.
func onGrantable[T any](
	ctx context.Context, c *core.Core, op string, x id.ExecutionID, instance id.WorkerInstanceID, needsFlow func(*core.HeldExecution) bool,
	act func(tx *core.Txn, x *grantable) (fferr.Outcome[T], error),
) (T, error) {
	answer, err := core.Operate(ctx, c, x, core.Operation[fferr.Outcome[T]]{
		Op: op, NeedsFlow: needsFlow,
		Judge: func(*core.HeldExecution) (fferr.Outcome[T], bool, error) { return fferr.Outcome[T]{}, true, nil },
		Write: func(tx *core.Txn, x *core.HeldExecution) (fferr.Outcome[T], error) {
			held, err := asGrantable(ctx, c, tx, x, instance)
			if err != nil {
				return fferr.Outcome[T]{}, err
			}
			return act(tx, held)
		},
	})
	return answer.Value, cmp.Or(err, answer.Err)
}

// asGrantable reads the facts of a locked execution. It refuses executions in a paused lane and drained worker instances.
func asGrantable(ctx context.Context, c *core.Core, tx *core.Txn, x *core.HeldExecution, instance id.WorkerInstanceID) (*grantable, error) {
	facts, err := c.Q.ReadGrantFacts(ctx, tx, db.ReadGrantFactsParams{
		PartitionKey: x.ID.Partition(), ExecutionID: x.ID.UUID(), CurrentIndex: x.CurrentIndex, WorkerInstanceID: string(instance),
		DefaultCap: policy.ReclaimLimit, NowMs: c.NowMs(),
	})
	switch halt := state.Halt(facts.Halt); {
	case err != nil:
		return nil, err
	case halt == state.HaltedLane:
		return nil, &fferr.HaltedError{Halt: halt, Name: x.LaneID}
	case halt == state.HaltedWorker:
		return nil, &fferr.HaltedError{Halt: halt, Name: string(instance)}
	}
	return &grantable{HeldExecution: x, facts: facts}, nil
}

// checkLane refuses an execution in another lane than expected.
func (x *grantable) checkLane(lane id.LaneID) error {
	if lane != "" && string(lane) != x.LaneID {
		return core.Invalid("lane", fmt.Sprintf("execution %s is on another one, %s", x.ID, x.LaneID))
	}
	return nil
}

// checkCapabilities refuses a worker without the capabilities required by the execution.
func (x *grantable) checkCapabilities(has id.Capabilities) error {
	var missing []string
	for _, token := range x.RequiredCapabilities {
		if token != "" && !slices.Contains(has, token) {
			missing = append(missing, token)
		}
	}
	if len(missing) > 0 {
		return core.Invalid("capabilities", "lack "+id.NewCapabilities(missing...).CSV())
	}
	return nil
}

// cannot returns a refusal because of the execution's state.
func (x *grantable) cannot(err error, reason string) error {
	v, broken := x.Vector()
	if broken != nil {
		return broken
	}
	return &fferr.StateError{Execution: x.ID, State: v, Reason: reason, Err: err}
}

// reclaims returns how many leases the execution has lost.
func (x *grantable) reclaims() int32 { return max(x.LeaseReclaimCount, 0) }

// notAdmitted returns an error if budgets or limits must still admit the execution. A granted execution was admitted before.
func (x *grantable) notAdmitted() error {
	if x.EligibilityState != "eligible_now" || admits(x.facts.Attached, x.Admitted) {
		return nil
	}
	return x.cannot(fferr.ErrNotLeaseable, "its budgets and limits have not admitted it")
}

// admits reports whether budgets and limits let an execution be claimed. Another program may have made the execution
// claimable without an admission.
func admits(attached, admitted bool) bool { return !attached || admitted }

// deleteGrants deletes grants of an execution locked by the caller.
func deleteGrants(ctx context.Context, c *core.Core, conn db.DBTX, x id.ExecutionID, kinds ...wire.GrantKind) error {
	params := db.DeleteGrantsParams{PartitionKey: x.Partition(), ExecutionID: x.UUID()}
	for _, kind := range kinds {
		params.Kinds = append(params.Kinds, string(kind))
	}
	return c.Q.DeleteGrants(ctx, conn, params)
}
