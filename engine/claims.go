package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/normalise"
	"github.com/flowfabric/flowfabric-go/state"
)

// ClaimSpec says who claims work, where, and for how long.
type ClaimSpec struct {
	Lane         id.LaneID
	Capabilities id.Capabilities // what the worker can do; an execution that requires more is passed over
	Worker       id.WorkerID
	Instance     id.WorkerInstanceID
	LeaseTTL     time.Duration // one millisecond to [MaxLeaseTTL]
}

func (s ClaimSpec) validate() error {
	if err := s.Lane.Validate(); err != nil {
		return invalidBecause("lane", err)
	}
	if err := s.Capabilities.Validate(); err != nil {
		return invalidBecause("capabilities", err)
	}
	if err := s.Worker.Validate(); err != nil {
		return invalidBecause("worker", err)
	}
	if err := s.Instance.Validate(); err != nil {
		return invalidBecause("worker instance", err)
	}
	return checkTTL("lease TTL", s.LeaseTTL)
}

// Claimed is an execution whose lease the caller now holds.
type Claimed struct {
	Lease
	ExpiresAt time.Time // of the lease
	Kind      string
	Payload   []byte // nil when none was given
	Tags      map[string]string
	Flow      *id.FlowID // nil outside a flow
	Priority  int
	CreatedAt time.Time
	Type      state.AttemptType
	Resumed   bool      // an interrupted attempt goes on: a lease was lost, or the work was parked
	Retries   int       // scheduled before this attempt
	TimeoutAt time.Time // of the attempt; zero when it has none
}

// Claim takes leases on up to n claimable executions of a lane, over all partitions: highest priority
// first, then oldest, then by id. It waits for nobody: an execution that another transaction holds is
// passed over. An empty result means that nothing was claimable. n is at most [MaxBatch].
//
// Each claim continues an interrupted attempt or opens the next one, under an epoch higher than every
// earlier one of the execution. Errors: [ErrInvalidInput]; [ErrContention] when another program's
// transaction held an attempt row too long.
//
// Transaction: one statement; locks the executions claimed, then their attempts; emits lease events.
// A repetition after an unknown outcome claims other executions: the leases of the lost answer expire.
//
// A process that claims again and again uses a [Claimer].
func (e *Engine) Claim(ctx context.Context, spec ClaimSpec, n int) ([]Claimed, error) {
	if err := checkClaim(spec, n); err != nil {
		return nil, err
	}
	return e.claim(ctx, spec, nil, n)
}

func checkClaim(spec ClaimSpec, n int) error {
	if n < 1 || n > MaxBatch {
		return invalid("n", "must be between 1 and 1000")
	}
	return spec.validate()
}

// claim claims behind the bounds, or from the head of the lane when there are none.
func (e *Engine) claim(ctx context.Context, spec ClaimSpec, bounds []bound, n int) ([]Claimed, error) {
	var watchID id.LeaseID
	rows, err := inStatement(ctx, e, "claim", func(conn db.DBTX, due *rings) ([]db.ClaimFromHeadRow, error) {
		leaseIDs := id.NewLeaseIDs(n)
		watchID = leaseIDs[0]
		params := db.ClaimFromHeadParams{
			AttemptIds:       pgUUIDs(id.NewAttemptIDs(n)),
			LeaseIds:         pgUUIDs(leaseIDs),
			LeaseTtlMs:       spec.LeaseTTL.Milliseconds(),
			NowMs:            e.nowMs(),
			LaneID:           string(spec.Lane),
			Capabilities:     spec.capabilities(),
			WorkerID:         string(spec.Worker),
			WorkerInstanceID: string(spec.Instance),
			MaxItems:         int32(n),
		}
		var rows []db.ClaimFromHeadRow
		var err error
		if len(bounds) > 0 {
			rows, err = e.claimBehind(ctx, conn, bounds, params)
		} else {
			rows, err = e.q.ClaimFromHead(ctx, conn, params)
		}
		if len(rows) > 0 {
			due.leases()
		}
		return rows, err
	})
	if errors.Is(err, errMissed) {
		return e.claimLocked(ctx, spec, n)
	}
	if err != nil {
		return nil, err
	}
	claimed := make([]Claimed, len(rows))
	for i := range rows {
		claimed[i] = spec.claimed(&rows[i])
	}
	if e.tx == nil {
		watchClaimed(claimed, watchID)
	}
	return claimed, nil
}

