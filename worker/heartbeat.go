package worker

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/internal/warn"
)

// heartbeat renews all held leases until stop is closed, in one statement every third of their length: those that would
// be more than half over by the next beat. What could not be renewed is tried again before that, ever again until it is
// renewed or lost. When it hears that some were lost it renews all of them at once, which tells which ones.
func (r *run) heartbeat(stop <-chan struct{}) {
	interval := r.cfg.LeaseTTL / 3
	timer := time.NewTimer(interval)
	defer timer.Stop()
	next := time.Now().Add(interval)
	var due time.Time    // leases last known to be alive before it are to be renewed
	var looked time.Time // when it last looked for those that were lost
	var failing warn.Repeated
	for {
		heard := false
		select {
		case <-stop:
			return
		case <-timer.C:
		case <-r.losses:
			heard = true
			select {
			case <-stop:
				return
			case <-time.After(time.Until(looked.Add(min(lossPause, interval/2)))):
			}
		}
		now := time.Now()
		if heard {
			due, looked = now, now
		}
		if !now.Before(next) {
			due, next = now.Add(-interval/2), now.Add(interval)
		}
		pause := time.Until(next)
		switch err := r.renew(due, interval); {
		case err == nil:
		case errors.Is(err, engine.ErrBusy):
			pause = min(pause, interval/busyRetries)
			r.cfg.Log.Debug("cannot renew leases; it is tried again", "error", err, "retry_in", pause)
		default:
			pause = min(pause, interval/failureRetries)
			failing.Log(r.cfg.Log, "cannot renew leases; it is tried again: check the database, before they run out", "error", err, "retry_in", pause)
		}
		timer.Reset(pause)
	}
}

// How often a renewal is tried again between two beats. What is locked by others waits for nobody, costs little, and
// may be free for a moment only.
const (
	busyRetries    = 10
	failureRetries = 4
)

// lossPause is how much time is between two looks for leases that were lost, however many are cancelled.
const lossPause = 200 * time.Millisecond

// hearLosses has the heartbeat look for lost leases whenever some are said to be lost, until ctx ends.
func (r *run) hearLosses(ctx context.Context) {
	err := r.eng.ListenLost(ctx, r.cfg.Instance, func() {
		select {
		case r.losses <- struct{}{}:
		default:
		}
	})
	if ctx.Err() == nil {
		r.cfg.Log.Warn("not told of lost leases; renewals find them: check the engine's Listener", "error", err)
	}
}

// renew renews the leases that were last known to be alive before due. An error leaves some of them to be tried again,
// [engine.ErrBusy] if nothing else is the matter.
func (r *run) renew(due time.Time, timeout time.Duration) error {
	tasks := r.held.renewedBefore(due)
	if len(tasks) == 0 {
		return nil
	}
	renewals := make([]engine.Renewal, len(tasks))
	for i, t := range tasks {
		renewals[i].Lease = t.work.Lease
	}
	calling, cancel := context.WithTimeout(r.base, timeout)
	defer cancel()
	asked := time.Now()
	r.renews.Store(true)
	results, err := r.renewing.RenewLeases(calling, renewals)
	now := time.Now()
	r.renews.Store(false)
	defer r.rouseThrottled(now)
	if err != nil {
		r.noteLate(tasks, now)
		r.loseExpired(now)
		return err
	}
	var busy error
	renewed, blocked := tasks[:0:0], tasks[:0:0]
	for i, t := range tasks {
		switch itemErr := results[i].Err; {
		case itemErr == nil:
			renewed = append(renewed, t)
		case isLost(itemErr):
			r.lost(t, itemErr)
		case errors.Is(itemErr, engine.ErrBusy):
			busy = itemErr
			blocked = append(blocked, t)
		default:
			err = itemErr
		}
	}
	r.held.block(blocked)
	r.noteLate(renewed, now)
	r.held.renew(renewed, asked, now)
	r.loseExpired(now)
	return cmp.Or(err, busy)
}

// loseExpired cancels handlers whose leases were last known to be alive longer ago than a lease lasts. A lease is
// counted from when the answer that told of it arrived, so by the database's clock it is over, and no call of its
// holder will be accepted again.
func (r *run) loseExpired(now time.Time) {
	expired := r.held.renewedBefore(now.Add(-r.cfg.LeaseTTL))
	r.noteLate(expired, now)
	for _, t := range expired {
		r.lost(t, engine.ErrLeaseExpired)
	}
}

// noteLate has the worker claim less if one of the leases was nearly over when it was renewed or lost.
func (r *run) noteLate(tasks []*task, now time.Time) {
	if len(tasks) > 0 && r.held.anyLate(tasks, now, r.cfg.LeaseTTL) && r.late.late(now) {
		r.late.warned.Log(r.cfg.Log, "leases are renewed late, so the worker claims less for a while: "+
			"lower its concurrency, lengthen its leases, or relieve the machine or the database",
			"may_hold", r.late.of(r.cfg.Concurrency, now), "concurrency", r.cfg.Concurrency, "lease_ttl", r.cfg.LeaseTTL)
	}
}

// rouseThrottled has a fetcher look for room that takes nothing else for a sign of it.
func (r *run) rouseThrottled(now time.Time) {
	if r.late.throttled(now) {
		r.rouse()
	}
}

func (r *run) lost(t *task, reason error) {
	if !t.lose(reason) {
		return
	}
	message, level := "lease lost; its handler is cancelled: if it happens often, lengthen LeaseTTL or relieve the worker", slog.LevelWarn
	if errors.Is(t.lostBy(), ErrCancelled) {
		message, level = "execution cancelled; so is its handler", slog.LevelInfo
	}
	r.cfg.Log.LogAttrs(r.base, level, message, append(t.attrs(), slog.Any("error", reason))...)
}
