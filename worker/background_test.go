package worker

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// A worker without background work warns when two checks have found no other process for it, and then every ten minutes.
// After a process has done the work, the next absence has a warning of its own.
func TestMissingBackgroundWorkIsLogged(t *testing.T) {
	const warning = "level=WARN msg=\"no process does the background work"
	for _, tt := range []struct {
		name    string
		does    func(check int) (bool, error)
		minutes time.Duration
		want    int
	}{
		{"never", func(int) (bool, error) { return false, nil }, 9, 1},
		{"never for long", func(int) (bool, error) { return false, nil }, 22, 3},
		{"always", func(int) (bool, error) { return true, nil }, 30, 0},
		{"not at one check", func(check int) (bool, error) { return check%2 == 0, nil }, 30, 0},
		{"returned and left", func(check int) (bool, error) { return check == 5, nil }, 9, 2},
		{"unknown", func(int) (bool, error) { return false, errors.New("no database") }, 30, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			checks := 0
			setUp := func(w *Worker, f *fakeEngine) {
				quickAndSlow(w, f)
				f.background = func() (bool, error) {
					checks++
					return tt.does(checks)
				}
			}
			inBubble(t, Config{NoReconcile: true}, setUp, func(t *testing.T, b *bubble) {
				b.pass(tt.minutes*time.Minute + 30*time.Second)
				b.stop()
				if got := strings.Count(b.log.String(), warning); got != tt.want || checks > 2*int(tt.minutes) {
					t.Errorf("%d warnings, want %d; %d checks:\n%s", got, tt.want, checks, b.log)
				}
			})
		})
	}
}
