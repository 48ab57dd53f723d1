package notify

import (
	"context"
	"crypto/rand"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

const (
	earDeadline = 2 * time.Second
	earInterval = time.Minute // until notifications arrive
)

// An Ear keeps a listener's connection for readers of events or streams. It probes whether notifications arrive at all:
// behind a transaction pooler the server accepts a LISTEN, but its notifications get lost.
type Ear struct {
	listener *Listener
	log      *slog.Logger
	send     func(ctx context.Context, channel, payload string) error
	lost     func()

	stop   context.CancelFunc
	done   sync.WaitGroup
	hears  atomic.Bool
	probes string // the channel of the probe
	losses atomic.Int64
}

// Attend returns an ear, until [Ear.Close]. It probes by send, and calls lost after the connection was lost.
func (l *Listener) Attend(log *slog.Logger, send func(ctx context.Context, channel, payload string) error, lost func()) *Ear {
	ctx, stop := context.WithCancel(context.Background())
	e := &Ear{listener: l, log: log, send: send, lost: lost, stop: stop, probes: "ffx_probe_" + rand.Text()}
	token := rand.Text()
	listening, heard := make(chan struct{}, 1), make(chan struct{}, 1)
	leave := l.Join(e.probes, func(payload string) {
		signal := listening
		if payload == token {
			signal = heard
		}
		select {
		case signal <- struct{}{}:
		default:
		}
	})
	e.done.Go(func() { _ = l.Serve(ctx) }) // ctx's error
	e.done.Go(func() {
		defer leave()
		e.probe(ctx, token, listening, heard)
	})
	return e
}

// probe sends a notification whenever the connection is new, and repeats it at intervals until one has arrived.
func (e *Ear) probe(ctx context.Context, token string, listening, heard <-chan struct{}) {
	connected := false
	var again <-chan time.Time // nil while no probe is due
	for {
		select {
		case <-ctx.Done():
			return
		case <-listening:
			if connected {
				e.losses.Add(1)
				e.lost() // notifications sent in the meantime were lost
			}
			connected = true
		case <-again:
		}
		again = nil
		e.hears.Store(false)
		probing, cancel := context.WithTimeout(ctx, earDeadline)
		err := e.send(probing, e.probes, token)
		if err == nil {
			select {
			case <-heard:
				e.hears.Store(true)
			case <-probing.Done():
				err = probing.Err()
			}
		}
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			e.log.Info("no notifications arrive; readers of events and streams look several times a second: behind a pooler set the engine's Listener",
				"error", err)
			again = time.After(earInterval)
		}
	}
}

// Close ends the use of the connection.
func (e *Ear) Close() {
	e.stop()
	e.done.Wait()
}

// Deaf reports whether notifications do not arrive, so that readers have to poll more often. A nil Ear is deaf.
func (e *Ear) Deaf() bool { return e == nil || !e.hears.Load() || !e.listener.Hears(e.probes) }

// Losses returns how often the connection was lost; 0 for a nil Ear.
func (e *Ear) Losses() int64 {
	if e == nil {
		return 0
	}
	return e.losses.Load()
}
