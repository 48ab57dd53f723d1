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
	watchDeadline = 2 * time.Second
	watchInterval = time.Minute // until notifications arrive
)

// A Watch keeps a listener's connection for readers of events or streams. It probes whether notifications arrive at
// all: behind a transaction pooler the server accepts a LISTEN, but its notifications get lost.
type Watch struct {
	listener *Listener
	log      *slog.Logger
	send     func(ctx context.Context, channel, payload string) error
	lost     func()

	stop     context.CancelFunc
	done     sync.WaitGroup
	arriving atomic.Bool
	probes   string // the channel of the probe
	losses   atomic.Int64
}

// Watch keeps the connection until [Watch.Close]. It probes by send, and calls lost after a loss of the connection.
func (l *Listener) Watch(log *slog.Logger, send func(ctx context.Context, channel, payload string) error, lost func()) *Watch {
	ctx, stop := context.WithCancel(context.Background())
	w := &Watch{listener: l, log: log, send: send, lost: lost, stop: stop, probes: "ffx_probe_" + rand.Text()}
	token := rand.Text()
	listening, arrived := make(chan struct{}, 1), make(chan struct{}, 1)
	leave := l.Join(w.probes, func(payload string) {
		signal := listening
		if payload == token {
			signal = arrived
		}
		select {
		case signal <- struct{}{}:
		default:
		}
	})
	w.done.Go(func() { _ = l.Serve(ctx) }) // ctx's error
	w.done.Go(func() {
		defer leave()
		w.probe(ctx, token, listening, arrived)
	})
	return w
}

// probe sends a notification whenever the connection is new, and repeats it at intervals until one has arrived.
func (w *Watch) probe(ctx context.Context, token string, listening, arrived <-chan struct{}) {
	connected := false
	var again <-chan time.Time // nil while no probe is due
	for {
		select {
		case <-ctx.Done():
			return
		case <-listening:
			if connected {
				w.losses.Add(1)
				w.lost() // notifications sent in the meantime were lost
			}
			connected = true
		case <-again:
		}
		again = nil
		w.arriving.Store(false)
		probing, cancel := context.WithTimeout(ctx, watchDeadline)
		err := w.send(probing, w.probes, token)
		if err == nil {
			select {
			case <-arrived:
				w.arriving.Store(true)
			case <-probing.Done():
				err = probing.Err()
			}
		}
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			w.log.Info("no notifications arrive; readers of events and streams look several times a second: behind a pooler set the engine's Listener",
				"error", err)
			again = time.After(watchInterval)
		}
	}
}

// Close ends the use of the connection.
func (w *Watch) Close() {
	w.stop()
	w.done.Wait()
}

// Silent reports whether notifications do not arrive, so readers must poll more often. A nil Watch is silent.
func (w *Watch) Silent() bool { return w == nil || !w.arriving.Load() || !w.listener.Listens(w.probes) }

// Losses returns how often the connection was lost; 0 for a nil Watch.
func (w *Watch) Losses() int64 {
	if w == nil {
		return 0
	}
	return w.losses.Load()
}