func (e *Engine) claimBehind(
	ctx context.Context, conn db.DBTX, bounds []bound, p db.ClaimFromHeadParams,
) ([]db.ClaimFromHeadRow, error) {
	params := db.ClaimBehindParams{
		AttemptIds: p.AttemptIds, LeaseIds: p.LeaseIds, LeaseTtlMs: p.LeaseTtlMs, NowMs: p.NowMs, LaneID: p.LaneID,
		Capabilities: p.Capabilities, WorkerID: p.WorkerID, WorkerInstanceID: p.WorkerInstanceID, MaxItems: p.MaxItems,
	}
	for _, b := range bounds {
		params.BoundRanks = append(params.BoundRanks, -int64(b.priority))
		params.BoundCreatedAtMs = append(params.BoundCreatedAtMs, b.createdAtMs)
		params.BoundExecutionIds = append(params.BoundExecutionIds, pgUUID(b.execution))
	}
	behind, err := e.q.ClaimBehind(ctx, conn, params)
	rows := make([]db.ClaimFromHeadRow, len(behind))
	for i := range behind {
		rows[i] = db.ClaimFromHeadRow(behind[i])
	}
	return rows, err
}

func (s ClaimSpec) capabilities() []string {
	if s.Capabilities == nil {
		return []string{}
	}
	return s.Capabilities
}

func (s ClaimSpec) claimed(row *db.ClaimFromHeadRow) Claimed {
	c := Claimed{
		Lease: Lease{
			Execution: id.ExecutionIDFromRow(row.PartitionKey, id.ExecutionUUID(row.ExecutionID.Bytes)),
			Attempt:   row.AttemptIndex,
			Epoch:     row.LeaseEpoch,
			ID:        id.LeaseID(row.LeaseID.Bytes),
			AttemptID: id.AttemptID(row.AttemptID.Bytes),
			Lane:      s.Lane,
			Instance:  s.Instance,
			TTL:       s.LeaseTTL,
		},
		ExpiresAt: time.UnixMilli(row.LeaseExpiresAtMs),
		Kind:      row.ExecutionKind,
		Payload:   row.Payload,
		Tags:      decodeTags(row.Tags),
		Priority:  int(row.Priority),
		CreatedAt: time.UnixMilli(row.CreatedAtMs),
		Type:      state.InitialAttempt,
		Resumed:   row.PriorAttemptState == string(state.AttemptInterrupted),
		Retries:   int(row.RetryCount),
	}
	switch {
	case row.AttemptType != nil:
		if t, err := normalise.AttemptType(*row.AttemptType); err == nil {
			c.Type = t
		}
	case row.PriorAttemptState == string(state.PendingRetryAttempt):
		c.Type = state.RetryAttempt
	case row.PriorAttemptState == string(state.PendingReplayAttempt):
		c.Type = state.ReplayAttempt
	}
	if row.TimeoutAtMs > 0 {
		c.TimeoutAt = time.UnixMilli(row.TimeoutAtMs)
	}
	c.Flow = flowOf(row.FlowID)
	c.flow = c.Flow
	return c
}

// decodeTags reads the tags of an execution. Values that are not text are left out.
func decodeTags(document []byte) map[string]string {
	if len(document) == 0 || string(document) == "{}" {
		return nil
	}
	var raw map[string]any
	if json.Unmarshal(document, &raw) != nil {
		return nil
	}
	tags := make(map[string]string, len(raw))
	for key, value := range raw {
		if text, ok := value.(string); ok {
			tags[key] = text
		}
	}
	return tags
}

// A bound is the position in a lane's order of the last execution claimed at a priority.
type bound struct {
	priority    int32
	createdAtMs int64
	execution   id.ExecutionUUID
	moved       int // by which of the claimer's claims
}

// Claimer claims from one lane again and again. It remembers where it stopped at each priority and goes
// on there, so that index entries of finished work at the head of the lane, which an old snapshot can
// keep alive for long, are not read again with every claim. What becomes claimable behind it is found by
// a full look, from the head: after a short answer, after [Claimer.LookAgain], and every second; less
// often where a look takes long, and, of those it is told to take, while all it asks for is there.
// A bound only hides rows for a while; it never loses one. Interrupted attempts are left to the full look
// too, wherever they stand.
//
// A Claimer is safe for concurrent use.
type Claimer struct {
	e    *Engine
	spec ClaimSpec

	mu       sync.Mutex
	bounds   []bound // highest priority first
	lookedAt time.Time
	lookTook time.Duration
	told     bool
	full     bool // the last claim got all it asked for

	claims    int // so far
	lookedFor int // claims at the last full look
}

