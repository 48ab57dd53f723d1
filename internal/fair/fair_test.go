package fair

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// work is an execution of a tenant in the simulated lane.
type work struct {
	tenant int
	place  int64
	n      int // of creation
}

// lane simulates a queue. It claims by whole milliseconds, then by creation, as the database does.
type lane struct {
	weights []int
	waiting []work
	last    []*Last
	lastN   []int
	created int
	now     int64
}

func (l *lane) create(tenant int) {
	head := l.now
	if len(l.waiting) > 0 {
		head = l.waiting[0].place / Unit * Unit // the queue knows no more
	}
	place := Next(head, l.last[tenant], l.weights[tenant])
	l.created++
	l.last[tenant], l.lastN[tenant] = &Last{Place: place}, l.created
	w := work{tenant, place, l.created}
	at, _ := slices.BinarySearchFunc(l.waiting, w, func(a, b work) int {
		return cmp.Or(cmp.Compare(a.place/Unit, b.place/Unit), cmp.Compare(a.n, b.n))
	})
	l.waiting = slices.Insert(l.waiting, at, w)
}

func (l *lane) claim() int {
	w := l.waiting[0]
	l.waiting = l.waiting[1:]
	if l.lastN[w.tenant] == w.n {
		l.last[w.tenant].Started = true
	}
	return w.tenant
}

// While two tenants have work waiting, what they start differs by their weights, but for a round. Others come and go.
func TestTenantsShareByWeight(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		chance := rand.New(rand.NewPCG(seed, 0))
		l := &lane{weights: []int{1, 1 + chance.IntN(20), 1 + chance.IntN(20), 1, 3}, now: 1e15}
		l.last, l.lastN = make([]*Last, len(l.weights)), make([]int, len(l.weights))
		starts := make([]int, len(l.weights))
		waits := make([]int, len(l.weights))
		began := false
		for range 600 {
			for tenant := range 3 { // always have work waiting, some from the start and some as they go
				for waits[tenant] < 2*l.weights[tenant]+chance.IntN(200) {
					l.create(tenant)
					waits[tenant]++
				}
			}
			if tenant := 3 + chance.IntN(2); chance.IntN(3) == 0 {
				l.create(tenant)
				waits[tenant]++
			}
			if !began {
				began = true
				continue
			}
			tenant := l.claim()
			starts[tenant]++
			waits[tenant]--
			l.now += int64(chance.IntN(3)) * Unit
			for a := range 3 {
				for b := range a {
					rounds := float64(starts[a])/float64(l.weights[a]) - float64(starts[b])/float64(l.weights[b])
					if rounds > 2 || rounds < -2 {
						t.Fatalf("seed %d: %v starts with weights %v", seed, starts, l.weights)
					}
				}
			}
		}
	}
}

// A tenant that comes while others wait starts within a round of the tenants that wait.
func TestNewcomerStartsWithinARound(t *testing.T) {
	t.Parallel()
	l := &lane{weights: make([]int, 100), last: make([]*Last, 100), lastN: make([]int, 100), now: 1e15}
	for tenant := range 99 {
		l.weights[tenant] = 1
		for range 1 + 10*tenant {
			l.create(tenant)
		}
	}
	l.weights[99] = 1
	for range 1000 {
		l.claim()
	}
	l.create(99)
	for n := range 200 {
		if l.claim() == 99 {
			t.Logf("started after %d others", n)
			return
		}
	}
	t.Error("did not start within two rounds")
}

func TestNext(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		last   *Last
		weight int
		want   int64
	}{
		{"no execution yet", nil, 1, 100 * Unit},
		{"backlog", &Last{Place: 150 * Unit}, 1, 151 * Unit},
		{"backlog, weight 4", &Last{Place: 150 * Unit}, 4, 150*Unit + Unit/4},
		{"waits behind the head", &Last{Place: 50 * Unit}, 1, 100 * Unit},
		{"started long ago", &Last{Place: 50 * Unit, Started: true}, 1, 100 * Unit},
		{"started at the head", &Last{Place: 100 * Unit, Started: true}, 1, 101 * Unit},
		{"started in the millisecond of the head", &Last{Place: 100*Unit + 500, Started: true}, 1000, 100*Unit + 500 + Unit/1000},
		{"started before the lane was empty", &Last{Place: 150 * Unit, Started: true}, 1, 100 * Unit},
	} {
		if got := Next(100*Unit, tt.last, tt.weight); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

// A look begins at the last head, at the front after one that found nothing, and behind a head that stays.
func TestHeadRemembers(t *testing.T) {
	t.Parallel()
	var h Head
	now := time.UnixMilli(1)
	at := func(d time.Duration) time.Time { return now.Add(d) }
	want := func(d time.Duration, from int64) {
		t.Helper()
		if got := h.From(at(d)); got != from {
			t.Errorf("after %v: looks from %d, want %d", d, got, from)
		}
	}
	want(0, 0)
	first, second := [16]byte{1}, [16]byte{2}
	h.Found(0, 500*Unit, first, now, now)
	want(time.Millisecond, 500)
	h.Found(500, 500*Unit, second, now, at(time.Millisecond))
	want(1001*time.Millisecond, 500)
	h.Found(500, 500*Unit, second, now, at(time.Second))
	want(1002*time.Millisecond, 501) // unclaimed for a second
	h.Found(501, 502*Unit, first, now, at(1002*time.Millisecond))
	want(1003*time.Millisecond, 502)
	h.Missed(502, 5000*Unit, now, at(1003*time.Millisecond))
	want(1003*time.Millisecond, 0)
	h.Missed(0, 5000*Unit, at(1003*time.Millisecond), at(1013*time.Millisecond)) // took 10 ms
	want(1512*time.Millisecond, 4000)
	want(1513*time.Millisecond, 0)
}
