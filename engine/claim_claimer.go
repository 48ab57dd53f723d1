package engine

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
)

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
// often, down to every ten seconds, where a look takes long, and, of those it is told to take, while all it
// asks for is there or the last one found nothing that the bounds hide. Between them a claimer that is told
// of work goes back behind its bounds by a second: so far back stands what was committed late. A bound only
// hides rows for a while; it never loses one. Interrupted attempts are left to the full look, wherever they
// stand.
//
// What it may not claim, of other kinds or for other capabilities, it passes over: 10,000 of them cost some
// milliseconds. Where it meets as many it moves its positions to the ends of the lane, so that the claims between
// two full scans do not meet them again; full scans that are fruitless again and again become rarer, down to a
// fiftieth of the time and every ten seconds.
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

	fruitless int // full scans in a row that found nothing that the scan positions hide

	// The last claim that came back short, from the positions and from the head, may have passed many entries over.
	crowdedBehind, crowded bool
	endsTook               time.Duration // to read the ends of the lane, the last time
	roomyAt                time.Time     // when there was no crowd

	claims    int // so far
	lookedFor int // claims before the last full look
}

// A full look is due after a second, as soon as an answer came back short, or when the claimer is told of
// work: at once, or after a tenth of a second while it gets all it asks for anyway. It waits until looks take no
// more than their share of the time, many dead entries at the head or few, unless there is nothing else to do and
// the last one found what the bounds hide. One that was merely held up, by the network or a busy server, looks
// the same from here: so none counts as longer than longLook, and no work waits longer than ten seconds behind a
// bound. The more of them in a row were fruitless, the longer waits the next one, up to what it waits for under full
// load.
const (
	lookInterval = time.Second
	lateInterval = time.Second // between a creation and its commit, for it to be found without a full look
	toldInterval = 100 * time.Millisecond
	lookPace     = 50
	longLook     = 200 * time.Millisecond
	toldPace     = 10
	maxBounds    = 32 // priorities remembered; more are rare, and the full look serves them
)

// A claim that came back short and took this long, and so much for each execution it leased, met thousands of
// entries that it may not claim, or was merely held up: the lane itself tells, at little cost.
const (
	longPass     = 5 * time.Millisecond
	longPassEach = 100 * time.Microsecond
	crowd        = 5000 // entries of a priority
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

// Claim is [Engine.Claim] from where the last one stopped. Fewer than limit: no more was found where it
// looked; the caller asks again when it is told of work or at its next poll.
func (c *Claimer) Claim(ctx context.Context, limit int) ([]Claimed, error) {
	if err := checkClaim(c.spec, limit); err != nil {
		return nil, err
	}
	return c.claim(ctx, limit, func(bounds []bound, n int) ([]Claimed, error) { return c.e.claim(ctx, c.spec, bounds, n) })
}

// CompleteAndClaim is [Engine.CompleteExecutions] and then [Claimer.Claim], in one transaction and one round
// trip where nothing depends on the completed executions: at one execution a time half of the commits. The
// outcomes of the completions stand in input order. The error means that neither is known to have happened;
// repeating both is safe, and the leases of a lost answer run out. A claim that fails after the completions
// leaves nothing claimed and is no error: the caller claims again, and then learns of it.
//
// Of more than [MaxBatch] completions, and of members of flows, it makes transactions of their own.
func (c *Claimer) CompleteAndClaim(ctx context.Context, completions []Completion, limit int) ([]error, []Claimed, error) {
	if err := checkClaim(c.spec, limit); err != nil {
		return nil, nil, err
	}
	var outcomes []error
	claimed, err := c.claim(ctx, limit, func(bounds []bound, n int) (claimed []Claimed, err error) {
		if outcomes != nil {
			return c.e.claim(ctx, c.spec, bounds, n)
		}
		outcomes, claimed, err = c.e.completeAndClaim(ctx, completions, c.spec, bounds, n)
		return claimed, err
	})
	if err != nil && outcomes == nil {
		return nil, nil, err
	}
	return outcomes, claimed, nil
}

// claim claims behind the bounds by take, and from the head where that is due.
func (c *Claimer) claim(ctx context.Context, n int, take func(bounds []bound, n int) ([]Claimed, error)) ([]Claimed, error) {
	var claimed []Claimed
	if bounds := c.current(); len(bounds) > 0 {
		ends := c.endsOf(ctx, bounds)
		began := time.Now()
		var err error
		if claimed, err = take(bounds, n); err != nil {
			return nil, err
		}
		c.advance(claimed, n, false)
		if len(claimed) == n {
			return claimed, nil
		}
		c.passed(&c.crowdedBehind, time.Since(began), len(claimed), ends)
		if !c.mayLook() {
			return claimed, nil
		}
	}
	ends := c.laneEnds(ctx, &c.crowded)
	began := c.beginLook()
	more, err := take(nil, n-len(claimed))
	if err != nil {
		// What was claimed before is held; the failed look is repeated by the next call.
		if len(claimed) > 0 {
			return claimed, nil
		}
		return nil, err
	}
	took := c.looked(began)
	c.advance(more, n-len(claimed), true)
	if len(claimed)+len(more) < n {
		c.passed(&c.crowded, took, len(more), ends)
	}
	return append(claimed, more...), nil
}

// endsOf is laneEnds for a claim from positions, which sees no other priorities than theirs.
func (c *Claimer) endsOf(ctx context.Context, positions []bound) []bound {
	return slices.DeleteFunc(c.laneEnds(ctx, &c.crowdedBehind), func(end bound) bool {
		_, found := searchBound(positions, end.priority)
		return !found
	})
}

// laneEnds returns where the lane ends, if it may be crowded: the last entry at each priority that has thousands. A
// claim that begins now and comes back short has seen them all.
func (c *Claimer) laneEnds(ctx context.Context, crowded *bool) []bound {
	c.mu.Lock()
	due := *crowded && time.Since(c.roomyAt) > lookInterval
	c.mu.Unlock()
	if !due {
		return nil
	}
	began := time.Now()
	rows, err := c.e.q.ListLaneEnds(ctx, c.e.reader(), db.ListLaneEndsParams{
		LaneID: string(c.spec.Lane), MaxItems: maxBounds, Crowd: crowd,
	})
	if err != nil {
		return nil // the claim itself tells
	}
	ends := make([]bound, len(rows))
	for i, row := range rows {
		ends[i] = bound{priority: int32(-row.Rank), createdAtMs: row.CreatedAtMs, execution: id.ExecutionUUID(row.ExecutionID.Bytes)}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endsTook = time.Since(began)
	if len(ends) == 0 {
		c.roomyAt = time.Now()
	}
	return ends
}

// passed notes that a claim came back short: all up to the ends of the lane has been seen, so that the next one goes on
// behind them, and the time it took says whether there may be a crowd.
func (c *Claimer) passed(crowded *bool, took time.Duration, claimed int, ends []bound) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*crowded = took > c.endsTook+longPass+time.Duration(claimed)*longPassEach
	bounds := slices.Clone(c.bounds)
	for _, end := range ends {
		end.moved = c.claims
		bounds = raise(bounds, end, false)
	}
	c.bounds = bounds[:min(len(bounds), maxBounds)]
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
	switch {
	case since > max(lookInterval, lookPace*c.lookTook),
		c.told && !c.full && c.worthALook(),
		c.told && since > toldInterval && c.paced():
		return nil
	case c.told && !c.full:
		return late(c.bounds)
	}
	return c.bounds
}

// late returns the bounds a little back, before what was created then and has been committed since.
func late(bounds []bound) []bound {
	late := slices.Clone(bounds)
	for i := range late {
		late[i].createdAtMs -= lateInterval.Milliseconds()
	}
	return late
}

// mayLook says whether a claimer that found less than it was asked for may look for it from the head: while
// looks find what the bounds hide they are worth what they take, since nothing else is to be done. Work that
// has only just come says nothing: the next claim behind the bounds finds more of it.
func (c *Claimer) mayLook() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.worthALook()
}

