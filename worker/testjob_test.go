package worker

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/policy"
)

// A job of a test runs the steps of a handler, its pauses and its waits.
func TestJobForTestRunsSteps(t *testing.T) {
	t.Parallel()
	approved := engine.Signal[string]{Name: "approved"}
	mails, keys := 0, make(map[string]bool)
	handle := func(ctx context.Context, job Job[size]) (string, error) {
		draft, err := Step(ctx, job, "draft", func(ctx context.Context) (string, error) {
			mails++
			keys[IdempotencyKey(ctx)] = true
			point, err := job.Waitpoint(ctx, "approved", time.Hour)
			if err == nil && (point.Token.Reveal() == "" || point.Execution != job.ID || point.Key != "approved") {
				t.Errorf("waitpoint %+v", point)
			}
			return "draft", err
		})
		if err != nil {
			return "", err
		}
		if err := Sleep(ctx, job, "pause", 24*time.Hour); err != nil {
			return "", err
		}
		if err := job.Progress(ctx, 50, "half"); err != nil {
			return "", err
		}
		by, err := approved.Await(ctx, job, engine.Wait{})
		return draft + " by " + by, err
	}
	first := JobForTest(size{1})
	if _, err := handle(t.Context(), first); !errors.Is(err, fferr.ErrAwaiting) {
		t.Errorf("first run: %v, want a wait", err)
	}
	if _, err := handle(t.Context(), first); err == nil || !strings.Contains(err.Error(), `"draft" was used before`) {
		t.Errorf("the same run again: %v, want a repeated name", err)
	}
	next := NextRunForTest(first, []engine.ReceivedSignal{{Name: "approved", Payload: []byte(`"ada"`)}})
	if got, err := handle(t.Context(), next); got != "draft by ada" || err != nil {
		t.Errorf("next run: %q, %v", got, err)
	}
	if got, err := handle(t.Context(), NextRunForTest(next)); got != "draft by ada" || err != nil {
		t.Errorf("run after that: %q, %v, want the signals of the earlier runs", got, err)
	}
	if mails != 1 {
		t.Errorf("the step ran %d times, want once", mails)
	}
	if _, err := handle(t.Context(), JobForTest(size{1})); !errors.Is(err, fferr.ErrAwaiting) {
		t.Error(err)
	}
	if mails != 2 || len(keys) != 2 {
		t.Errorf("the steps of two jobs ran %d times with the keys %v", mails, keys)
	}
}

// A job of a test gives each round the waitpoint of its own wait, as a worker's job does, and refuses the signal of another
// link. W1
func TestJobForTestNumbersLinks(t *testing.T) {
	t.Parallel()
	approved := engine.Signal[string]{Name: "approved"}
	var links []engine.Waitpoint
	handle := func(ctx context.Context, job Job[size]) (answers string, err error) {
		for round := range 2 {
			if _, err = Step(ctx, job, Key("ask", round), func(ctx context.Context) (struct{}, error) {
				w, err := job.Waitpoint(ctx, "decision", time.Hour)
				again, _ := job.Waitpoint(ctx, "decision", time.Hour)
				if !w.Created || again.Created || again.ID != w.ID {
					t.Errorf("%+v, then %+v, want one waitpoint", w, again)
				}
				links = append(links, w)
				return struct{}{}, err
			}); err != nil {
				return "", err
			}
			by, err := approved.Await(ctx, job, engine.Wait{Key: "decision", Timeout: time.Hour})
			if err != nil && !errors.Is(err, fferr.ErrWaitTimeout) {
				return "", err
			}
			answers += by
		}
		return answers, nil
	}
	by := func(link int) []engine.ReceivedSignal {
		return []engine.ReceivedSignal{{Name: "approved", Key: links[link].Key, Payload: []byte(`"ada"`)}}
	}
	first := JobForTest(size{1})
	if _, err := handle(t.Context(), first); !errors.Is(err, fferr.ErrAwaiting) {
		t.Fatal(err)
	}
	reminded := NextRunForTest(first, nil) // a timeout
	if _, err := handle(t.Context(), reminded); !errors.Is(err, fferr.ErrAwaiting) || links[1].Key != "decision#2" || links[1].ID == links[0].ID {
		t.Fatalf("%v, links %+v", err, links)
	}
	if got, err := handle(t.Context(), NextRunForTest(reminded, by(1))); got != "ada" || err != nil || len(links) != 2 {
		t.Errorf("%q, %v", got, err)
	}
	_, err := handle(t.Context(), NextRunForTest(reminded, by(0)))
	if failure, ok := errors.AsType[*Fail](err); !ok || failure.Category != "wait" || !strings.Contains(err.Error(), `"decision#2"`) {
		t.Errorf("a signal of the first link: %v", err)
	}
}

// A failed step is not remembered, and a result of another type names the step.
func TestJobForTestFailsSteps(t *testing.T) {
	t.Parallel()
	job := JobForTest(size{1})
	tries := 0
	flaky := func(context.Context) (int, error) {
		if tries++; tries < 4 {
			return 0, errors.New("down")
		}
		return tries, nil
	}
	if _, err := Step(t.Context(), job, "flaky", flaky, Retry(*policy.ImmediateRetries(2))); err == nil || tries != 3 {
		t.Errorf("%v after %d tries", err, tries)
	}
	job = NextRunForTest(job)
	if got, err := Step(t.Context(), job, "flaky", flaky); got != 4 || err != nil {
		t.Errorf("next run: %d, %v", got, err)
	}
	_, err := Step(t.Context(), NextRunForTest(job), "flaky", func(context.Context) (string, error) { panic("must not run") })
	if undecoded, ok := errors.AsType[*fferr.DecodeError](err); !ok || !strings.Contains(undecoded.Error(), `step "flaky"`) {
		t.Errorf("another type: %v", err)
	}
}

func TestJobForTestHasNoTransaction(t *testing.T) {
	t.Parallel()
	_, err := StepTx(t.Context(), JobForTest(size{1}), "book", func(context.Context, pgx.Tx) (int, error) { panic("must not run") })
	if !errors.Is(err, errNoTx) || !strings.Contains(err.Error(), `step "book"`) {
		t.Error(err)
	}
}

// A job that is no test's has no next run: its steps say so.
func TestNextRunOfAnotherJob(t *testing.T) {
	t.Parallel()
	next := NextRunForTest(Job[size]{eng: newFakeEngine(), steps: &steps{}})
	if _, err := Step(t.Context(), next, "a", func(context.Context) (int, error) { return 1, nil }); !errors.Is(err, errNoWorker) {
		t.Error(err)
	}
}
