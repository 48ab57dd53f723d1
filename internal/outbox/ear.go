package outbox

import (
	"context"
	"crypto/rand"
	"sync"
	"sync/atomic"
	"time"
)

const (
	probeDeadline = 2 * time.Second
	probeInterval = time.Minute // until notifications arrive
)

// ear receives notifications for the tailers of a hub, and probes whether notifications arrive at all: behind a
// transaction pooler the server accepts a LISTEN, but its notifications get lost.
type ear struct {
	hub    *Hub
	stop   context.CancelFunc
	done   sync.WaitGroup
	hears  atomic.Bool
	probes string // the channel of the probe
	losses atomic.Int64
}

func (h *Hub) listen() *ear {
	ctx, stop := context.WithCancel(context.Background())
	channel, token := "ffx_probe_"+rand.Text(), rand.Text()
	e := &ear{hub: h, stop: stop, probes: channel}
	listening, heard := make(chan struct{}, 1), make(chan struct{}, 1)
	leave := h.listener.Join(channel, func(payload string) {
		signal := listening
		if payload == token {
			signal = heard
		}
		select {
		case signal <- struct{}{}:
		default:
		}
	})
	e.done.Go(func() { _ = h.listener.Serve(ctx) }) // ctx's error
	e.done.Go(func() {
		defer leave()
		e.probe(ctx, channel, token, listening, heard)
	})
	return e
}

// probe sends a notification whenever the connection is new, and repeats it at intervals until one has arrived.
func (e *ear) probe(ctx context.Context, channel, token string, listening, heard <-chan struct{}) {
	connected := false
	var again <-chan time.Time // nil while no probe is due
	for {
		select {
		case <-ctx.Done():
			return
		case <-listening:
			if connected {
				e.losses.Add(1)
				e.rouse() // notifications sent in the meantime were lost
			}
			connected = true
		case <-again:
		}
		again = nil
		e.hears.Store(false)
		probing, cancel := context.WithTimeout(ctx, probeDeadline)
		err := e.hub.notify(probing, channel, token)
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
			e.hub.log.Info("no notifications arrive; events are looked for four times a second: behind a pooler set the engine's Listener",
				"error", err)
			again = time.After(probeInterval)
		}
	}
}

func (h *Hub) notify(ctx context.Context, channel, payload string) error {
	_, err := h.runner.AtOnce().Exec(ctx, "select pg_notify($1, $2)", channel, payload)
	return err
}

func (e *ear) rouse() {
	e.hub.mu.Lock()
	defer e.hub.mu.Unlock()
	for _, o := range e.hub.tailers {
		o.t.rouse()
	}
}

func (e *ear) close() {
	e.stop()
	e.done.Wait()
}

// deaf reports whether notifications do not arrive, so that the tailers have to poll more often.
func (h *Hub) deaf() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ear == nil || !h.ear.hears.Load() || !h.listener.Hears(h.ear.probes)
}

// losses returns how often the listening connection was lost.
func (h *Hub) losses() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ear == nil {
		return 0
	}
	return h.ear.losses.Load()
}
