package worker

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
)

// An idle worker checks about once a minute for kinds that it does not handle. It logs each such kind once, if no worker
// took any of it for a minute.
func TestWorkerLogsUnservedKindsOnce(t *testing.T) {
	var asked int
	var answer func() []engine.WaitingKind
	next := func(kind string) engine.WaitingKind {
		return engine.WaitingKind{
			Lane: "images", Kind: kind, Waiting: 7, Since: time.Now(),
			Next: id.ExecutionIDFromRow(0, id.NewExecutionUUID()),
		}
	}
	setUp := func(w *Worker, f *fakeEngine) {
		quickAndSlow(w, f)
		f.waiting = func(filter engine.WaitingFilter) ([]engine.WaitingKind, error) {
			asked++
			if !slices.Contains(filter.Except, "quick") || !slices.Equal(filter.Lanes, []id.LaneID{"images", "mails"}) {
				t.Errorf("asked for %+v", filter)
			}
			if answer == nil {
				return nil, errors.New("out of reach")
			}
			return answer(), nil
		}
	}
	inBubble(t, Config{Lanes: []Lane{{Name: "mails"}, {Name: "images"}}}, setUp, func(t *testing.T, b *bubble) {
		say := func(what string, minutes int, kinds func() []engine.WaitingKind, total int) {
			t.Helper()
			b.eng.mu.Lock()
			answer = kinds
			b.eng.mu.Unlock()
			<-time.After(time.Duration(minutes) * 67 * time.Second)
			synctest.Wait()
			if n := strings.Count(b.log.String(), "no worker takes work"); n != total {
				t.Errorf("%s: %d warnings, want %d:\n%s", what, n, total, b.log)
			}
		}
		always := func(kinds ...engine.WaitingKind) func() []engine.WaitingKind {
			return func() []engine.WaitingKind { return kinds }
		}
		taken := func() []engine.WaitingKind { return []engine.WaitingKind{next("report")} } // since the last check
		report, render := next("report"), next("render")
		say("out of reach", 2, nil, 0)
		say("nothing waits", 2, always(), 0)
		say("another worker takes it", 3, taken, 0)
		say("no worker takes one", 3, always(report), 1)
		say("nor one of another kind", 5, always(render, report), 2)
		say("other workers took all", 2, always(), 2)
		say("no worker takes it any more", 4, always(next("report")), 3)
		if limit := int(sinceEpoch()/(54*time.Second)) + 1; asked > limit || asked < limit/2 {
			t.Errorf("asked %d times in %v", asked, sinceEpoch())
		}
		if log := b.log.String(); !strings.Contains(log, "lane=images kind=report waiting=7 since=") {
			t.Errorf("log: %s", log)
		}
	})
}