// A full look is due after a second, as soon as an answer came back short, or when the claimer is told of
// work: at once, or after a tenth of a second while it gets all it asks for anyway. One that takes long,
// since many dead entries stand at the head, waits until it takes no more than its share of the time.
const (
	lookInterval = time.Second
	toldInterval = 100 * time.Millisecond
	lookPace     = 50
	shortLook    = 50 * time.Millisecond
	toldPace     = 10
	maxBounds    = 32 // priorities remembered; more are rare, and the full look serves them
)

// NewClaimer returns a claimer for one lane and one worker instance.
//
// Errors: [ErrInvalidInput].
func (e *Engine) NewClaimer(spec ClaimSpec) (*Claimer, error) {
	if err := spec.validate(); err != nil {
		return nil, err
	}
	return &Claimer{e: e, spec: spec}, nil
}

// Claim is [Engine.Claim] from where the last one stopped. Fewer than n: no more was found where it
// looked; the caller asks again when it is told of work or at its next poll.
func (c *Claimer) Claim(ctx context.Context, n int) ([]Claimed, error) {
	if err := checkClaim(c.spec, n); err != nil {
		return nil, err
	}
	var claimed []Claimed
	if bounds := c.current(); len(bounds) > 0 {
		var err error
		if claimed, err = c.e.claim(ctx, c.spec, bounds, n); err != nil {
			return nil, err
		}
		c.advance(claimed, n, false)
		if len(claimed) == n || !c.mayLook() {
			return claimed, nil
		}
	}
	began := c.beginLook()
	more, err := c.e.claim(ctx, c.spec, nil, n-len(claimed))
	if err != nil {
		// What was claimed before is held; the failed look is repeated by the next call.
		if len(claimed) > 0 {
			return claimed, nil
		}
		return nil, err
	}
	c.looked(began)
	c.advance(more, n-len(claimed), true)
	return append(claimed, more...), nil
}

// LookAgain makes a full look due. A worker calls it when it is told that work has come: it may stand
// behind a bound.
func (c *Claimer) LookAgain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = true
}

// current returns the bounds to claim behind, nil when a full look is due.
func (c *Claimer) current() []bound {
	c.mu.Lock()
	defer c.mu.Unlock()
	since := time.Since(c.lookedAt)
	if since > max(lookInterval, lookPace*c.lookTook) || c.told && c.rested() && (!c.full || since > toldInterval) {
		return nil
	}
	return c.bounds
}

func (c *Claimer) mayLook() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rested()
}

func (c *Claimer) rested() bool {
	return c.lookTook < shortLook || time.Since(c.lookedAt) > toldPace*c.lookTook
}

// beginLook settles what the claimer was told so far; what it is told during the look is not lost.
func (c *Claimer) beginLook() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = false
	return time.Now()
}

// looked records a full look.
func (c *Claimer) looked(began time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lookedAt = time.Now()
	c.lookTook = c.lookedAt.Sub(began)
}

// advance moves the bounds to the last execution claimed at each priority, by a claim of up to n. Those of
// other priorities stay, until two full looks have passed without a claim there. Behind the last one that a
// full look claimed more may come before the old bound: the members of a flow are as old as the flow.
func (c *Claimer) advance(claimed []Claimed, n int, look bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.full = len(claimed) == n
	c.claims++
	bounds := append([]bound(nil), c.bounds...)
	for i := range claimed {
		b := bound{
			priority:    int32(claimed[i].Priority),
			createdAtMs: claimed[i].CreatedAt.UnixMilli(),
			execution:   claimed[i].Execution.UUID(),
			moved:       c.claims,
		}
		bounds = raise(bounds, b, look)
	}
	if look {
		bounds = slices.DeleteFunc(bounds, func(b bound) bool { return b.moved <= c.lookedFor })
		c.lookedFor = c.claims
	}
	if len(bounds) > maxBounds {
		bounds = bounds[:maxBounds]
	}
	c.bounds = bounds
}

// raise moves the bound of b's priority to b if b is behind it in the lane's order, or in any case.
func raise(bounds []bound, b bound, always bool) []bound {
	at, found := slices.BinarySearchFunc(bounds, b, func(x, y bound) int { return cmp.Compare(y.priority, x.priority) })
	switch {
	case !found:
		return slices.Insert(bounds, at, b)
	case always, cmp.Or(cmp.Compare(b.createdAtMs, bounds[at].createdAtMs), compareUUID(b.execution, bounds[at].execution)) > 0:
		bounds[at] = b
	default:
		bounds[at].moved = b.moved
	}
	return bounds
}
