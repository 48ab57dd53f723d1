package contender

import (
	"context"
	"log/slog"

	"github.com/flowfabric/flowfabric-go/engine"
)

// EventSource is a contender whose events package events can read.
type EventSource interface {
	Contender
	// Events returns the engine of the database with the events.
	Events() *engine.Engine
	// WriteEvents writes n completion events in one transaction, with a statement to notify at the commit.
	WriteEvents(ctx context.Context, n int) error
}

// Events implements [EventSource].
func (o *ours) Events() *engine.Engine { return o.eng }

// WriteEvents implements [EventSource].
func (o *ours) WriteEvents(ctx context.Context, n int) error {
	_, err := o.pool.Exec(ctx, `
		INSERT INTO ff_completion_event
			(partition_key, execution_id, outcome, namespace, occurred_at_ms, dispatched_at_ms)
		SELECT i % 256, gen_random_uuid(), 'success', 'default', ffx_now_ms(NULL), ffx_now_ms(NULL)
		FROM generate_series(1, $1::integer) AS i`, n)
	return err
}

// notifyInTransactions makes the outboxes' triggers notify in every transaction.
func (o *ours) notifyInTransactions(ctx context.Context) error {
	o.note = "notifications in the transactions"
	_, err := o.pool.Exec(ctx, `
		drop trigger ff_completion_event_notify_trg on ff_completion_event;
		create trigger ff_completion_event_notify_trg after insert on ff_completion_event
			for each statement execute function ffx_notify_channel('ff_completion');
		drop trigger ff_lease_event_notify_trg on ff_lease_event;
		create trigger ff_lease_event_notify_trg after insert on ff_lease_event
			for each statement execute function ffx_notify_channel('ff_lease_event')`)
	return err
}

// newSilent opens the library on a database without notifications: the engine's sessions find an empty function before
// the server's.
func newSilent(ctx context.Context, databaseURL string, log *slog.Logger) (*ours, error) {
	o, err := newOursWith(ctx, databaseURL, connections, map[string]string{"search_path": "public, pg_catalog"}, log)
	if err != nil {
		return nil, err
	}
	o.note = "no notifications"
	_, err = o.pool.Exec(ctx, `
		create function public.pg_notify(text, text) returns void language sql as 'select';
		drop trigger ff_completion_event_notify_trg on ff_completion_event;
		drop trigger ff_lease_event_notify_trg on ff_lease_event`)
	return o, err
}