func (c *Claimer) worthALook() bool { return c.fruitless == 0 || c.paced() }

func (c *Claimer) paced() bool {
	pace := min(toldPace*max(c.fruitless, 1), lookPace)
	return time.Since(c.lookedAt) > time.Duration(pace)*c.lookTook
}

// beginLook settles what the claimer was told so far; what it is told during the look is not lost.
func (c *Claimer) beginLook() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = false
	return time.Now()
}

// looked records a full scan, and returns how long it took.
func (c *Claimer) looked(began time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lookedAt = time.Now()
	took := c.lookedAt.Sub(began)
	c.lookTook = min(took, longLook)
	return took
}

// advance moves the bounds to the last execution claimed at each priority, by a claim of up to n. Those of
// other priorities stay, until two full looks have passed without a claim there. Behind the last one that a
// full look claimed more may come before the old bound: the members of a flow are as old as the flow.
func (c *Claimer) advance(claimed []Claimed, n int, look bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.full = len(claimed) == n
	c.claims++
	if look {
		c.fruitless++
		if slices.ContainsFunc(claimed, c.hides) {
			c.fruitless = 0
		}
	}
	bounds := append([]bound(nil), c.bounds...)
	for i := range claimed {
		b := boundAt(&claimed[i])
		b.moved = c.claims
		bounds = raise(bounds, b, look)
	}
	if look {
		bounds = slices.DeleteFunc(bounds, func(b bound) bool { return b.moved <= c.lookedFor })
		c.lookedFor = c.claims - 1
	}
	if len(bounds) > maxBounds {
		bounds = bounds[:maxBounds]
	}
	c.bounds = bounds
}

// hides says whether a claim behind the bounds passes x over.
func (c *Claimer) hides(x Claimed) bool {
	at, found := searchBound(c.bounds, int32(x.Priority))
	return x.Resumed || !found || !c.bounds[at].before(boundAt(&x))
}

// boundAt is the bound that x sets when it is the last to be claimed.
func boundAt(x *Claimed) bound {
	return bound{priority: int32(x.Priority), createdAtMs: x.CreatedAt.UnixMilli(), execution: x.ID.UUID()}
}

// before says whether b comes first, of two bounds of one priority.
func (b bound) before(other bound) bool {
	return cmp.Or(cmp.Compare(b.createdAtMs, other.createdAtMs), compareUUID(b.execution, other.execution)) < 0
}

func searchBound(bounds []bound, priority int32) (at int, found bool) {
	return slices.BinarySearchFunc(bounds, priority, func(b bound, p int32) int { return cmp.Compare(p, b.priority) })
}

// raise moves the bound of b's priority to b if b is behind it in the lane's order, or in any case.
func raise(bounds []bound, b bound, always bool) []bound {
	at, found := searchBound(bounds, b.priority)
	switch {
	case !found:
		return slices.Insert(bounds, at, b)
	case always, bounds[at].before(b):
		bounds[at] = b
	default:
		bounds[at].moved = b.moved
	}
	return bounds
}
