package streams

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/flowfabric/flowfabric-go/stream"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// Case 18 and S39: sixteen writers hold one lease, and append at once. A tail has every frame once, in the order of the
// ids, which is the order of the commits: the tail reads while they write, and a frame that came with a smaller id would
// be left out.
func TestTailHasEveryFrameOfManyWriters(t *testing.T) {
	f := fixture.New(t)
	work := f.Start(t)
	const writers, each = 16, 20
	l := follow(t, f.Rival(t).Engine, work.ID, stream.TailOptions{})
	var running sync.WaitGroup
	for w := range writers {
		running.Go(func() {
			for n := range each {
				if _, err := stream.Append(t.Context(), f.Engine, work.Lease, []stream.FrameSpec{{Payload: fmt.Appendf(nil, "%d.%d", w, n)}}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	next := make([]int, writers)
	var last stream.Entry
	for range writers * each {
		v := l.next(t)
		if v.err != nil || v.frame.Closed != nil {
			t.Fatal(v)
		}
		var w, n int
		if _, err := fmt.Sscanf(string(v.frame.Payload), "%d.%d", &w, &n); err != nil {
			t.Fatal(err)
		}
		if n != next[w] || v.frame.ID.Compare(last.ID) <= 0 && last.Number > 0 || v.frame.Number != last.Number+1 || v.frame.Trimmed != 0 {
			t.Fatalf("frame %s (%d) behind %s (%d), want %d of its writer", v.frame.ID, v.frame.Number, last.ID, last.Number, next[w])
		}
		next[w]++
		last = v.frame
	}
	running.Wait()
	complete(t, f.Engine, work.Lease)
	l.want(t, "0 closed attempt_success last=true")
}

// An append that began earlier commits later: the other writer waits for it, and the tail has both.
func TestTailWaitsForAnOpenAppend(t *testing.T) {
	f := fixture.New(t)
	work := f.Start(t)
	r := f.Rival(t)
	l := follow(t, f.Engine, work.ID, stream.TailOptions{})
	tx := f.BeginTx(t)
	if _, err := stream.Append(t.Context(), f.WithTx(tx), work.Lease, []stream.FrameSpec{{Payload: []byte("first")}}); err != nil {
		t.Fatal(err)
	}
	second := fixture.Async(t, func(ctx context.Context) error {
		_, err := stream.Append(ctx, r.Engine, work.Lease, []stream.FrameSpec{{Payload: []byte("second")}})
		return err
	})
	r.AwaitBlocked(t, f)
	fixture.Commit(t, tx)
	if err := second(); err != nil {
		t.Fatal(err)
	}
	l.want(t, "0 first", "0 second")
	l.end()
}
