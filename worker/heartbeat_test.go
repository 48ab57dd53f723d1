package worker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/state"
)

// untilCancelled registers a handler of the kind "long" that sends the cause of its context's end.
func untilCancelled(w *Worker, eng *fakeEngine) {
	on(w, "long", func(ctx context.Context, _ Job[struct{}]) (struct{}, error) {
		<-ctx.Done()
		eng.causes <- context.Cause(ctx)
		return struct{}{}, ctx.Err()
	})
}

func TestHeartbeatCadence(t *testing.T) {
	inBubble(t, Config{LeaseTTL: 30 * time.Second, DrainTimeout: time.Second}, untilCancelled, func(t *testing.T, b *bubble) {
		b.eng.putMany(3, "long")
		b.wakeLane()
		b.pass(time.Minute + time.Second)
		if len(b.seen().renewed) != 6 {
			t.Fatalf("%d renewals in a minute, want 6", len(b.seen().renewed))
		}
		for i, c := range b.seen().renewed {
			if len(c.items) != 3 || c.at != time.Duration(i+1)*10*time.Second {
				t.Errorf("renewal %d at %v of %d leases, want all 3 every 10s", i, c.at, len(c.items))
			}
		}
	})
}

func TestHeartbeatIsSilentWhenIdle(t *testing.T) {
	inBubble(t, Config{}, quickAndSlow, func(t *testing.T, b *bubble) {
		b.eng.putMany(3, "slow")
		b.wakeLane()
		b.pass(time.Minute)
		if len(b.seen().renewed) != 0 {
			t.Errorf("%d renewals, want none: nothing was held for so long", len(b.seen().renewed))
		}
	})
}

func TestHeartbeatLeavesFreshLeases(t *testing.T) {
	inBubble(t, Config{LeaseTTL: 30 * time.Second, DrainTimeout: time.Second}, untilCancelled, func(t *testing.T, b *bubble) {
		b.eng.putMany(1, "long")
		b.wakeLane()
		b.pass(9 * time.Second)
		b.eng.putMany(1, "long")
		b.wakeLane()
		b.pass(12 * time.Second)
		if len(b.seen().renewed) != 2 || len(b.seen().renewed[0].items) != 1 || len(b.seen().renewed[1].items) != 2 {
			t.Errorf("renewals %v, want the first alone, then both", b.seen().renewed)
		}
	})
}

func TestHeartbeatCancelsLostLeasesWithCause(t *testing.T) {
	inBubble(t, Config{}, func(w *Worker, eng *fakeEngine) {
		on(w, "long", func(ctx context.Context, _ Job[struct{}]) (struct{}, error) {
			<-ctx.Done()
			eng.causes <- context.Cause(ctx)
			<-time.After(2 * time.Minute) // takes its time to end
			return struct{}{}, ctx.Err()
		})
		eng.renewErr = func(engine.Lease) (item, call error) { return &fferr.LeaseError{Err: fferr.ErrStaleLease}, nil }
	}, func(t *testing.T, b *bubble) {
		b.eng.putMany(1, "long")
		b.wakeLane()
		cause := <-b.eng.causes
		if !errors.Is(cause, ErrLeaseLost) || !errors.Is(cause, fferr.ErrStaleLease) {
			t.Errorf("cause %v, want a lost lease that is stale", cause)
		}
		b.pass(time.Minute)
		if n := items(b.seen().renewed); n != 1 {
			t.Errorf("renewed %d times, want no time after it was lost", n)
		}
		b.stop()
		if len(b.seen().done)+len(b.seen().failed)+len(b.seen().back) != 0 {
			t.Errorf("settled %v %v %v, want nothing", b.seen().done, b.seen().failed, b.seen().back)
		}
	})
}

