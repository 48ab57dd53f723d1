package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
)

// Limits and defaults of registered workers.
const (
	DefaultWorkerTTL = 30 * time.Second
	MaxWorkerTTL     = 24 * time.Hour

	// MaxWorkerLanes limits the lanes, and the kinds, of a registration.
	MaxWorkerLanes = 10_000
)

// WorkerName names a worker process. Instance is unique within the namespace; the zero Namespace is the engine's.
type WorkerName struct {
	Namespace id.Namespace
	Instance  id.WorkerInstanceID
}

func (n *WorkerName) check(e *Engine) error {
	n.Namespace = cmp.Or(n.Namespace, e.cfg.Namespace)
	if err := n.Namespace.Validate(); err != nil {
		return core.InvalidBecause("namespace", err)
	}
	if err := n.Instance.Validate(); err != nil {
		return core.InvalidBecause("instance", err)
	}
	return nil
}

func (n *WorkerName) missing() error {
	return &fferr.NotFoundError{Entity: "worker", ID: string(n.Instance)}
}

// WorkerRegistration is the input of [Engine.RegisterWorker].
type WorkerRegistration struct {
	WorkerName
	Worker       id.WorkerID // the pool of the process
	Lanes        []id.LaneID // at least one
	Capabilities id.Capabilities
	Kinds        []string      // with handlers; nil: not reported
	Concurrency  int           // most executions at once; 0: not reported
	Running      int           // running executions
	TTL          time.Duration // how long the worker is live after a heartbeat, 1 ms to [MaxWorkerTTL]; 0: [DefaultWorkerTTL]
}

// Heartbeat is the input of [Engine.HeartbeatWorker].
type Heartbeat struct {
	WorkerName
	Worker   id.WorkerID // as registered
	Running  int         // running executions
	Stopping bool        // shutting down, without further claims

	// Started has the executions claimed from each lane within the last ten minutes. Lanes without any may be missing.
	Started map[id.LaneID]int

	FullKinds []string // whose handlers are all taken
	Stuck     int      // handlers that continue although their context has ended
}

// Presence is the state of a registration.
type Presence struct {
	Fresh        bool      // new by this call, or no longer live before
	ExpiresAt    time.Time // end of the TTL, by the database's clock
	DrainedSince time.Time // by [operator.DrainWorker]; zero unless drained
}

// RegisterWorker registers a worker process, to be listed by [Engine.Workers] until the TTL has passed without a
// heartbeat. A repetition updates the registration. Registrations are information: leases and claims don't depend on
// them. A [worker.Worker] registers itself.
//
// Errors: [fferr.ErrInvalidInput], naming the field; also [fferr.ErrInstanceTaken] if a live worker with another
// worker id has the instance id; [fferr.ErrContention]. Transaction: one; locks the worker's row. Safe to repeat.
//
// [worker.Worker]: https://pkg.go.dev/github.com/flowfabric/flowfabric-go/worker#Worker
func (e *Engine) RegisterWorker(ctx context.Context, spec WorkerRegistration) (Presence, error) {
	const op = "register worker"
	params, err := e.registration(&spec)
	if err != nil {
		return Presence{}, core.Wrap(op, err)
	}
	return core.InStatement(ctx, e.c, op, func(conn db.DBTX, _ *core.Notifications) (Presence, error) {
		row, err := e.c.Q.RegisterWorker(ctx, conn, params)
		if errors.Is(err, pgx.ErrNoRows) {
			return Presence{}, core.InvalidBecause("instance", fmt.Errorf("%w: %s", fferr.ErrInstanceTaken, spec.Instance))
		}
		return presence(row.Fresh, row.ExpiresAtMs, row.DrainedAtMs), err
	})
}

// registration checks a spec and returns it as parameters.
func (e *Engine) registration(spec *WorkerRegistration) (params db.RegisterWorkerParams, err error) {
	if err := spec.check(e); err != nil {
		return params, err
	}
	if err := spec.Worker.Validate(); err != nil {
		return params, core.InvalidBecause("WorkerRegistration.Worker", err)
	}
	if len(spec.Lanes) > MaxWorkerLanes {
		return params, core.Invalid("WorkerRegistration.Lanes", fmt.Sprintf("%d lanes, limit %d", len(spec.Lanes), MaxWorkerLanes))
	}
	lanes, err := core.LaneTexts(spec.Lanes, "WorkerRegistration.Lanes")
	if err != nil {
		return params, err
	}
	err = cmp.Or(core.CheckKinds("WorkerRegistration.Kinds", spec.Kinds), core.CheckCount("WorkerRegistration.Concurrency", spec.Concurrency),
		core.CheckCount("WorkerRegistration.Running", spec.Running))
	if err != nil {
		return params, err
	}
	capabilities := id.NewCapabilities(spec.Capabilities...)
	if err := capabilities.Validate(); err != nil {
		return params, core.InvalidBecause("WorkerRegistration.Capabilities", err)
	}
	ttl := cmp.Or(spec.TTL, DefaultWorkerTTL)
	switch {
	case len(lanes) == 0:
		return params, core.Invalid("WorkerRegistration.Lanes", "is empty")
	case ttl < time.Millisecond || ttl > MaxWorkerTTL:
		return params, core.Invalid("WorkerRegistration.TTL", fmt.Sprintf("%v, not between 1ms and %v", ttl, MaxWorkerTTL))
	}
	return db.RegisterWorkerParams{
		NowMs: e.c.NowMs(), PartitionKey: spec.Instance.Partition(), Namespace: string(spec.Namespace), WorkerInstanceID: string(spec.Instance),
		WorkerID: string(spec.Worker), Lanes: sortedTexts(lanes), WorkerCapabilities: capabilities.CSV(),
		LivenessTTLMs: ttl.Milliseconds(), Kinds: sortedTexts(spec.Kinds), Running: int32(spec.Running), Concurrency: int32(spec.Concurrency),
	}, nil
}

