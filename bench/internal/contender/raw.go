package contender

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Raw is the floor: hand-written statements with the same writes as the library's. Raw guarantees the same for claims
// and completions (fences, lease history and outbox in one transaction) and nothing else: it checks no input, retries
// nothing, renews nothing in the background, sends no notifications, and looks for work every millisecond.
type Raw struct{ *store }

// rawSettings make the server use the intended plans.
var rawSettings = map[string]string{
	"plan_cache_mode":   "force_generic_plan",
	"jit":               "off",
	"enable_hashjoin":   "off",
	"enable_mergejoin":  "off",
	"enable_seqscan":    "off",
	"enable_bitmapscan": "off",
	"ffx.defer_notify":  "on",
}

const (
	rawTTL      = 10 * time.Minute
	rawCopyFrom = 1000 // number of rows from which COPY is faster
)

// Name implements [Contender].
func (*Raw) Name() string { return "raw SQL in a loop" }

// newRawID returns an identifier in pgx's fastest form.
func newRawID() (pgtype.UUID, error) {
	u, err := uuid.NewV7()
	return pgtype.UUID{Bytes: u, Valid: err == nil}, err
}

// rawRows are jobs as the columns of an insert.
type rawRows struct {
	ids          []pgtype.UUID
	priorities   []int32
	payloads     [][]byte
	capabilities []string
	documents    []string // empty if all have the same
}

func newRawRows(jobs []Job) (rawRows, error) {
	r := rawRows{
		ids:          make([]pgtype.UUID, len(jobs)),
		priorities:   make([]int32, len(jobs)),
		payloads:     make([][]byte, len(jobs)),
		capabilities: make([]string, len(jobs)),
	}
	for i, job := range jobs {
		var err error
		if r.ids[i], err = newRawID(); err != nil {
			return r, err
		}
		r.priorities[i] = int32(job.Priority)
		r.payloads[i] = job.args().encode()
		if job.Reserved {
			r.capabilities[i] = reservedFor
		}
		if job.Tag != "" || job.Variant != 0 || len(r.documents) > 0 {
			if len(r.documents) == 0 {
				r.documents = slices.Repeat([]string{rawFields}, len(jobs))
			}
			r.documents[i] = rawFieldsOf(job)
		}
	}
	return r, nil
}

// Insert implements [Contender].
func (r *Raw) Insert(ctx context.Context, jobs []Job) error {
	rows, err := newRawRows(jobs)
	if err != nil {
		return err
	}
	if len(rows.documents) > 0 && len(jobs) < rawCopyFrom {
		_, err = r.pool.Exec(ctx, rawInsertOwn, rows.ids, rows.priorities, rows.payloads, rows.capabilities, rows.documents)
		return err
	}
	if len(jobs) < rawCopyFrom {
		_, err = r.pool.Exec(ctx, rawInsert, rows.ids, rows.priorities, rows.payloads, rows.capabilities)
		return err
	}
	now := time.Now().UnixMilli()
	_, err = r.pool.CopyFrom(ctx, pgx.Identifier{"ff_exec_core"}, rawColumns, pgx.CopyFromSlice(len(jobs), func(i int) ([]any, error) {
		capabilities := []string{}
		if rows.capabilities[i] != "" {
			capabilities = append(capabilities, rows.capabilities[i])
		}
		document := rawFields
		if len(rows.documents) > 0 {
			document = rows.documents[i]
		}
		return []any{
			int16(0), rows.ids[i], "default", capabilities, "runnable", "unowned", "eligible_now", "waiting",
			"pending_first_attempt", "waiting_for_worker", rows.priorities[i], now, rows.payloads[i], document,
			now, 0, 0, 0, 0,
		}, nil
	}))
	return err
}

// InsertTx implements [Contender].
func (r *Raw) InsertTx(ctx context.Context, tx pgx.Tx, job Job) error {
	rows, err := newRawRows([]Job{job})
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, rawInsert, rows.ids, rows.priorities, rows.payloads, rows.capabilities)
	return err
}

// Fill implements [Claimer].
func (r *Raw) Fill(ctx context.Context, n int) error {
	if err := r.Insert(ctx, []Job{{}}); err != nil {
		return err
	}
	return r.multiply(ctx, n)
}

// rawClaimed is a row a claim returns.
type rawClaimed struct {
	Partition   int16
	Execution   pgtype.UUID
	Attempt     int32
	Epoch       int64
	Lease       pgtype.UUID
	Priority    int32
	CreatedAtMs int64
	Payload     []byte
}

// rawClaimer claims after its last claim, or else from the head of the lane.
type rawClaimer struct {
	*Raw
	last       rawClaimed
	positioned bool
}

