package workers

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/policy"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/worker"
)

// A program that configures no log, as that of the README, with handlers that fail. It is serial: it changes the default
// log of the process.
func TestFailingHandlersAreLoggedByDefault(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	log := new(fixture.LockedBuffer)
	slog.SetDefault(slog.New(slog.NewTextHandler(log, nil)))

	c := fixture.CrewOn(t, fixture.On(t, fixture.OpenPool(t, pgtest.URL(t), nil), pgtest.URL(t)), engine.Config{})
	w := fixture.NewWorker(t, c.Eng, worker.Config{Lanes: []id.LaneID{c.Lane}, NoReconcile: true})
	fixture.HandleKind(w, "pay", func(context.Context, worker.Job[string]) (string, error) {
		return "", errors.New("the bank does not answer")
	})
	fixture.HandleKind(w, "ship", func(context.Context, worker.Job[string]) (string, error) { panic("no such warehouse") })
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ran := make(chan error, 1)
	go func() { ran <- w.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	}()

	create := func(kind string, retries int) string {
		return c.Create(t, func(s *engine.ExecutionSpec) {
			s.Kind, s.Payload = kind, []byte(`"4929123412341234"`)
			s.Policy = &policy.Execution{Retry: &policy.Retry{MaxRetries: retries, Backoff: policy.Fixed(time.Hour)}}
		}).String()
	}
	retried, failed, panicked := create("pay", 1), create("pay", policy.NoRetries), create("ship", policy.NoRetries)
	for _, want := range [][]string{
		{"level=WARN", "execution=" + retried, "kind=pay", "attempt=0", "attempt failed; retrying", "retry_at=", "the bank does not answer"},
		{"level=WARN", "execution=" + failed, "kind=pay", "attempt=0", "failed for good", "the bank does not answer"},
		{"level=ERROR", "execution=" + panicked, "kind=ship", "attempt=0", "failed for good", "no such warehouse"},
	} {
		fixture.Await(t, "a line with "+strings.Join(want, ", "), func() bool {
			for line := range strings.Lines(log.String()) {
				if containsAll(line, want) {
					return true
				}
			}
			return false
		})
	}
	if strings.Contains(log.String(), "4929123412341234") {
		t.Error("a payload was logged")
	}
}

func containsAll(line string, texts []string) bool {
	for _, text := range texts {
		if !strings.Contains(line, text) {
			return false
		}
	}
	return true
}
