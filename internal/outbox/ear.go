package outbox

import (
	"context"

	"github.com/flowfabric/flowfabric-go/internal/notify"
)

// listen returns the ear of the hub's tailers.
func (h *Hub) listen() *notify.Ear { return h.listener.Attend(h.log, h.notify, h.rouse) }

func (h *Hub) notify(ctx context.Context, channel, payload string) error {
	_, err := h.runner.AtOnce().Exec(ctx, "select pg_notify($1, $2)", channel, payload)
	return err
}

func (h *Hub) rouse() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, o := range h.tailers {
		o.t.rouse()
	}
}

// deaf reports whether notifications do not arrive, so that the tailers have to poll more often.
func (h *Hub) deaf() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ear.Deaf()
}

// losses returns how often the listening connection was lost.
func (h *Hub) losses() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ear.Losses()
}
