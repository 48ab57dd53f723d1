package worker

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/warn"
)

// heartbeat renews all held leases until stop is closed. Every third of a lease, one statement renews the leases due to
// be half over by the next beat, or all leases while the worker is throttled. heartbeat repeats failed renewals in
// between until they succeed or the lease is lost. After a notification of lost leases, heartbeat renews all at once,
// which shows the lost ones.
func (r *run) heartbeat(stop <-chan struct{}) {
	interval := r.cfg.LeaseTTL / 3
	timer := time.NewTimer(interval)
	defer timer.Stop()
	next := time.Now().Add(interval)
	var due time.Time    // renew leases last known to be alive before due
	var looked time.Time // time of the last check for lost leases
	var failing warn.Repeated
	timeout := interval
	for {
		notified := false
		select {
		case <-stop:
			return
		case <-timer.C:
		case <-r.losses:
			notified = true
			select {
			case <-stop:
				return
			case <-time.After(time.Until(looked.Add(min(lossPause, interval/2)))):
			}
		}
		now := time.Now()
		if !now.Before(next) {
			due, next = now.Add(-interval/2), now.Add(interval)
			if r.late.throttled(now) {
				due = now
			}
		}
		if notified { // also at the time of a beat: the lost lease may be a young one
			due, looked = now, now
		}
		pause := time.Until(next)
		err := r.renew(due, timeout)
		timeout = patience(interval, time.Since(now))
		switch {
		case err == nil:
		case errors.Is(err, fferr.ErrBusy):
			pause = min(pause, interval/busyRetries)
			r.cfg.Log.Debug("cannot renew leases; retrying", "error", err, "retry_in", pause)
		default:
			pause = min(pause, interval/failureRetries)
			failing.Log(r.cfg.Log, "cannot renew leases; retrying: check the database before they expire", "error", err, "retry_in", pause)
		}
		timer.Reset(pause)
	}
}

// patience returns the timeout of the next renewal, given the time of the last. The timeout is a third of a lease at
// first, leaving time for another try after a dead connection. An overloaded database answers nothing in such a short
// time, and each cancelled renewal costs a connection, so the timeout grows to two thirds.
func patience(interval, took time.Duration) time.Duration {
	return min(max(interval, 2*took), 2*interval)
}

// Renewal retries between two beats. Trying a locked row is cheap, never waits, and the lock may be short.
const (
	busyRetries    = 10
	failureRetries = 4
)

// lossPause is the shortest time between two checks for lost leases, however many are cancelled.
const lossPause = 50 * time.Millisecond

// listenForLosses makes the heartbeat check for lost leases after each notification, until ctx ends. An operator who drains the
// worker notifies it in the same way.
func (r *run) listenForLosses(ctx context.Context) {
	err := r.eng.ListenLost(ctx, r.cfg.Instance, func() {
		select {
		case r.losses <- struct{}{}:
		default:
		}
		r.nudge()
	})
	if ctx.Err() == nil {
		r.cfg.Log.Warn("no notifications of lost leases; renewals detect them: check the engine's Listener", "error", err)
	}
}

// renew renews the leases last known to be alive before due. After an error some leases need a retry. The error is
// [fferr.ErrBusy] if other transactions have locked all of the leases.
func (r *run) renew(due time.Time, timeout time.Duration) error {
	tasks := r.held.askedBefore(due)
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
	defer r.wakeThrottled(now)
	if err != nil {
		r.noteLate(tasks, now, false)
		r.loseExpired(now)
		return err
	}
	var busy error
	renewed, lost, blocked := tasks[:0:0], tasks[:0:0], tasks[:0:0]
	for i, t := range tasks {
		switch itemErr := results[i].Err; {
		case itemErr == nil:
			renewed = append(renewed, t)
		case isLost(itemErr):
			lost = append(lost, t)
			r.lost(t, itemErr)
		case errors.Is(itemErr, fferr.ErrBusy):
			busy = itemErr
			blocked = append(blocked, t)
		default:
			err = itemErr
		}
	}
	r.held.block(blocked)
	r.noteLate(renewed, now, false)
	r.noteLate(lost, now, true)
	r.held.renew(renewed, asked, now)
	r.loseExpired(now)
	return cmp.Or(err, busy)
}

// loseExpired cancels handlers whose leases were last known to be alive more than a lease ago. Time counts from the
// arrival of the answer, so such leases are over by the database's clock too, and the database will refuse their
// holders.
func (r *run) loseExpired(now time.Time) {
	expired := r.held.renewedBefore(now.Add(-r.cfg.LeaseTTL))
	r.noteLate(expired, now, true)
	for _, t := range expired {
		r.lost(t, fferr.ErrLeaseExpired)
	}
}

// noteLate makes the worker claim less if a lease was nearly over when claimed, renewed or lost.
func (r *run) noteLate(tasks []*task, now time.Time, lost bool) {
	if len(tasks) > 0 && r.held.anyLate(tasks, now, r.cfg.LeaseTTL) && r.late.late(now, r.held.len(), lost) {
		r.late.warned.Log(r.cfg.Log, "leases are renewed late, so the worker claims less for a while: "+
			"lower its concurrency, lengthen its leases, or relieve the machine or the database",
			"may_hold", r.late.holds(now), "concurrency", r.cfg.handlers(), "lease_ttl", r.cfg.LeaseTTL)
	}
}

// wakeThrottled notifies the fetcher of a throttled worker. No other event does when capacity returns.
func (r *run) wakeThrottled(now time.Time) {
	if r.late.throttled(now) {
		r.wakeFetcher()
	}
}

func (r *run) lost(t *task, reason error) {
	running := t.lose(reason)
	if s := r.appender.stream(t.work.Lease.Fence); s != nil {
		s.lose(t.lostBy())
	}
	if !running {
		return
	}
	message, level := "lease lost; cancelling its handler: if it happens often, lengthen LeaseTTL or relieve the worker", slog.LevelWarn
	if errors.Is(t.lostBy(), ErrCancelled) {
		message, level = "execution cancelled; cancelling its handler", slog.LevelInfo
	}
	r.cfg.Log.LogAttrs(r.base, level, message, append(t.attrs(), slog.Any("error", reason))...)
}