func TestHeartbeatSurvivesAnUnreachableDatabase(t *testing.T) {
	inBubble(t, Config{LeaseTTL: 30 * time.Second}, func(w *Worker, eng *fakeEngine) {
		untilCancelled(w, eng)
		eng.renewErr = func(engine.Lease) (item, call error) {
			if at := sinceEpoch(); at < 29*time.Second || at > 65*time.Second {
				return nil, fferr.ErrUnavailable
			}
			return nil, nil
		}
	}, func(t *testing.T, b *bubble) {
		b.eng.putMany(1, "long")
		b.wakeLane()
		b.pass(29 * time.Second)
		if pause := b.seen().renewed[2].at - b.seen().renewed[1].at; pause != 2500*time.Millisecond {
			t.Errorf("a failed renewal was repeated after %v, want 2.5s", pause)
		}
		cause := <-b.eng.causes
		if !errors.Is(cause, ErrLeaseLost) || !errors.Is(cause, fferr.ErrLeaseExpired) {
			t.Errorf("cause %v, want an expired lease", cause)
		}
		// The last successful renewal was between 55 and 65 seconds, and that lease lasted 30.
		if at := sinceEpoch(); at < 85*time.Second || at > 98*time.Second {
			t.Errorf("cancelled after %v", at)
		}
	})
}

// A lease with a locked row is retried alone and often until it is renewed. The other leases are renewed in the meantime.
func TestHeartbeatRetriesALockedLeaseAlone(t *testing.T) {
	inBubble(t, Config{LeaseTTL: 30 * time.Second, DrainTimeout: time.Second}, untilCancelled, func(t *testing.T, b *bubble) {
		locked := work("long")
		b.eng.lockLease(locked.ID, true)
		b.eng.put(engine.DefaultLane, locked)
		b.eng.putMany(4, "long")
		b.wakeLane()
		b.pass(29*time.Second - time.Millisecond)
		b.eng.lockLease(locked.ID, false)
		b.pass(31 * time.Second)
		for i, c := range b.seen().renewed {
			beat := c.at%(10*time.Second) == 0
			if beat != (len(c.items) >= 4) || !beat && len(c.items) != 1 {
				t.Errorf("renewal %d at %v of %d leases, want all at the beats and one between them", i, c.at, len(c.items))
			}
		}
		if n := len(b.seen().renewed); n < 20 || n > 30 {
			t.Errorf("%d renewals, want one a second while a lease is locked", n)
		}
		select {
		case cause := <-b.eng.causes:
			t.Errorf("a handler was cancelled: %v", cause)
		default:
		}
	})
}

func TestHeartbeatLosesOnlyALeaseThatStaysLocked(t *testing.T) {
	inBubble(t, Config{LeaseTTL: 30 * time.Second, DrainTimeout: time.Second}, untilCancelled, func(t *testing.T, b *bubble) {
		locked := work("long")
		b.eng.lockLease(locked.ID, true)
		b.eng.put(engine.DefaultLane, locked)
		b.eng.putMany(4, "long")
		b.wakeLane()
		if cause := <-b.eng.causes; !errors.Is(cause, fferr.ErrLeaseExpired) {
			t.Errorf("cause %v, want an expired lease", cause)
		}
		if at := sinceEpoch(); at < 30*time.Second || at > 31*time.Second+time.Millisecond {
			t.Errorf("cancelled after %v, want right after its lease is over", at)
		}
		b.pass(time.Minute)
		if n := len(b.eng.causes); n != 0 {
			t.Errorf("%d more handlers cancelled, want none", n)
		}
	})
}

// A renewal error that does not mean a lost lease leaves the handler running and is retried.
func TestHeartbeatRetriesATemporaryErrorOfOneLease(t *testing.T) {
	for _, passing := range []error{fferr.ErrTransport, fferr.ErrContention, errors.New("unforeseen")} {
		t.Run(passing.Error(), func(t *testing.T) {
			var unlucky engine.Claimed
			inBubble(t, Config{LeaseTTL: 30 * time.Second, DrainTimeout: time.Second}, func(w *Worker, eng *fakeEngine) {
				untilCancelled(w, eng)
				unlucky = work("long")
				eng.renewErr = func(l engine.Lease) (item, call error) {
					if l.Execution == unlucky.ID && sinceEpoch() < 29*time.Second {
						return passing, nil
					}
					return nil, nil
				}
			}, func(t *testing.T, b *bubble) {
				b.eng.put(engine.DefaultLane, unlucky)
				b.eng.putMany(2, "long")
				b.wakeLane()
				b.pass(time.Minute)
				if n := len(b.eng.causes); n != 0 || b.held.len() != 3 {
					t.Errorf("%d handlers cancelled, %d executions held; want 0 and 3", n, b.held.len())
				}
				alone := 0
				for _, c := range b.seen().renewed {
					if len(c.items) == 1 && c.items[0].Lease.Execution == unlucky.ID {
						alone++
					}
				}
				if alone == 0 {
					t.Error("not tried again between the beats")
				}
			})
		})
	}
}

