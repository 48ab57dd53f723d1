//go:build unix

package chaos

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/stream"
	"github.com/flowfabric/flowfabric-go/tests/internal/soak"
)

const tailsName = "stream tails" // of their connections, the listener's among them

func isLost(err error) bool {
	_, lost := errors.AsType[*fferr.LeaseError](err)
	return lost || errors.Is(err, fferr.ErrNotFound)
}

// Processes write to streams, are killed and frozen, and lose their connections, as the tails of the streams do. Each
// durable frame that was acknowledged is delivered exactly once and in order, unless a gap is reported.
func TestStreamsSurviveKillsAndCuts(t *testing.T) {
	t.Parallel()
	const streams = 16
	frames := soak.Size(t, 40, 2_000)
	url := pgtest.CloneURL(t)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	eng, err := engine.New(pool, engine.Config{NoListener: true})
	if err != nil {
		t.Fatal(err)
	}
	specs := make([]engine.ExecutionSpec, streams)
	for i := range specs {
		specs[i] = engine.ExecutionSpec{Lane: streamLane, Kind: "stream"}
	}
	created, err := eng.CreateExecutions(t.Context(), specs)
	if err != nil {
		t.Fatal(err)
	}

	acknowledged := &acknowledgements{of: make(map[string][]string)}
	c := &consumers{
		t: t, orders: consumerOrders{DatabaseURL: url, Frames: frames}, as: "-chaos.streams", onLine: acknowledged.add,
		harms: someHarms(streams*frames, soak.Size(t, 3, 12), soak.Size(t, 1, 3)),
	}
	for range consumerProcesses {
		c.start()
	}
	disturbing, stop := context.WithCancel(t.Context())
	var disturbers sync.WaitGroup
	disturbers.Go(func() { expire(disturbing, eng) })
	cuts := 0
	disturbers.Go(func() { cuts = cut(disturbing, pool) })

	tails := newTails(t, url)
	delivered := make([][]stream.Entry, streams)
	lost := make([]int64, streams)
	var reading sync.WaitGroup
	for i := range created {
		reading.Go(func() { delivered[i], lost[i] = follow(t, tails, created[i].Value.ID) })
	}
	reading.Wait()
	stop()
	disturbers.Wait()
	c.stop()

	total := 0
	for i := range created {
		total += len(acknowledged.of[created[i].Value.ID.String()])
		checkDelivered(t, acknowledged.of[created[i].Value.ID.String()], delivered[i], lost[i])
	}
	t.Logf("%d frames acknowledged in %d streams, %d processes killed, %d frozen, %d connections cut", total, streams, c.kills, c.freezes, cuts)
	if len(c.harms) > 0 || cuts == 0 || total < streams*frames/2 {
		t.Error("that was too little chaos to prove anything")
	}
}

// acknowledgements are the payloads that writers said were appended, by execution.
type acknowledgements struct {
	mu sync.Mutex
	of map[string][]string
}

func (a *acknowledgements) add(line string) {
	x, payload, whole := strings.Cut(line, " ")
	if !whole {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.of[x] = append(a.of[x], payload)
}

// expire returns the executions of killed and frozen writers to their lane.
func expire(ctx context.Context, eng *engine.Engine) {
	for ctx.Err() == nil {
		_, _ = upkeep.Of(eng).ExpireLeases(ctx, 100)
		pause(ctx, 100*time.Millisecond)
	}
}

// cut ends connections of writers and tails, a few at a time, and returns how many.
func cut(ctx context.Context, pool *pgxpool.Pool) (cuts int) {
	for ctx.Err() == nil {
		pause(ctx, 50*time.Millisecond+rand.N(300*time.Millisecond))
		var n int
		err := pool.QueryRow(ctx, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name IN ($1, $2) AND random() < 0.3`, writersName, tailsName).Scan(&n)
		if err == nil {
			cuts += n
		}
	}
	return cuts
}

func newTails(t *testing.T, url string) *engine.Engine {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 4
	config.ConnConfig.RuntimeParams["application_name"] = tailsName
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	eng, err := engine.New(pool, engine.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return eng
}

// follow tails the output of an execution to its end. It goes on at the text of its last position after each failure, and
// at times after a frame.
func follow(t *testing.T, eng *engine.Engine, x id.ExecutionID) (frames []stream.Entry, lost int64) {
	var at stream.Position
	for t.Context().Err() == nil {
		from, err := stream.ParsePosition(at.String())
		if err != nil {
			t.Error(err)
			return frames, lost
		}
		for frame, err := range stream.Tail(t.Context(), eng, x, stream.TailOptions{After: from}) {
			if gap, ok := errors.AsType[*fferr.StreamGapError](err); ok {
				lost += gap.Frames
				continue
			}
			if err != nil {
				break // its connection was cut
			}
			at = frame.Position()
			if frame.Closed == nil {
				frames = append(frames, frame)
			} else if frame.Closed.Last {
				return frames, lost
			}
			if rand.IntN(50) == 0 {
				break
			}
		}
		pause(t.Context(), time.Millisecond)
	}
	return frames, lost
}

func checkDelivered(t *testing.T, acknowledged []string, delivered []stream.Entry, lost int64) {
	t.Helper()
	times := make(map[string]int, len(delivered))
	for i, f := range delivered {
		times[string(f.Payload)]++
		if i == 0 {
			continue
		}
		before := delivered[i-1]
		if f.Attempt < before.Attempt || f.Attempt == before.Attempt && (f.ID.Compare(before.ID) <= 0 || f.Epoch < before.Epoch) {
			t.Errorf("frame %s of epoch %d came after %s of epoch %d", f.ID, f.Epoch, before.ID, before.Epoch)
		}
	}
	for payload, n := range times {
		if n > 1 {
			t.Errorf("%s was delivered %d times", payload, n)
		}
	}
	missing := int64(0)
	for _, payload := range acknowledged {
		if times[payload] == 0 {
			missing++
		}
	}
	if missing > lost {
		t.Errorf("%d acknowledged frames are missing, and gaps of %d were reported", missing, lost)
	}
}
