package outbox

import (
	"context"

	"github.com/flowfabric/flowfabric-go/internal/notify"
)

// listen subscribes the hub's tailers to notifications.
func (h *Hub) listen() *notify.Watch { return h.listener.Watch(h.log, h.notify, h.recheck) }

func (h *Hub) notify(ctx context.Context, channel, payload string) error {
	_, err := h.runner.AtOnce().Exec(ctx, "select pg_notify($1, $2)", channel, payload)
	return err
}

func (h *Hub) recheck() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, o := range h.tailers {
		o.t.recheck()
	}
}

// deaf reports whether notifications do not arrive, so the tailers must poll more often.
func (h *Hub) silent() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.watch.Silent()
}

// losses returns how often the listening connection was lost.
func (h *Hub) losses() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.watch.Losses()
}
