package streams

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/flowfabric/flowfabric-go/internal/notify"
)

// request asks for the elements of a stream behind the first ones.
type request struct {
	stream string
	after  int
}

// database is a source whose streams are numbers of elements.
type database struct {
	mu     sync.Mutex
	length map[string]int
	fail   error
	reads  []int // the sizes of reads
	polls  []int
	hold   chan struct{} // each read waits here behind its snapshot, if it is not nil
	busy   int           // calls under way
	notifier
}

type notifier struct {
	*notify.Notifier
	hub *Hub[request, []int]
}

type noPool struct{}

func (noPool) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, nil
}

func newDatabase(t *testing.T) *database {
	t.Helper()
	d := &database{length: make(map[string]int)}
	log := slog.New(slog.DiscardHandler)
	listener := notify.NewListener(nil, log)
	d.Notifier = notify.NewNotifier(noPool{}, listener, log)
	d.Silence()
	d.hub = NewHub(Source[request, []int]{
		Read: d.read, Poll: d.poll, Size: func(request) int { return 1 }, Copy: slices.Clone[[]int],
		Permanent: func(err error) bool { return errors.Is(err, errGone) },
	}, listener, log)
	return d
}

var errGone = errors.New("gone for ever")

// damaged is a stream whose reads fail.
const damaged = "damaged"

func (d *database) enter(sizes *[]int, n int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	*sizes = append(*sizes, n)
	d.busy++
	if d.busy > 1 {
		return fmt.Errorf("two calls at a time: %w", errGone)
	}
	return d.fail
}

func (d *database) exit() {
	d.mu.Lock()
	d.busy--
	d.mu.Unlock()
}

func (d *database) read(_ context.Context, reads []request) ([]Answer[request, []int], error) {
	err := d.enter(&d.reads, len(reads))
	defer d.exit()
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(reads, func(r request) bool { return r.stream == damaged }) {
		return nil, errors.New("damaged")
	}
	answers := make([]Answer[request, []int], len(reads))
	d.mu.Lock()
	for i, r := range reads {
		answers[i] = Answer[request, []int]{Wait: d.length[r.stream] <= r.after, Next: r, AtEnd: true}
		for n := r.after; n < d.length[r.stream]; n++ {
			answers[i].Value = append(answers[i].Value, n)
		}
	}
	hold := d.hold
	d.mu.Unlock()
	if hold != nil {
		<-hold
	}
	return answers, nil
}

func (d *database) poll(_ context.Context, reads []request) ([]bool, error) {
	err := d.enter(&d.polls, len(reads))
	defer d.exit()
	d.mu.Lock()
	defer d.mu.Unlock()
	changed := make([]bool, len(reads))
	for i, r := range reads {
		changed[i] = d.length[r.stream] > r.after
	}
	return changed, err
}

// grow appends an element, and notifies unless the notification gets lost.
func (d *database) grow(stream string, lost bool) {
	d.mu.Lock()
	d.length[stream]++
	d.mu.Unlock()
	if !lost {
		var due notify.Set
		due.Add(stream, "")
		d.Notify(&due)
	}
}

func (d *database) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

// got is an answer, and when it came.
type got struct {
	value []int
	err   error
	after time.Duration
}

// await asks beside the test.
func await(r *Reader[request, []int], q request) chan got {
	answer := make(chan got, 1)
	began := time.Now()
	go func() {
		value, err := r.Await(context.Background(), q)
		answer <- got{value, err, time.Since(began)}
	}()
	return answer
}

func (g got) want(t *testing.T, value []int, after time.Duration) {
	t.Helper()
	if g.err != nil || !slices.Equal(g.value, value) || g.after != after {
		t.Errorf("got %v, %v after %v, want %v after %v", g.value, g.err, g.after, value, after)
	}
}

// pass lets a bubble's time pass.
func pass(d time.Duration) { time.Sleep(d); synctest.Wait() }

func TestReadersAreWokenAndPolledFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase(t)
		r := d.hub.Reader("a")
		d.grow("a", true)
		(<-await(r, request{"a", 0})).want(t, []int{0}, 0)

		answer := await(r, request{"a", 1})
		pass(10 * time.Millisecond)
		d.grow("a", false)
		(<-answer).want(t, []int{1}, 10*time.Millisecond)

		// What a reader has had is known to be the end, so that the next wait begins without a read.
		before := len(d.reads)
		answer = await(r, request{"a", 2})
		synctest.Wait()
		if len(d.reads) != before {
			t.Errorf("%d reads for a stream at whose end the reader is", len(d.reads)-before)
		}
		d.grow("a", true)
		if g := <-answer; g.err != nil || !slices.Equal(g.value, []int{2}) || g.after == 0 || g.after > deafInterval {
			t.Errorf("%v, %v after %v, want it by a poll", g.value, g.err, g.after)
		}

		// A notification while the program works is not forgotten.
		d.grow("a", false)
		(<-await(r, request{"a", 3})).want(t, []int{3}, 0)

		d.grow("b", true)
		r.Follow("b")
		(<-await(r, request{"b", 0})).want(t, []int{0}, 0)
		answer = await(r, request{"b", 1})
		synctest.Wait()
		d.grow("b", false)
		(<-answer).want(t, []int{1}, 0)
		r.Leave()
		synctest.Wait()
		d.wantEmpty(t)
	})
}

func (d *database) wantEmpty(t *testing.T) {
	t.Helper()
	h := d.hub
	if h.running || h.watch != nil || len(h.channels) > 0 || len(h.parked) > 0 {
		t.Errorf("left behind: running %v, ear %v, %d channels, %d parked", h.running, h.watch, len(h.channels), len(h.parked))
	}
}

// A change is committed and notified at each moment of the first reads of a reader, whether or not another one has the hub
// registered already: it comes by a read that begins after it, and no poll is needed.
func TestNoChangeIsMissed(t *testing.T) {
	for moment := range 6 {
		synctest.Test(t, func(t *testing.T) {
			d := newDatabase(t)
			other := d.hub.Reader("a")
			if moment >= 3 {
				await(other, request{"a", 0})
				synctest.Wait()
			}
			hold := make(chan struct{})
			d.set(func() { d.hold = hold })
			r := d.hub.Reader("a")
			answer := await(r, request{"a", 0})
			synctest.Wait() // its first read has not seen the change
			for range moment % 3 {
				hold <- struct{}{}
				synctest.Wait()
			}
			d.grow("a", false)
			close(hold)
			if moment == 0 {
				synctest.Wait()
			}
			(<-answer).want(t, []int{0}, 0)
			other.Leave()
			r.Leave()
		})
	}
}

// Many readers of one stream need one read, and each has its own copy.
func TestEqualRequestsShareARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase(t)
		var all []*Reader[request, []int]
		var answers []chan got
		for range 50 {
			all = append(all, d.hub.Reader("a"))
			answers = append(answers, await(all[len(all)-1], request{"a", 0}))
		}
		synctest.Wait()
		d.set(func() { d.reads = nil })
		d.grow("a", false)
		for _, answer := range answers {
			g := <-answer
			g.want(t, []int{0}, 0)
			g.value[0] = 7
		}
		if !slices.Equal(d.reads, []int{1}) {
			t.Errorf("reads of %v streams, want one of one", d.reads)
		}
		for _, r := range all {
			r.Leave()
		}
		synctest.Wait()
		d.wantEmpty(t)
	})
}

func TestManyReadersNeedFewReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 2_500
		d := newDatabase(t)
		d.hold = make(chan struct{})
		var all []*Reader[request, []int]
		var answers []chan got
		for i := range n {
			stream := fmt.Sprint(i)
			all = append(all, d.hub.Reader(stream))
			answers = append(answers, await(all[i], request{stream, 0}))
		}
		synctest.Wait()
		close(d.hold) // all have come while the first one was read for
		synctest.Wait()
		if len(d.reads) > 2*(n/maxReads+2) || slices.Max(d.reads) != maxReads {
			t.Errorf("%d reads of at most %d streams for %d readers that begin", len(d.reads), slices.Max(d.reads), n)
		}
		d.set(func() { d.polls, d.reads = nil, nil })
		pass(10 * deafInterval)
		if len(d.polls) != 30 || slices.Max(d.polls) != maxPolls || len(d.reads) > 0 {
			t.Errorf("%d polls of at most %d streams, and %d reads, want 3 polls five times a second", len(d.polls), slices.Max(d.polls), len(d.reads))
		}
		for i := range n {
			d.grow(fmt.Sprint(i), i%2 == 0)
		}
		for _, answer := range answers {
			if g := <-answer; g.err != nil || !slices.Equal(g.value, []int{0}) {
				t.Error(g)
			}
		}
		for _, r := range all {
			r.Leave()
		}
		synctest.Wait()
		d.wantEmpty(t)
	})
}

