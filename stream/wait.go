package stream

import (
	"bytes"
	"context"
	"slices"
	"strings"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/pgtx"
	"github.com/flowfabric/flowfabric-go/internal/streams"
)

type (
	hub        = streams.Hub[request, answer]
	reader     = streams.Reader[request, answer]
	tailAnswer = streams.Answer[request, answer]
)

// hubOf returns the hub of all tails of an engine, which reads from the engine's own pool.
func hubOf(c *core.Core) *hub {
	return core.Memory(c, func() *hub {
		c := c.Base()
		return streams.NewHub(streams.Source[request, answer]{
			Read: func(ctx context.Context, reads []request) ([]tailAnswer, error) { return readTails(ctx, c, reads) },
			Poll: func(ctx context.Context, reads []request) ([]bool, error) { return pollTails(ctx, c, reads) },
			Send: func(ctx context.Context, channel, payload string) error {
				_, err := c.Runner.AtOnce().Exec(ctx, "select pg_notify($1, $2)", channel, payload)
				return err
			},
			Size: func(r request) int { return r.size }, Copy: answer.clone, Permanent: isPermanent,
		}, c.Listener, c.Log)
	})
}

// maxTailFrames limits the frames of one statement for tails. A frame has at most [MaxPayload] bytes.
const maxTailFrames = 128

// readTails answers the requests of tails: few requests by two statements in one round trip, otherwise by a read of the
// states and a read of the frames of streams with new frames.
func readTails(ctx context.Context, c *core.Core, reads []request) ([]tailAnswer, error) {
	var answers []answer
	var err error
	if sizesOf(reads) <= maxTailFrames {
		answers, err = core.ReadAgain(c, func() ([]answer, error) { return readStreams(ctx, c, reads) })
	} else if answers, err = core.ReadAgain(c, func() ([]answer, error) { return readStates(ctx, c, reads) }); err == nil {
		err = listAhead(ctx, c, reads, answers)
	}
	if err != nil {
		return nil, err
	}
	tails := make([]tailAnswer, len(reads))
	for i := range answers {
		tails[i] = answers[i].forTail(reads[i])
	}
	return tails, nil
}

func sizesOf(reads []request) (sum int) {
	for i := range reads {
		sum += reads[i].size
	}
	return sum
}

// readStates returns answers without frames.
func readStates(ctx context.Context, c *core.Core, reads []request) ([]answer, error) {
	keys := core.NewLeaseArrays(len(reads))
	ords := make([]int32, len(reads))
	for i, r := range reads {
		keys.Add(id.Fence{Execution: r.key.Execution, Attempt: r.key.Attempt})
		ords[i] = int32(i)
	}
	states, err := c.Q.ReadStreams(ctx, c.Reader(), db.ReadStreamsParams{
		PartitionKeys: keys.Partitions, ExecutionIDs: keys.Executions, AttemptIndexes: keys.Attempts, Ords: ords,
	})
	if err != nil {
		return nil, err
	}
	answers := make([]answer, len(reads))
	for i := range states {
		answers[states[i].Ord].take(&states[i])
	}
	return answers, nil
}

// listAhead adds the frames to answers of streams that are ahead of their readers.
func listAhead(ctx context.Context, c *core.Core, reads []request, answers []answer) error {
	var places []int
	var some []request
	list := func() error {
		if len(some) == 0 {
			return nil
		}
		frames, err := core.ReadAgain(c, func() ([]db.ListFramesRow, error) {
			return c.Q.ListFrames(ctx, c.Reader(), framesOf(some))
		})
		for i := range frames {
			n := places[frames[i].Ord]
			answers[n].add(reads[n].key, &frames[i])
		}
		places, some = places[:0], some[:0]
		return err
	}
	sum := 0
	for n, r := range reads {
		if !answers[n].isAhead(r.after) {
			continue
		}
		if sum += r.size; sum > maxTailFrames {
			if err := list(); err != nil {
				return err
			}
			sum = r.size
		}
		places, some = append(places, n), append(some, r)
	}
	return list()
}

// pollTails reports which tails may continue.
func pollTails(ctx context.Context, c *core.Core, reads []request) ([]bool, error) {
	answers, err := core.ReadAgain(c, func() ([]answer, error) { return readStates(ctx, c, reads) })
	if err != nil {
		return nil, err
	}
	changed := make([]bool, len(reads))
	for i := range answers {
		a := &answers[i]
		changed[i] = a.err != nil || a.state == nil || a.closed != nil || a.isAhead(reads[i].after)
	}
	return changed, nil
}

// isPermanent reports whether a failed read would fail again: the pool is closed, or the database lacks the tables or the
// rights.
func isPermanent(err error) bool {
	state := pgtx.SQLState(err)
	return pgtx.IsClosed(err) || strings.HasPrefix(state, "42")
}

// newest is the position of a stream's newest frame.
func (a *answer) newest() wire.FramePosition {
	return wire.FramePosition{TsMs: a.state.TsMs, Seq: a.state.Seq}
}

func (a *answer) isAhead(of wire.FramePosition) bool {
	return a.state != nil && a.newest().Compare(of) > 0
}

// forTail returns an answer to a tail. Without frames the tail waits after the newest position: all frames up to there were
// committed, and are skipped or no longer kept.
func (a *answer) forTail(r request) tailAnswer {
	switch {
	case a.err != nil:
		return tailAnswer{Err: a.err}
	case a.state == nil:
		return tailAnswer{Value: *a}
	}
	a.more = len(a.frames) == r.size
	if a.closed != nil {
		// A replay may have continued the attempt since the state was read. Its frames come after this end.
		a.frames = slices.DeleteFunc(a.frames, func(f Entry) bool { return f.ID.Compare(a.newest()) > 0 })
		return tailAnswer{Value: *a}
	}
	if len(a.frames) > 0 {
		return tailAnswer{Value: *a, AtEnd: a.frames[len(a.frames)-1].ID == a.newest()}
	}
	if a.isAhead(r.after) {
		r.after = a.newest()
	}
	return tailAnswer{Wait: true, Next: r}
}

// clone returns an answer that shares nothing mutable.
func (a answer) clone() answer {
	a.frames = slices.Clone(a.frames)
	for i := range a.frames {
		a.frames[i].Payload = bytes.Clone(a.frames[i].Payload)
	}
	if a.closed != nil {
		a.closed = new(*a.closed)
	}
	return a
}