func (c *rawClaimer) claim(ctx context.Context, n int) ([]rawClaimed, error) {
	for {
		after := c.positioned
		sql, args, err := c.statement(n)
		if err != nil {
			return nil, err
		}
		rows, err := c.pool.Query(ctx, sql, args...)
		if err != nil {
			return nil, err
		}
		if claimed, err := c.collect(rows); err != nil || len(claimed) > 0 || !after {
			return claimed, err
		}
	}
}

// completeAndClaim sends both statements as one transaction. If the last claim found nothing, the next one starts from
// the head.
func (c *rawClaimer) completeAndClaim(ctx context.Context, held []rawClaimed, n int) (claimed []rawClaimed, err error) {
	var batch pgx.Batch
	batch.Queue(rawComplete, rawLeases(held)...)
	sql, args, err := c.statement(n)
	if err != nil {
		return nil, err
	}
	batch.Queue(sql, args...)
	results := c.pool.SendBatch(ctx, &batch)
	defer func() { err = errors.Join(err, results.Close()) }()
	tag, err := results.Exec()
	if err != nil {
		return nil, err
	}
	if int(tag.RowsAffected()) != len(held) {
		return nil, errLeaseLost
	}
	rows, err := results.Query()
	if err != nil {
		return nil, err
	}
	return c.collect(rows)
}

// statement returns a claim, after the scan position if there is one.
func (c *rawClaimer) statement(n int) (sql string, args []any, err error) {
	ids := make([]pgtype.UUID, 2*n)
	for i := range ids {
		if ids[i], err = newRawID(); err != nil {
			return "", nil, err
		}
	}
	args = []any{n, ids[:n], ids[n:], rawTTL.Milliseconds()}
	if !c.positioned {
		return rawClaimHead, args, nil
	}
	return rawClaimAfter, append(args, c.last.Priority, c.last.CreatedAtMs, c.last.Execution), nil
}

// collect reads the rows of a claim and moves the scan position.
func (c *rawClaimer) collect(rows pgx.Rows) ([]rawClaimed, error) {
	claimed, err := pgx.CollectRows(rows, pgx.RowToStructByPos[rawClaimed])
	if err != nil {
		return nil, err
	}
	if c.positioned = len(claimed) > 0; c.positioned {
		c.last = claimed[len(claimed)-1]
	}
	return claimed, nil
}

// rawLeases converts claims to input columns, sorted in lock order.
func rawLeases(claimed []rawClaimed) []any {
	slices.SortFunc(claimed, func(a, b rawClaimed) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), bytes.Compare(a.Execution.Bytes[:], b.Execution.Bytes[:]))
	})
	partitions, executions := make([]int16, len(claimed)), make([]pgtype.UUID, len(claimed))
	attempts, epochs := make([]int32, len(claimed)), make([]int64, len(claimed))
	leases := make([]pgtype.UUID, len(claimed))
	for i, c := range claimed {
		partitions[i], executions[i], attempts[i], epochs[i], leases[i] = c.Partition, c.Execution, c.Attempt, c.Epoch, c.Lease
	}
	return []any{partitions, executions, attempts, epochs, leases}
}

func (r *Raw) complete(ctx context.Context, claimed []rawClaimed) error {
	return r.exec(ctx, rawComplete, len(claimed), rawLeases(claimed)...)
}

// exec runs a statement with a required effect on all n leases.
func (r *Raw) exec(ctx context.Context, sql string, n int, args ...any) error {
	tag, err := r.pool.Exec(ctx, sql, args...)
	if err == nil && int(tag.RowsAffected()) != n {
		err = errLeaseLost
	}
	return err
}

// Run implements [Contender].
func (r *Raw) Run(ctx context.Context, w Work) error {
	return runLoops(ctx, w, func() (loop[rawClaimed], error) {
		c := &rawClaimer{Raw: r}
		return loop[rawClaimed]{
			claim:            c.claim,
			complete:         r.complete,
			completeAndClaim: c.completeAndClaim,
			payload:          func(c rawClaimed) []byte { return c.Payload },
		}, nil
	})
}

// Claims implements [Claimer].
func (r *Raw) Claims(context.Context) (func(context.Context, int) (int, error), error) {
	c := &rawClaimer{Raw: r}
	return func(ctx context.Context, n int) (int, error) {
		claimed, err := c.claim(ctx, n)
		return len(claimed), err
	}, nil
}

// Hold implements [Renewer].
func (r *Raw) Hold(ctx context.Context, n int) (func(context.Context) error, error) {
	c := &rawClaimer{Raw: r}
	var batches [][]rawClaimed
	for held := 0; held < n; {
		claimed, err := c.claim(ctx, min(n-held, rawCopyFrom))
		if err != nil {
			return nil, err
		}
		batches = append(batches, claimed)
		held += len(claimed)
	}
	return func(ctx context.Context) error {
		for _, batch := range batches {
			if err := r.exec(ctx, rawRenew, len(batch), append(rawLeases(batch), rawTTL.Milliseconds())...); err != nil {
				return err
			}
		}
		return nil
	}, nil
}
