package explain

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/explain"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// lane returns what holds up the lane of the fixture, which is the same for all readers.
func (p *place) lane(t *testing.T) explain.Lane {
	t.Helper()
	lanes, err := explain.Lanes(t.Context(), p.Engine, p.Lane)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range p.readers {
		r.await(t)
		if other, err := explain.Lanes(t.Context(), r.eng, p.Lane); err != nil || !reflect.DeepEqual(other, lanes) {
			t.Errorf("%s: %+v, %v; want %+v", r.name, other, err, lanes)
		}
	}
	return lanes[0]
}

// wantLane fails unless the lane has these codes, in order, and its texts have all parts.
func wantLane(t *testing.T, p *place, next id.ExecutionID, codes string, parts ...string) {
	t.Helper()
	lane := p.lane(t)
	var got, texts []string
	for _, c := range lane.Causes {
		got, texts = append(got, string(c.Code)), append(texts, c.Text)
	}
	text := strings.Join(texts, "\n")
	if lane.ID != p.Lane || lane.Next != next || !lane.At.Equal(p.Time()) || strings.Join(got, " ") != codes {
		t.Errorf("%+v, want next %s and %q", lane, next, codes)
	}
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("the text lacks %q: %s", part, text)
		}
	}
}

// A lane is explained by the execution that is claimed next.
func lanesAreExplained(t *testing.T, f *place) {
	var none id.ExecutionID
	wantLane(t, f, none, "")
	first := f.Create(t, kind("reszie"))
	wantLane(t, f, first, "no_worker", "No registered worker claims from lane "+string(f.Lane)+".")
	if err := operator.PauseLane(t.Context(), f.Engine, f.Lane, operator.LanePause{Reason: "moving", Until: f.Time().Add(time.Minute)}); err != nil {
		t.Fatal(err)
	}
	wantLane(t, f, first, "lane_paused no_worker", "is paused for another 60 s: moving.")
	f.Advance(time.Minute)
	registered(t, f, []string{"resize"})
	wantLane(t, f, first, "no_handler", "none handles kind reszie. Similar: resize.")
	urgent := f.Create(t, kind("resize"), func(s *engine.ExecutionSpec) { s.Priority = 10 })
	wantLane(t, f, urgent, "about_to_start", "2 of 2 places of its workers are taken.")
	if _, err := f.HeartbeatWorker(t.Context(), f.Beat(1)); err != nil {
		t.Fatal(err)
	}
	wantLane(t, f, urgent, "")
	f.Advance(10 * time.Second)
	wantLane(t, f, urgent, "about_to_start", "1 of 2 places of its workers are taken.")
	if err := operator.DrainWorker(t.Context(), f.Engine, f.Registration().Instance); err != nil {
		t.Fatal(err)
	}
	wantLane(t, f, urgent, "workers_drained")
}

// Lanes keep their order, and those that no one has used are lanes too.
func TestLanesKeepTheirOrder(t *testing.T) {
	f := fixture.New(t)
	x := f.Create(t)
	other := f.Lane + "-other"
	lanes, err := explain.Lanes(t.Context(), f.Engine, other, f.Lane, other)
	if err != nil || len(lanes) != 3 || lanes[0].ID != other || !lanes[0].Next.IsZero() || lanes[1].ID != f.Lane || lanes[1].Next != x ||
		!reflect.DeepEqual(lanes[0], lanes[2]) {
		t.Errorf("%+v, %v", lanes, err)
	}
	if lanes, err := explain.Lanes(t.Context(), f.Engine); err != nil || len(lanes) != 0 {
		t.Errorf("of no lane: %+v, %v", lanes, err)
	}
	for says, given := range map[string][]id.LaneID{
		"lanes[1]: invalid lane id":     {"a", ""},
		"lanes: 1001 lanes, limit 1000": make([]id.LaneID, explain.MaxLanes+1),
	} {
		_, err := explain.Lanes(t.Context(), f.Engine, given...)
		if !errors.Is(err, fferr.ErrInvalidInput) || !strings.Contains(fmt.Sprint(err), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

// The load of a lane is the one of its live workers that claim, each with all its lanes.
func TestLoadOfLanes(t *testing.T) {
	f := fixture.New(t)
	other := f.Lane + "-other"
	for i, lanes := range [][]id.LaneID{{f.Lane}, {f.Lane, other}, {other}, {f.Lane}} {
		f.Register(t, func(w *engine.WorkerRegistration) {
			w.Instance, w.Lanes = w.Instance+id.WorkerInstanceID(fmt.Sprint(i)), lanes
			w.Concurrency, w.Running = 10<<(4*i), 1<<(4*i)
		})
	}
	if err := operator.DrainWorker(t.Context(), f.Engine, f.Registration().Instance+"3"); err != nil {
		t.Fatal(err)
	}
	want := func(lane id.LaneID, workers, running int) {
		t.Helper()
		lanes, err := explain.Lanes(t.Context(), f.Engine, lane)
		if err != nil || lanes[0].Workers != workers || lanes[0].Running != running || lanes[0].Places != 10*running {
			t.Errorf("%s: %+v, %v; want %d workers and %d running", lane, lanes, err, workers, running)
		}
	}
	want(f.Lane, 2, 0x011)
	want(other, 2, 0x110)
	want("unused", 0, 0)
	f.Advance(time.Hour)
	want(f.Lane, 0, 0)
}
