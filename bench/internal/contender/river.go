package contender

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// Tuning is the configuration of River's client.
type Tuning struct {
	Name              string
	MaxWorkers        int // replaced by [Work.Concurrency]
	FetchCooldown     time.Duration
	FetchPollInterval time.Duration
	KnownKindsOnly    bool // jobs without a worker stay in the queue
}

// RiverDefaults returns the client's defaults, with the number of workers from River's documentation, since there is no
// default.
func RiverDefaults() Tuning { return Tuning{Name: "client defaults", MaxWorkers: 100} }

// RiverBench returns the settings of River's own benchmark, `river bench`.
func RiverBench() Tuning {
	return Tuning{
		Name:              "as in river bench",
		MaxWorkers:        2000,
		FetchCooldown:     2 * time.Millisecond,
		FetchPollInterval: 20 * time.Millisecond,
	}
}

// RiverFastest returns settings to look for work as often as River allows.
func RiverFastest() Tuning {
	return Tuning{
		Name:              "fastest fetch",
		MaxWorkers:        2000,
		FetchCooldown:     river.FetchCooldownMin,
		FetchPollInterval: river.FetchPollIntervalMin,
	}
}

// River is the peer.
type River struct {
	pool   *pgxpool.Pool
	log    *slog.Logger
	insert *river.Client[pgx.Tx]
	tuning Tuning
}

func newRiver(ctx context.Context, databaseURL string, connections int, log *slog.Logger) (*River, error) {
	pool, err := newPool(ctx, databaseURL, connections, nil)
	if err != nil {
		return nil, err
	}
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: log})
	if err != nil {
		return nil, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	insert, err := river.NewClient(driver, &river.Config{Logger: log})
	if err != nil {
		return nil, err
	}
	return &River{pool: pool, log: log, insert: insert, tuning: RiverBench()}, nil
}

// Tuned returns the same database with other client settings.
func (r *River) Tuned(t Tuning) *River {
	tuned := *r
	tuned.tuning = t
	return &tuned
}

// Name implements [Contender].
func (r *River) Name() string { return "river, " + r.tuning.Name }

// Pool implements [Contender].
func (r *River) Pool() *pgxpool.Pool { return r.pool }

// Reset implements [Contender].
func (r *River) Reset(ctx context.Context) error {
	_, err := r.pool.Exec(ctx, "truncate river_job; alter table river_job reset (autovacuum_enabled)")
	return err
}

// Check implements [Contender].
func (r *River) Check(ctx context.Context, ended int) error {
	var completed int
	err := r.pool.QueryRow(ctx, "select count(*) from river_job where state = 'completed'").Scan(&completed)
	if err == nil && completed != ended {
		err = fmt.Errorf("%d jobs completed, want %d", completed, ended)
	}
	return err
}

// Kind implements [river.JobArgs].
func (args) Kind() string { return kind }

// reservedArgs is a job without a worker.
type reservedArgs args

// Kind implements [river.JobArgs].
func (reservedArgs) Kind() string { return reservedKind }

// secondArgs and thirdArgs are jobs of other kinds.
type (
	secondArgs args
	thirdArgs  args
)

// Kind implements [river.JobArgs].
func (secondArgs) Kind() string { return variantKinds[1] }

// Kind implements [river.JobArgs].
func (thirdArgs) Kind() string { return variantKinds[2] }

// riverJob converts a job. River's priorities go from 1, the highest, to 4.
func riverJob(job Job) river.InsertManyParams {
	p := river.InsertManyParams{Args: job.args(), InsertOpts: &river.InsertOpts{Priority: 4 - job.Priority}}
	if job.Tag != "" {
		p.InsertOpts.Tags = []string{job.Tag}
	}
	if job.Lane > 0 {
		p.InsertOpts.Queue = laneName(job.Lane)
	}
	switch {
	case job.Reserved:
		p.Args = reservedArgs(job.args())
	case job.Variant == 1:
		p.Args = secondArgs(job.args())
	case job.Variant == 2:
		p.Args = thirdArgs(job.args())
	}
	return p
}

// Insert implements [Contender]: one job with Insert, many with InsertManyFast, which uses COPY.
func (r *River) Insert(ctx context.Context, jobs []Job) error {
	if len(jobs) == 1 {
		job := riverJob(jobs[0])
		_, err := r.insert.Insert(ctx, job.Args, job.InsertOpts)
		return err
	}
	params := make([]river.InsertManyParams, len(jobs))
	for i, job := range jobs {
		params[i] = riverJob(job)
	}
	_, err := r.insert.InsertManyFast(ctx, params)
	return err
}