// A notification of lost leases causes a renewal at once; several notifications in a short time cause one.
func TestHeartbeatRenewsOnLostLeaseNotifications(t *testing.T) {
	inBubble(t, Config{LeaseTTL: time.Hour, DrainTimeout: time.Second}, func(w *Worker, eng *fakeEngine) {
		untilCancelled(w, eng)
		eng.renewErr = func(l engine.Lease) (item, call error) {
			if eng.cancelled[l.Execution] {
				return &fferr.LeaseError{Err: fferr.ErrStaleLease, Outcome: state.OutcomeCancelled}, nil
			}
			return nil, nil
		}
	}, func(t *testing.T, b *bubble) {
		first, second := work("long"), work("long")
		b.eng.put(engine.DefaultLane, first, second)
		b.eng.putMany(3, "long")
		b.wakeLane()
		b.pass(time.Second)
		b.eng.cancelled = map[id.ExecutionID]bool{first.ID: true}
		b.eng.lose()
		if cause := <-b.eng.causes; !errors.Is(cause, ErrCancelled) || !errors.Is(cause, ErrLeaseLost) || !errors.Is(cause, fferr.ErrStaleLease) {
			t.Errorf("cause %v", cause)
		}
		if at := sinceEpoch(); at > time.Second+time.Millisecond {
			t.Errorf("cancelled at %v", at)
		}
		b.eng.cancelled[second.ID] = true
		for range 100 {
			b.eng.lose()
			b.pass(time.Millisecond)
		}
		<-b.eng.causes
		b.pass(time.Second)
		if n := len(b.seen().renewed); n > 5 {
			t.Errorf("%d renewals for a hundred losses", n)
		}
		b.pass(time.Minute)
		if n := len(b.eng.causes); n != 0 || b.held.len() != 3 {
			t.Errorf("%d more handlers were cancelled, and %d executions are held", n, b.held.len())
		}
		b.stop()
		b.wantLogged(t, map[string]int{
			`level=INFO msg="execution cancelled; cancelling its handler"`:    2,
			`level=INFO msg="attempt abandoned; its execution was cancelled"`: 2,
			"level=WARN": 1, // the drain timeout of the three others
		})
		if len(b.seen().done)+len(b.seen().failed) != 0 {
			t.Errorf("settled %v %v", b.seen().done, b.seen().failed)
		}
	})
}

// A notification that waits until a beat is due checks all leases too: the lost one may be too young for the beat.
func TestHeartbeatChecksYoungLeasesAtABeat(t *testing.T) {
	inBubble(t, Config{LeaseTTL: 30 * time.Second, DrainTimeout: time.Second}, func(w *Worker, eng *fakeEngine) {
		untilCancelled(w, eng)
		eng.renewErr = func(l engine.Lease) (item, call error) {
			if eng.cancelled[l.Execution] {
				return &fferr.LeaseError{Err: fferr.ErrStaleLease, Outcome: state.OutcomeCancelled}, nil
			}
			return nil, nil
		}
	}, func(t *testing.T, b *bubble) {
		young := work("long")
		b.pass(9 * time.Second)
		b.eng.put(engine.DefaultLane, young)
		b.wakeLane()
		b.pass(time.Second - lossPause/2)
		b.eng.lose()
		b.pass(lossPause / 4)
		b.eng.cancelled = map[id.ExecutionID]bool{young.ID: true}
		b.eng.lose()
		<-b.eng.causes
		if at := sinceEpoch(); at > 11*time.Second {
			t.Errorf("cancelled at %v", at)
		}
	})
}
