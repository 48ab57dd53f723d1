package worker

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/backoff"
	"github.com/flowfabric/flowfabric-go/internal/warn"
)

const (
	// presenceInterval is the time between two heartbeats of a worker: three fit into the TTL in the registry.
	presenceInterval = engine.DefaultWorkerTTL / 3

	// presencePause is the shortest time between two heartbeats, however many notifications come.
	presencePause = time.Second

	// presenceTimeout limits a heartbeat, leaveTimeout the removal at the end.
	presenceTimeout = 5 * time.Second
	leaveTimeout    = 2 * time.Second
)

// presence is a worker's registration during a run. One goroutine owns it.
type presence struct {
	*run
	name       engine.WorkerName
	registered bool // by the last answer
	tried      bool // there may be a row
	stopping   bool // the run ends
	failing    warn.Repeated

	before []starts // of the run's beginning and its beats, as far back as the window
}

// keepPresence registers the worker, reports its load until stop is closed, and then removes the worker from the
// registry. Registration never affects leases: a worker runs even without registration. ctx is the run's context:
// keepPresence reports the run's end at once, since running handlers may take a while.
func (r *run) keepPresence(ctx context.Context, stop <-chan struct{}) {
	p := &presence{run: r, name: engine.WorkerName{Instance: r.cfg.Instance}, before: []starts{{at: time.Now()}}}
	draining := ctx.Done()
	for {
		began := time.Now()
		p.beat()
		timer := time.NewTimer(backoff.Spread(presenceInterval))
		select {
		case <-stop:
			timer.Stop()
			p.leave()
			return
		case <-draining:
			draining, p.stopping = nil, true
			if r.held.len() == 0 {
				<-stop // leave in a moment
				timer.Stop()
				p.leave()
				return
			}
		case <-r.drainCheck:
			select {
			case <-stop:
			case <-time.After(time.Until(began.Add(presencePause))):
			}
		case <-timer.C:
		}
		timer.Stop()
	}
}

// beat registers the worker, or reports the load of a registered worker.
func (p *presence) beat() {
	calling, cancel := context.WithTimeout(p.base, presenceTimeout)
	defer cancel()
	answers := p.answers.Load()
	if p.registered {
		now, err := p.settling.HeartbeatWorker(calling, engine.Heartbeat{
			WorkerName: p.name, Worker: p.cfg.Worker, Running: p.running(), Stopping: p.stopping || p.life.draining.Load(),
			Started: p.started(time.Now()), FullKinds: p.fullKinds(), Stuck: p.held.stuckNow(),
		})
		if !errors.Is(err, fferr.ErrNotFound) {
			p.note(now, err, answers)
			return
		}
		p.registered = false                  // a sweep has deleted it, or an operator
		p.before = p.before[len(p.before)-1:] // ff why divides the starts by the time since the registration
	}
	p.tried = true
	now, err := p.settling.RegisterWorker(calling, p.registration())
	p.registered = err == nil
	p.note(now, err, answers)
}

func (p *presence) registration() engine.WorkerRegistration {
	return engine.WorkerRegistration{
		WorkerName: p.name, Worker: p.cfg.Worker, Lanes: p.laneNames, Capabilities: id.NewCapabilities(p.cfg.Capabilities...),
		Kinds: slices.Sorted(maps.Keys(p.handlers)), Concurrency: p.cfg.handlers(), Running: p.running(),
	}
}

// running returns how many handlers run. More executions than that are queued.
func (r *run) running() int { return max(0, min(int(r.load.Load()), r.cfg.handlers())) }

// startsWindow is the time whose starts a heartbeat reports.
const startsWindow = 10 * time.Minute

// starts are the executions claimed from each lane up to a beat.
type starts struct {
	at time.Time
	of map[id.LaneID]int64
}

// started returns the executions claimed from each lane within the window before now, and remembers this beat.
func (p *presence) started(now time.Time) map[id.LaneID]int {
	total := make(map[id.LaneID]int64)
	for _, l := range p.lanes {
		total[l.name] += l.started.Load()
	}
	p.before = append(p.before, starts{now, total})
	for now.Sub(p.before[0].at) > startsWindow {
		p.before = p.before[1:]
	}
	since := make(map[id.LaneID]int)
	for lane, n := range total {
		if n -= p.before[0].of[lane]; n > 0 {
			since[lane] = int(n)
		}
	}
	return since
}

// fullKinds returns the kinds whose handlers are all taken.
func (r *run) fullKinds() (kinds []string) {
	for kind, s := range r.slots {
		if (limits{s}).free(1) == 0 {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// note acts on the answer to a heartbeat. If claims were answered since, they know better whether the worker is drained:
// answers is their number before the heartbeat.
func (p *presence) note(now engine.Presence, err error, answers int64) {
	switch {
	case err == nil:
		if p.answers.Load() == answers {
			p.noteDrained(!now.DrainedSince.IsZero())
		}
	case errors.Is(err, fferr.ErrBusy):
	case errors.Is(err, fferr.ErrInstanceTaken):
		p.failing.Log(p.cfg.Log, "cannot register this worker, because a worker of another pool has its instance id: "+
			"give each process an Instance of its own", "instance", p.cfg.Instance, "worker", p.cfg.Worker)
	default:
		p.failing.Log(p.cfg.Log, "cannot report that this worker runs; retrying: check the database and the rights of its role", "error", err)
	}
}

// noteDrained logs once that an operator has drained or resumed this worker. Claims of a drained worker take nothing in
// any case.
func (r *run) noteDrained(drained bool) {
	switch {
	case r.drainedBefore.Swap(drained) == drained:
	case drained:
		r.cfg.Log.Info("worker is drained: it claims nothing more", "instance", r.cfg.Instance)
	default:
		r.cfg.Log.Info("worker claims again", "instance", r.cfg.Instance)
	}
}

// leave removes the worker from the registry. After a failure, the registration expires soon.
func (p *presence) leave() {
	if !p.tried {
		return
	}
	calling, cancel := context.WithTimeout(p.base, leaveTimeout)
	defer cancel()
	if err := p.settling.MarkWorkerDead(calling, p.name, p.cfg.Worker, "stopped"); err != nil {
		p.cfg.Log.Debug("cannot remove this worker from the list of workers; it disappears by itself", "error", err)
	}
}

// nudge makes the worker look soon whether it is drained.
func (r *run) nudge() {
	select {
	case r.drainCheck <- struct{}{}:
	default:
	}
}
