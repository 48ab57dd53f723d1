package limits

import (
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

const day = 24 * time.Hour

// After a clock that was a day ahead, starts that it has dated count as starts of now: a rate goes on after one window, not
// once the real time has caught up. L13.
func TestRateGoesOnAfterAClockThatWasAhead_L13(t *testing.T) {
	const window = time.Minute
	for name, between := range map[string]func(*testing.T, *fixture.Fixture){
		"counted while it was ahead":  func(t *testing.T, f *fixture.Fixture) { wantClaimable(t, f, 0, "while the clock is ahead") },
		"counted when it is set back": func(*testing.T, *fixture.Fixture) {},
	} {
		t.Run(name, func(t *testing.T) {
			f := fixture.NewCloned(t)
			kind := kindOf(f, engine.Rate[sync](2, window))
			f.Advance(day)
			for range 6 {
				created(t, f.Engine, kind, sync{})
			}
			complete(t, f, wantClaimable(t, f, 2, "while the clock is ahead")...)
			between(t, f)
			f.Advance(-day)
			wantClaimable(t, f, 0, "in the window of those that started")
			f.Advance(window - time.Millisecond)
			wantClaimable(t, f, 0, "a millisecond before the window is over")
			f.Advance(time.Millisecond)
			complete(t, f, wantClaimable(t, f, 2, "in the next window")...)
			f.Advance(window)
			wantClaimable(t, f, 2, "in the last window")
		})
	}
}

// An execution that a clock which was ahead admitted, and that started after that was set back, is a start. L13.
func TestAdmissionAheadOfItsStartCounts_L13(t *testing.T) {
	f := fixture.NewCloned(t)
	kind := kindOf(f, engine.Rate[sync](1, time.Minute))
	f.Advance(day)
	for range 2 {
		created(t, f.Engine, kind, sync{})
	}
	admit(t, f.Engine)
	f.Advance(-day)
	complete(t, f, claim(t, f, 1)...)
	f.Advance(time.Minute - time.Millisecond)
	wantClaimable(t, f, 0, "in the window of the start")
	f.Advance(time.Millisecond)
	wantClaimable(t, f, 1, "after it")
}
