package contender

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/state"
)

// Field holds all contenders, each with its own database on one server. Worker and Engine share one.
type Field struct {
	Worker    *Worker
	Engine    *Engine
	Forgetful *Worker // without lease history and outbox
	Lean      *Worker // without lease history, as operator.KeepLeaseEvents has it
	Notifying *Worker // notifies in the transactions that write events
	Silent    *Worker // sends no notifications
	River     *River
	Raw       *Raw
	DBOS      *DBOS
}

// Open creates the databases with create, and the contenders: all, or only the ones in only.
func Open(ctx context.Context, create func(ctx context.Context, name string) (databaseURL string, err error), log *slog.Logger, only ...string) (*Field, error) {
	f := &Field{}
	for _, place := range []struct {
		database string
		open     func(databaseURL string) error
	}{
		{"ours", func(databaseURL string) error {
			o, err := newOurs(ctx, databaseURL, log)
			f.Worker, f.Engine = &Worker{ours: o}, &Engine{o}
			return err
		}},
		{"forgetful", func(databaseURL string) error {
			o, err := newOurs(ctx, databaseURL, log)
			if err != nil {
				return err
			}
			f.Forgetful = &Worker{ours: o}
			return o.forget(ctx)
		}},
		{"lean", func(databaseURL string) error {
			o, err := newOurs(ctx, databaseURL, log)
			if err != nil {
				return err
			}
			o.leases, o.note = false, "no lease event kept"
			f.Lean = &Worker{ours: o}
			return operator.KeepLeaseEvents(ctx, o.eng, state.KeptNone)
		}},
		{"notifying", func(databaseURL string) error {
			o, err := newOurs(ctx, databaseURL, log)
			if err != nil {
				return err
			}
			f.Notifying = &Worker{ours: o}
			return o.notifyInTransactions(ctx)
		}},
		{"silent", func(databaseURL string) error {
			o, err := newSilent(ctx, databaseURL, log)
			f.Silent = &Worker{ours: o}
			return err
		}},
		{"river", func(databaseURL string) (err error) {
			f.River, err = newRiver(ctx, databaseURL, connections, log)
			return err
		}},
		{"raw", func(databaseURL string) error {
			s, err := newStore(ctx, databaseURL, connections, rawSettings)
			f.Raw = &Raw{s}
			return err
		}},
		{"dbos", func(databaseURL string) error {
			pool, err := newPool(ctx, databaseURL, connections, nil)
			f.DBOS = &DBOS{pool: pool}
			return err
		}},
	} {
		if len(only) > 0 && !slices.Contains(only, place.database) {
			continue
		}
		databaseURL, err := create(ctx, place.database)
		if err == nil {
			err = place.open(databaseURL)
		}
		if err != nil {
			return nil, fmt.Errorf("database %s: %w", place.database, err)
		}
	}
	return f, nil
}

// Close closes the pools.
func (f *Field) Close() {
	for _, w := range []*Worker{f.Worker, f.Forgetful, f.Lean, f.Notifying, f.Silent} {
		if w != nil {
			w.pool.Close()
		}
	}
	if f.River != nil {
		f.River.pool.Close()
	}
	if f.Raw != nil {
		f.Raw.pool.Close()
	}
	if f.DBOS != nil {
		f.DBOS.pool.Close()
	}
}