// sortedTexts returns the distinct texts in byte order, never nil.
func sortedTexts(texts []string) []string {
	sorted := append(make([]string, 0, len(texts)), texts...)
	slices.Sort(sorted)
	return slices.Compact(sorted)
}

// load checks the load, and returns the starts by lane as stored.
func (b *Heartbeat) load() (string, error) {
	if len(b.Started) > MaxWorkerLanes {
		return "", core.Invalid("Heartbeat.Started", fmt.Sprintf("%d lanes, limit %d", len(b.Started), MaxWorkerLanes))
	}
	for _, lane := range slices.Sorted(maps.Keys(b.Started)) {
		field := fmt.Sprintf("Heartbeat.Started[%q]", lane)
		if err := lane.Validate(); err != nil {
			return "", core.InvalidBecause(field, err)
		}
		if err := core.CheckCount(field, b.Started[lane]); err != nil {
			return "", err
		}
	}
	err := cmp.Or(core.CheckCount("Heartbeat.Running", b.Running), core.CheckCount("Heartbeat.Stuck", b.Stuck),
		core.CheckKinds("Heartbeat.FullKinds", b.FullKinds))
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(b.Started)
	return string(text), err
}

// HeartbeatWorker extends a registration by its TTL and stores the load.
//
// Errors: [fferr.ErrNotFound] if the worker is not registered, the TTL has passed, or another worker has the instance
// id: register again. [fferr.ErrBusy] if another transaction holds the row: leave it to the next heartbeat.
// [fferr.ErrInvalidInput]. Transaction: one; locks the worker's row, without waiting. Safe to repeat.
func (e *Engine) HeartbeatWorker(ctx context.Context, beat Heartbeat) (Presence, error) {
	const op = "heartbeat worker"
	if err := beat.check(e); err != nil {
		return Presence{}, core.Wrap(op, err)
	}
	if err := beat.Worker.Validate(); err != nil {
		return Presence{}, core.Wrap(op, core.InvalidBecause("worker", err))
	}
	started, err := beat.load()
	if err != nil {
		return Presence{}, core.Wrap(op, err)
	}
	return inPlain(ctx, e, op, func(conn db.DBTX) (Presence, error) {
		row, err := e.c.Q.HeartbeatWorker(ctx, conn, db.HeartbeatWorkerParams{
			NowMs: e.c.NowMs(), PartitionKey: beat.Instance.Partition(), Namespace: string(beat.Namespace), WorkerInstanceID: string(beat.Instance),
			WorkerID: string(beat.Worker), Running: int32(beat.Running), Stopping: beat.Stopping,
			Started: started, FullKinds: sortedTexts(beat.FullKinds), Stuck: int32(beat.Stuck),
		})
		if errors.Is(err, pgx.ErrNoRows) {
			return Presence{}, beat.missing()
		}
		if err == nil && row.Busy {
			return Presence{}, fferr.ErrBusy
		}
		return presence(false, row.ExpiresAtMs, row.DrainedAtMs), err
	})
}

// inPlain is [core.InStatement] for a statement without waits, repeated by idle processes: on a pool the statement is
// one message, without the settings of a transaction.
func inPlain[T any](ctx context.Context, e *Engine, op string, fn func(conn db.DBTX) (T, error)) (T, error) {
	if e.c.Tx != nil {
		return core.InStatement(ctx, e.c, op, func(conn db.DBTX, _ *core.Notifications) (T, error) { return fn(conn) })
	}
	result, err := fn(e.c.Runner.Plain())
	return result, core.Wrap(op, err)
}

func presence(fresh bool, expiresAtMs, drainedAtMs int64) Presence {
	p := Presence{Fresh: fresh, ExpiresAt: time.UnixMilli(expiresAtMs)}
	if drainedAtMs > 0 {
		p.DrainedSince = time.UnixMilli(drainedAtMs)
	}
	return p
}

// MarkWorkerDead removes a worker from the registry and stores a reason of at most 256 bytes, or none. Leases of the
// worker stay until they expire or [operator.Revoke] ends them. A process that still runs registers again. worker
// limits the call to a pool; "" means any.
//
// Errors: [fferr.ErrNotFound] if the worker is not registered; [fferr.ErrInvalidInput]; [fferr.ErrContention].
// Transaction: one; locks the worker's row. Safe to repeat.
func (e *Engine) MarkWorkerDead(ctx context.Context, name WorkerName, worker id.WorkerID, reason string) error {
	const op = "mark worker dead"
	if err := name.check(e); err != nil {
		return core.Wrap(op, err)
	}
	if err := core.CheckText("worker", string(worker), core.MaxKind); err != nil {
		return core.Wrap(op, err)
	}
	if err := id.CheckDeadReason(reason); err != nil {
		return core.Wrap(op, core.InvalidBecause("reason", err))
	}
	_, err := core.InStatement(ctx, e.c, op, func(conn db.DBTX, _ *core.Notifications) (struct{}, error) {
		n, err := e.c.Q.DropWorker(ctx, conn, db.DropWorkerParams{
			NowMs: e.c.NowMs(), PartitionKey: name.Instance.Partition(), Namespace: string(name.Namespace), WorkerInstanceID: string(name.Instance),
			WorkerID: string(worker), Reason: reason,
		})
		if err == nil && n == 0 {
			err = name.missing()
		}
		return struct{}{}, err
	})
	return err
}
