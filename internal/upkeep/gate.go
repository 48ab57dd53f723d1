package upkeep

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/gate"
)

const (
	// maxPassGates is how many budgets and limits one transaction of the gate examines.
	maxPassGates = 200

	// busyGate is the pause before the next look at a locked limit. The holder of the lock may have counted before an
	// execution ended and freed its place.
	busyGate = 20 * time.Millisecond
)

// AdmitWaiting admits executions that wait for budgets and limits: as many as fit, at each limit in the order of
// claims. It returns how many it has admitted, moved to another limit to wait for, or cancelled as a full limit
// demands. batch limits the number for each transaction; after a result of at least batch, more may be possible at
// once.
//
// A limit is never exceeded, however many processes call AdmitWaiting: the row of a limit's key is locked while
// admissions are counted and added. An execution is admitted by all of its budgets and limits at once, and holds
// nothing until then.
//
// Errors: [fferr.ErrInvalidInput]; [fferr.ErrCorruption] for a quota policy with a negative limit, after all others
// were handled. Transaction: one per 200 budgets and limits with waiting executions, with a constant number of
// statements, and one statement for new limits; waits for no lock. Safe to repeat and to run in any number of
// processes.
func (u *Upkeep) AdmitWaiting(ctx context.Context, batch int) (int, error) {
	const op = "admit waiting executions"
	if err := core.CheckBatch(batch); err != nil {
		return 0, err
	}
	u = u.shortWait()
	var round gateRound
	round.begin(u)
	ensured := 0
	for round.done < batch {
		pass := gatePass{GateLocks: core.GateLocks{C: u.c}, batch: batch}
		var found []db.ScanWaitingGatesRow
		acted, err := core.InTx(ctx, u.c, op, func(tx *core.Txn) (int, error) {
			var err error
			if found, err = u.c.Q.ScanWaitingGates(ctx, tx, db.ScanWaitingGatesParams{AfterGateID: round.after, PageSize: int32(min(maxPassGates, batch))}); err != nil {
				return 0, err
			}
			pass = gatePass{GateLocks: core.GateLocks{C: u.c}, batch: batch}
			for i := range found {
				pass.lookFor(&found[i])
			}
			return pass.run(ctx, tx)
		})
		if err == nil {
			var cancelled int
			cancelled, err = u.cancelSurplus(ctx, &pass)
			acted += cancelled
		}
		again := false
		if err == nil && ensured < 2 { // limits with waiting executions, then the other limits of the executions
			again, err = pass.ensure(ctx, op)
		}
		if err != nil {
			return round.done, err
		}
		if again {
			round.done += acted
			ensured++
			continue
		}
		ensured = 0
		round.note(&pass, found, acted)
		if round.over {
			break
		}
	}
	round.end(u, batch)
	return round.done, core.Wrap(op, round.corrupt)
}

// gateRound is one call of the job admit_waiting: it examines all budgets and limits with waiting executions once, from
// the position where the last call stopped. See docs/internals/decisions.md#gate.
type gateRound struct {
	from, after pgtype.UUID
	wrapped     bool // it continues from the first one
	over        bool
	done        int
	waits       bool          // executions wait
	busy        bool          // a limit was locked
	next        time.Duration // until the first window admits again; 0: unknown
	corrupt     error
}

func (r *gateRound) begin(u *Upkeep) {
	u.gates.mu.Lock()
	defer u.gates.mu.Unlock()
	r.from = pgtype.UUID{Bytes: u.gates.position, Valid: true}
	r.after = r.from
}

// note notes the findings of a pass, and continues after its budgets and limits unless another pass over the same ones
// may admit more.
func (r *gateRound) note(p *gatePass, found []db.ScanWaitingGatesRow, acted int) {
	r.done += acted
	r.waits = r.waits || len(found) > 0
	r.busy = r.busy || p.Busy
	if wait := time.Duration(p.NextMs-p.NowMs) * time.Millisecond; p.NextMs > 0 && (r.next == 0 || wait < r.next) {
		r.next = max(wait, time.Millisecond)
	}
	if r.corrupt == nil {
		r.corrupt = p.Corrupt
	}
	switch {
	case p.more && acted > 0:
	case len(found) == min(maxPassGates, p.batch): // no more than the batch: each gets a share
		r.after = found[len(found)-1].GateID
		r.over = r.wrapped && bytes.Compare(r.after.Bytes[:], r.from.Bytes[:]) >= 0
	case r.wrapped || r.from.Bytes == gate.ID{}:
		r.after, r.over = pgtype.UUID{Valid: true}, true
	default:
		r.after, r.wrapped = pgtype.UUID{Valid: true}, true
	}
}

func (r *gateRound) end(u *Upkeep, batch int) {
	u.gates.mu.Lock()
	defer u.gates.mu.Unlock()
	if r.waits {
		core.AwaitedPlacesOf(u.c).Note()
	}
	u.gates.position, u.gates.waits = r.after.Bytes, r.waits
	switch now := time.Now(); {
	case r.done >= batch:
		u.gates.next = now
	case r.busy && (r.next == 0 || busyGate < r.next):
		u.gates.next = now.Add(busyGate)
	case r.next > 0:
		u.gates.next = now.Add(r.next)
	default:
		u.gates.next = time.Time{}
	}
}

// gateMemory is the state of the job admit_waiting in this process.
type gateMemory struct {
	mu       sync.Mutex
	position gate.ID // where the next call begins
	waits    bool    // executions were waiting at the last call
	next     time.Time
}

// NextAdmission returns when the job admit_waiting of this engine should be called again because a window will admit
// again or a limit was locked, as an instant of this process; zero if neither. Ends of executions free places too: see
// [Upkeep.AdmissionsWait].
func (u *Upkeep) NextAdmission() time.Time {
	u.gates.mu.Lock()
	defer u.gates.mu.Unlock()
	return u.gates.next
}

// AdmissionsWait reports whether executions wait for budgets or limits, as far as the job admit_waiting of this engine
// knows. While executions wait, call the job when a reconciler reports an end.
func (u *Upkeep) AdmissionsWait() bool {
	u.gates.mu.Lock()
	defer u.gates.mu.Unlock()
	return u.gates.waits
}

// Gated receives a value when this engine has created executions that wait for budgets or limits, or has freed places.
// Then call the job admit_waiting soon.
func (u *Upkeep) Gated() <-chan struct{} { return u.c.Gated }

// OnGated calls a function when the reason for [Upkeep.Gated] arises in any process, until stop is called: in this
// process at once, in others while a call of [engine.Engine.Listen] has a connection. It opens none itself. The
// function must not block; nil is never called.
func (u *Upkeep) OnGated(wake func()) (stop func()) {
	return u.c.OnNotification(core.GateChannel, false, wake) // after a new connection the database is asked anyway
}