// InsertTx implements [Contender].
func (r *River) InsertTx(ctx context.Context, tx pgx.Tx, job Job) error {
	p := riverJob(job)
	_, err := r.insert.InsertTx(ctx, tx, p.Args, p.InsertOpts)
	return err
}

// riverWorker is the handler.
type riverWorker struct {
	river.WorkerDefaults[args]
	started func(num int)
}

// Work implements [river.Worker].
func (w *riverWorker) Work(_ context.Context, job *river.Job[args]) error {
	if w.started != nil {
		w.started(job.Args.Num)
	}
	return nil
}

// Run implements [Contender].
func (r *River) Run(ctx context.Context, w Work) error {
	var errs []error
	var stops []func() error
	for range max(1, w.Workers) {
		stop, err := r.start(ctx, w)
		if err != nil {
			errs = append(errs, err)
			break
		}
		stops = append(stops, stop)
	}
	if len(errs) == 0 {
		<-ctx.Done()
	}
	for _, stop := range stops {
		errs = append(errs, stop())
	}
	return errors.Join(errs...)
}

// riverNum reads the number from the server's form of encode's bytes.
func riverNum(stored []byte) int { return num(bytes.ReplaceAll(stored, []byte(" "), nil)) }

// eventRoom is the buffer for completions not yet counted, as large as in River's own benchmark. Further events are lost.
const eventRoom = 75_000

// start starts a client and returns a function to stop the client.
func (r *River) start(ctx context.Context, w Work) (stop func() error, err error) {
	maxWorkers := w.Concurrency
	if maxWorkers == 0 {
		maxWorkers = r.tuning.MaxWorkers
	}
	queues := map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: maxWorkers}}
	if w.Lanes > 0 {
		clear(queues)
		for lane := range w.Lanes {
			queues[laneName(lane+1)] = river.QueueConfig{MaxWorkers: maxWorkers}
		}
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{started: w.Started})
	client, err := river.NewClient(riverpgxv5.New(r.pool), &river.Config{
		FetchCooldown:       r.tuning.FetchCooldown,
		FetchPollInterval:   r.tuning.FetchPollInterval,
		FetchOnlyKnownKinds: r.tuning.KnownKindsOnly,
		Logger:              r.log,
		Queues:              queues,
		Workers:             workers,
	})
	if err != nil {
		return nil, err
	}
	// An event comes after the commit of the job's end, long after the handler returned.
	completed, unsubscribe := client.SubscribeConfig(&river.SubscribeConfig{
		ChanSize: eventRoom,
		Kinds:    []river.EventKind{river.EventKindJobCompleted},
	})
	counted := make(chan struct{})
	go func() {
		defer close(counted)
		for event := range completed {
			if w.Received != nil {
				w.Received(riverNum(event.Job.EncodedArgs))
			}
			if w.Done != nil {
				w.Done()
			}
		}
	}()
	calls := context.WithoutCancel(ctx)
	stop = func() error {
		err := client.Stop(calls)
		unsubscribe()
		<-counted
		return err
	}
	if err := client.Start(calls); err != nil {
		return nil, errors.Join(err, stop())
	}
	if w.Begun != nil {
		w.Begun()
	}
	return stop, nil
}

// Fill implements [Claimer].
func (r *River) Fill(ctx context.Context, n int) error {
	if err := r.Insert(ctx, []Job{{}}); err != nil {
		return err
	}
	if _, err := r.pool.Exec(ctx, "alter table river_job set (autovacuum_enabled = off)"); err != nil {
		return err
	}
	return multiply(ctx, r.pool, "river_job", n, map[string]string{"id": ""})
}

// Bury implements [Claimer].
func (r *River) Bury(ctx context.Context, n int) error {
	_, err := r.pool.Exec(ctx, `
		update river_job as j
		set state = 'completed', attempt = 1, attempted_at = now(), finalized_at = now()
		from (
			select id
			from river_job
			where state = 'available'
			order by priority, scheduled_at, id
			limit $1
		) as head
		where j.id = head.id`, n)
	return err
}

// Claims implements [Claimer] with the call of River's producer.
func (r *River) Claims(context.Context) (func(context.Context, int) (int, error), error) {
	exec := riverpgxv5.New(r.pool).GetExecutor()
	return func(ctx context.Context, n int) (int, error) {
		found, err := exec.JobGetAvailable(ctx, riverFetch(n))
		if err != nil {
			return 0, err
		}
		return len(found.Jobs), nil
	}, nil
}

// riverFetch returns the parameters of a producer's fetch.
func riverFetch(n int) *riverdriver.JobGetAvailableParams {
	return &riverdriver.JobGetAvailableParams{ClientID: "bench", MaxAttemptedBy: 100, MaxToLock: n, Queue: river.QueueDefault}
}
