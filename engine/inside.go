package engine

import "github.com/flowfabric/flowfabric-go/internal/inside"

func init() {
	inside.Of = func(engine any) inside.Parts {
		e := engine.(*Engine)
		return inside.Parts{
			Outboxes: e.shared.outboxes, Tx: e.tx, Log: e.cfg.Log, Now: e.cfg.Now, MaxFrame: e.cfg.Streams.MaxPayload,
			CallEnded: func() { remind(e.callEnded) }, SequenceEnded: e.sequenceEnded, Silence: e.notifier.Silence,
			WaitingReports: e.usage.count,
		}
	}
	inside.CheckFrame = func(frame any) error {
		return wrap(opAppendFrames, checkFrame(frame.(*FrameSpec), MaxFramePayload))
	}
	inside.Classify = func(op string, err error) error {
		if err == nil {
			return nil
		}
		return outcomeOf(op, err)
	}
}
