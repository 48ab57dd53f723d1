package engine

import (
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/inside"
)

func init() {
	inside.Of = func(engine any) inside.Parts {
		e := engine.(*Engine)
		return inside.Parts{
			Outboxes: e.shared.outboxes, Tx: e.c.Tx, Log: e.cfg.Log, Now: e.cfg.Now,
			CallEnded: func() { core.Remind(e.c.CallEnded) }, SequenceEnded: e.c.SequenceEnded, Silence: e.c.Notifier.Silence,
		}
	}
	inside.Classify = func(op string, err error) error {
		if err == nil {
			return nil
		}
		return core.OutcomeOf(op, err)
	}
}
