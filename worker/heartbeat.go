package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
)

// heartbeat renews all held leases until stop is closed, in one statement every third of their length.
func (r *run) heartbeat(stop <-chan struct{}) {
	interval := r.cfg.LeaseTTL / 3
	timer := time.NewTimer(interval)
	defer timer.Stop()
	for {
		select {
		case <-stop:
			return
		case <-timer.C:
		}
		next := interval
		if err := r.renew(interval); err != nil {
			next = interval / 4
			r.cfg.Log.Warn("cannot renew leases; it is tried again", "error", err, "retry_in", next)
		}
		timer.Reset(next)
	}
}

// renew renews the leases that would be more than half over by the next beat.
func (r *run) renew(interval time.Duration) error {
	tasks := r.held.renewedBefore(time.Now().Add(-interval / 2))
	if len(tasks) == 0 {
		return nil
	}
	renewals := make([]engine.Renewal, len(tasks))
	for i, t := range tasks {
		renewals[i].Lease = t.work.Lease
	}
	calling, cancel := context.WithTimeout(r.base, interval)
	defer cancel()
	results, err := r.eng.RenewLeases(calling, renewals)
	now := time.Now()
	if err != nil {
		r.loseExpired(now)
		return err
	}
	renewed := tasks[:0:0]
	for i, t := range tasks {
		switch itemErr := results[i].Err; {
		case itemErr == nil:
			renewed = append(renewed, t)
		case isLost(itemErr):
			r.lost(t, itemErr)
		default:
			err = errors.Join(err, itemErr)
		}
	}
	r.held.renew(renewed, now)
	r.loseExpired(now)
	return err
}

// loseExpired cancels handlers whose leases were last known to be alive longer ago than a lease lasts. A lease is
// counted from when the answer that told of it arrived, so by the database's clock it is over, and no call of its
// holder will be accepted again.
func (r *run) loseExpired(now time.Time) {
	for _, t := range r.held.renewedBefore(now.Add(-r.cfg.LeaseTTL)) {
		r.lost(t, engine.ErrLeaseExpired)
	}
}

func (r *run) lost(t *task, reason error) {
	if t.lose(reason) {
		r.cfg.Log.LogAttrs(r.base, slog.LevelWarn, "lease lost; its handler is cancelled", append(t.attrs(), slog.Any("error", reason))...)
	}
}
