package workers

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fftest"
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

	kit := fftest.New(t, fftest.EngineConfig(func(cfg *engine.Config) { cfg.Log = nil }))
	pay := engine.Kind[string, string]{Name: "pay"}
	ship := engine.Kind[string, string]{Name: "ship"}
	worker.Handle(kit.Worker, pay, func(context.Context, worker.Job[string]) (string, error) {
		return "", errors.New("the bank does not answer")
	})
	worker.Handle(kit.Worker, ship, func(context.Context, worker.Job[string]) (string, error) { panic("no such warehouse") })
	create := func(kind engine.Kind[string, string], retries int) string {
		kind.Policy = &policy.Execution{Retry: &policy.Retry{MaxRetries: retries, Backoff: policy.Fixed(time.Hour)}}
		return fftest.Create(kit, kind, "4929123412341234").ID.String()
	}
	retried, failed, panicked := create(pay, 1), create(pay, policy.NoRetries), create(ship, policy.NoRetries)
	kit.Drain()
	for _, want := range [][]string{
		{"level=WARN", "execution=" + retried, "kind=pay", "attempt=0", "attempt failed; retrying", "retry_at=", "the bank does not answer"},
		{"level=WARN", "execution=" + failed, "kind=pay", "attempt=0", "failed for good", "the bank does not answer"},
		{"level=ERROR", "execution=" + panicked, "kind=ship", "attempt=0", "failed for good", "no such warehouse"},
	} {
		if !slices.ContainsFunc(strings.Split(log.String(), "\n"), func(line string) bool { return containsAll(line, want) }) {
			t.Errorf("no line with %q in\n%s", want, log.String())
		}
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
