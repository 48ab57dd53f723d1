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
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
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
			case errors.Is(err, engine.ErrWaitTimeout):
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
	if _, err := p.Operator().SeedKey(t.Context(), "k1", wire.NewSecret()); err != nil {
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
	if _, err := p.Operator().SeedKey(t.Context(), "k1", wire.NewSecret()); err != nil {
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
