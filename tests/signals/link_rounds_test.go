package signals

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/waitpoint"
	"github.com/flowfabric/flowfabric-go/worker"
)

// asking returns a handler that asks by a link until it gets an answer, and notes the links.
func asking(links *[]engine.Waitpoint) func(context.Context, worker.Job[struct{}]) (string, error) {
	return func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
		answers := ""
		for round := range 3 {
			_, err := worker.Step(ctx, job, worker.Key("ask", round), func(ctx context.Context) (struct{}, error) {
				w, err := job.Waitpoint(ctx, decision, time.Hour)
				*links = append(*links, w)
				return struct{}{}, err
			})
			if err != nil {
				return "", err
			}
			won, err := engine.AwaitAny(ctx, job, engine.Wait{Timeout: time.Hour},
				engine.Received("approved").At(decision), engine.Received("rejected").At(decision))
			switch {
			case errors.Is(err, fferr.ErrWaitTimeout):
				answers += "none "
			case err != nil:
				return "", err
			default:
				answers += won.Name + " "
			}
		}
		return answers, nil
	}
}

// post takes a decision by a link, and returns the status of the answer.
func post(t *testing.T, handler http.Handler, w engine.Waitpoint, signal string) int {
	t.Helper()
	link := waitpoint.Link("", w)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, link, nil)
	r.PostForm = url.Values{"signal": {signal}}
	r.Header.Set("Content-Type", formType)
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, r)
	return answer.Code
}

var decisions = waitpoint.Config{Actions: []waitpoint.Action{{Signal: "approved"}, {Signal: "rejected"}}}

// Each link of a loop belongs to the wait behind it: a reminder after a timeout, and the next question. W1
func TestLinkOpensTheNextWait(t *testing.T) {
	var links []engine.Waitpoint
	p := publishing(t, asking(&links))
	if _, err := operator.SeedKey(t.Context(), p.Kit.Fixture.Engine, "k1", wire.NewSecret()); err != nil {
		t.Fatal(err)
	}
	serve := waitpoint.Handler(p.Engine, decisions)
	p.WantSettled(t, worker.Suspended)
	p.Advance(time.Hour)
	p.WantSettled(t, worker.Suspended)
	for i, signal := range []string{"approved", "rejected"} {
		if got := post(t, serve, links[i+1], signal); got != http.StatusOK {
			t.Fatalf("link %d: %d", i+1, got)
		}
		if i == 0 {
			p.WantSettled(t, worker.Suspended)
		}
	}
	p.wantResult(t, "none approved rejected ")
	for _, w := range links {
		if got := post(t, serve, w, "rejected"); got == http.StatusOK && w.ID != links[2].ID {
			t.Errorf("the link of %q takes a decision after its wait", w.Key)
		}
	}
}

// A wait with one key more, or one less, than the waits before it has its links.
func TestLinkOfAnotherSetOfKeys(t *testing.T) {
	var links []engine.Waitpoint
	p := publishing(t, func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
		first, err := approved.Await(ctx, job, engine.Wait{Key: "a"})
		if err != nil {
			return "", err
		}
		_, err = worker.Step(ctx, job, "ask", func(ctx context.Context) (struct{}, error) {
			for _, key := range []id.WaitpointKey{"a", "b"} {
				w, err := job.Waitpoint(ctx, key, time.Hour)
				if links = append(links, w); err != nil {
					return struct{}{}, err
				}
			}
			return struct{}{}, nil
		})
		if err != nil {
			return "", err
		}
		all, err := engine.AwaitAll(ctx, job, engine.Wait{}, engine.Received("approved").At("a"), engine.Received("approved").At("b"))
		if err != nil {
			return "", err
		}
		return first.By + string(rune('0'+len(all))), nil
	})
	if _, err := operator.SeedKey(t.Context(), p.Kit.Fixture.Engine, "k1", wire.NewSecret()); err != nil {
		t.Fatal(err)
	}
	serve := waitpoint.Handler(p.Engine, decisions)
	p.WantSettled(t, worker.Suspended)
	p.approve("ada")
	p.WantSettled(t, worker.Suspended)
	for _, w := range links {
		if got := post(t, serve, w, "approved"); got != http.StatusOK {
			t.Errorf("the link of %q: %d", w.Key, got)
		}
	}
	p.wantResult(t, "ada2")
}

// Two of three reviewers decide by a link of their own, before the wait and during it, in each of two rounds. W17
func TestTwoOfThreeLinks(t *testing.T) {
	reviewers := []id.WaitpointKey{"ada", "grace", "linus"}
	links := make(map[id.WaitpointKey]engine.Waitpoint)
	p := publishing(t, func(ctx context.Context, job worker.Job[struct{}]) (int, error) {
		given := 0
		for round := range 2 {
			_, err := worker.Step(ctx, job, worker.Key("ask", round), func(ctx context.Context) (struct{}, error) {
				for _, reviewer := range reviewers {
					w, err := job.Waitpoint(ctx, reviewer, time.Hour)
					if links[reviewer] = w; err != nil {
						return struct{}{}, err
					}
				}
				return struct{}{}, nil
			})
			if err != nil {
				return 0, err
			}
			if round == 0 { // the first answer comes before the wait
				if err := worker.Sleep(ctx, job, "pause", time.Minute); err != nil {
					return 0, err
				}
			}
			approvals, err := approved.AwaitEach(ctx, job, 2, engine.DistinctSources, engine.Wait{}, reviewers...)
			if err != nil {
				return 0, err
			}
			given += len(approvals)
		}
		return given, nil
	})
	if _, err := operator.SeedKey(t.Context(), p.Kit.Fixture.Engine, "k1", wire.NewSecret()); err != nil {
		t.Fatal(err)
	}
	serve := waitpoint.Handler(p.Engine, decisions)
	decide := func(reviewer id.WaitpointKey, signal string) {
		t.Helper()
		if got := post(t, serve, links[reviewer], signal); got != http.StatusOK {
			t.Errorf("%s: %d", reviewer, got)
		}
	}
	p.WantSettled(t, worker.Delayed)
	decide("grace", "approved")
	p.Advance(time.Minute)
	p.WantSettled(t, worker.Suspended)
	decide("grace", "approved")
	decide("ada", "rejected")
	p.WantSettled(t)
	decide("linus", "approved")
	p.WantSettled(t, worker.Suspended)
	for _, reviewer := range reviewers[:2] {
		p.WantSettled(t)
		decide(reviewer, "approved")
	}
	p.wantResult(t, 4)
}

// Waitpoints that a wait does not use are refused.
func TestKeysOfAWaitAreUsed(t *testing.T) {
	p := publishing(t, func(ctx context.Context, job worker.Job[struct{}]) (string, error) {
		_, both := approved.AwaitEach(ctx, job, 1, engine.DistinctSources, engine.Wait{Key: "a"}, "b")
		_, two := engine.AwaitAny(ctx, job, engine.Wait{}, approved.Received().At("a", "b"))
		_, all := engine.AwaitAll(ctx, job, engine.Wait{}, engine.AnyOf(approved.Received()).At("a"))
		for _, err := range []error{both, two, all} {
			if !errors.Is(err, fferr.ErrInvalidInput) {
				t.Error(err)
			}
		}
		return "", nil
	})
	p.WantSettled(t, worker.Completed)
}