// The first read of a reader reports its failure. Later ones are repeated, less and less often, unless they can't succeed.
func TestReadersSurviveOutages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase(t)
		outage := errors.New("no server")
		d.fail = outage
		first := d.hub.Reader("a")
		if g := <-await(first, request{"a", 0}); !errors.Is(g.err, outage) {
			t.Errorf("got %v, want the failure of the first read", g.err)
		}
		first.Leave()
		d.set(func() { d.fail = nil })
		r := d.hub.Reader("a")
		answer := await(r, request{"a", 0})
		pass(time.Second)
		d.set(func() { d.fail, d.reads, d.polls = outage, nil, nil })
		pass(time.Minute)
		if n := len(d.reads) + len(d.polls); n > 40 || n < 20 {
			t.Errorf("%d tries in a minute", n)
		}
		d.grow("a", true)
		d.set(func() { d.fail = nil })
		if g := <-answer; g.err != nil || !slices.Equal(g.value, []int{0}) {
			t.Errorf("got %v, %v after the outage", g.value, g.err)
		}
		answer = await(r, request{"a", 1})
		synctest.Wait()
		d.set(func() { d.fail = errGone })
		if g := <-answer; !errors.Is(g.err, errGone) {
			t.Errorf("got %v, want the permanent failure", g.err)
		}
		r.Leave()
		pass(maxRetry)
		d.wantEmpty(t)
	})
}

// Readers leave at any moment: with their context, while they are read for, and while the hub joins their channel.
func TestReadersLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase(t)
		d.hold = make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		r := d.hub.Reader("a")
		done := make(chan error, 1)
		go func() {
			_, err := r.Await(ctx, request{"a", 0})
			r.Leave()
			done <- err
		}()
		synctest.Wait() // it is being read for
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want the context's error at once", err)
		}
		close(d.hold)
		synctest.Wait()
		d.wantEmpty(t)
	})
}

func TestPageSizesFollowTheFrames(t *testing.T) {
	for _, c := range []struct{ size, frames, bytes, want int }{
		{16, 16, 100, 32},
		{128, 128, 1000, 128},
		{128, 3, 1000, 16},
		{16, 16, 1 << 20, 8},
		{8, 8, 512 << 10, 4},
		{4, 4, 256 << 10, 4},
		{4, 1, 64 << 10, 4},
		{1, 1, 1 << 20, 1},
		{1, 1, 10, 2},
		{16, 0, 0, 16},
	} {
		if got := NextSize(c.size, c.frames, c.bytes); got != c.want {
			t.Errorf("behind %d of %d frames with %d bytes: %d, want %d", c.frames, c.size, c.bytes, got, c.want)
		}
	}
}

// A stream that can't be read fails alone, once others have been read beside it.
func TestDamagedStreamFailsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDatabase(t)
		broken := d.hub.Reader(damaged)
		defer broken.Leave()
		d.grow("first", true)
		// It was read before it was damaged.
		broken.seen = true
		fails := await(broken, request{damaged, 0})
		var answers []chan got
		for i := range 10 {
			stream := fmt.Sprint(i)
			d.grow(stream, true)
			r := d.hub.Reader(stream)
			defer r.Leave()
			answers = append(answers, await(r, request{stream, 0}))
		}
		for _, answer := range answers {
			if g := <-answer; g.err != nil && !strings.Contains(g.err.Error(), "damaged") {
				t.Error(g)
			}
		}
		r := d.hub.Reader("first")
		defer r.Leave()
		for len(fails) == 0 {
			if g := <-await(r, request{"first", 0}); g.err != nil && !strings.Contains(g.err.Error(), "damaged") {
				t.Error(g)
			}
			pass(maxRetry)
		}
		if g := <-fails; g.err == nil {
			t.Errorf("the damaged stream has %v", g.value)
		}
	})
}
