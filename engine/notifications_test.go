package engine

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/notify"
	"github.com/flowfabric/flowfabric-go/internal/scan"
)

// A resumed execution is as old as it was, so it is before the scan positions. The claimers of its lane do not wait until
// full scans are due for other reasons: the last one may have been fruitless.
func TestClaimerScansFullyForResumedExecutions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener := notify.NewListener(nil, slog.New(slog.DiscardHandler))
		e := &Engine{c: &core.Core{Notifying: &core.Notifying{
			Notifier: notify.NewNotifier(noServer{}, listener, slog.New(slog.DiscardHandler)), Listener: listener, Resumed: &core.Resumptions{},
		}}, shared: new(shared)}
		spec := ClaimSpec{Lane: "lane", Worker: "worker", Instance: "instance", LeaseTTL: time.Minute}
		claimer, err := e.NewClaimer(spec)
		if err != nil {
			t.Fatal(err)
		}
		scans := func(found ...scan.Found) {
			s := &scan.Scan{Wanted: 2, Began: time.Now().Add(-time.Millisecond), Ended: time.Now(), Found: found}
			claimer.policy.Begin(s)
			claimer.policy.End(s)
		}
		last := scan.Position{CreatedAtMs: 1, Execution: id.NewExecutionUUID()}
		scans(scan.Found{Position: last})
		scans()

		var woken []id.LaneID
		listening, stop := context.WithCancel(t.Context())
		defer stop()
		go e.Listen(listening, func(lane id.LaneID) {
			woken = append(woken, lane)
			claimer.Wake()
		})
		synctest.Wait()
		for _, c := range []struct {
			name   string
			notify func(*core.Notifications)
			full   bool
		}{
			{"new work", func(due *core.Notifications) { due.Lane("lane") }, false},
			{"a resumed execution on another lane", func(due *core.Notifications) { due.Resumed("other") }, false},
			{"a resumed execution", func(due *core.Notifications) { due.Resumed("lane") }, true},
		} {
			var due core.Notifications
			c.notify(&due)
			woken = nil
			e.c.Notify(t.Context(), &due)
			synctest.Wait()
			if full := len(claimer.next()) == 0; len(woken) != 1 || full != c.full {
				t.Errorf("after %s: woken for %q, a full scan is due: %t; want one, %t", c.name, woken, full, c.full)
			}
		}
		scans(scan.Found{Position: last, Resumed: true})
		if len(claimer.next()) == 0 {
			t.Error("a second full scan is due for one resumption")
		}
		stop()
		time.Sleep(time.Second) // until the notifier has given up
	})
}
