package worker

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/flowfabric/flowfabric-go/fferr"
)

// Health returns a handler for liveness probes. The handler answers 200 while the workers' fetchers make progress, and
// 503 with a reason if a fetcher has made none for minutes, or [Worker.Run] has returned. Workers survive an outage of
// the database, so Health still answers 200 during one. Health sends no statement.
func Health(workers ...*Worker) http.Handler { return probe(workers, (*Worker).unhealthy) }

// Ready returns a handler for readiness probes. The handler answers 200 while all workers claim: Run has checked the
// schema and the rights, the database has answered the last call within ten seconds or three polls, and the worker
// isn't draining. Otherwise the answer is 503 with the reason. Ready sends no statement and uses the results of the
// workers' own calls and polls. An operator's drain or pause doesn't change the answer.
func Ready(workers ...*Worker) http.Handler { return probe(workers, (*Worker).unready) }

// probe answers with the first reason against one of the workers.
func probe(workers []*Worker, against func(*Worker) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		for _, worker := range workers {
			if err := against(worker); err != nil {
				w.WriteHeader(http.StatusServiceUnavailable)
				_, _ = io.WriteString(w, err.Error()+"\n")
				return
			}
		}
		_, _ = io.WriteString(w, "ok\n")
	})
}

// signsOfLife has the notes of a run's loops for the probes, as times since its beginning.
type signsOfLife struct {
	turnedAt   atomic.Int64 // when the fetcher's loop last began anew
	answeredAt atomic.Int64 // when the database last answered; 0: not yet
	failing    atomic.Bool  // it has failed since then
	draining   atomic.Bool
}

// standstill is how long the fetcher may take for one turn. The calls in a turn have time limits of half a minute each.
const standstill = 3 * time.Minute

// unanswered is how long the database may take before a worker isn't ready, unless polls are rarer.
const unanswered = 10 * time.Second

// answered notes the database's answer to a call, or its failure.
func (r *run) answered(err error) {
	if err != nil && !errors.Is(err, fferr.ErrContention) && !errors.Is(err, fferr.ErrBusy) {
		r.life.failing.Store(true)
		return
	}
	r.life.answeredAt.Store(max(1, int64(time.Since(r.began))))
	r.life.failing.Store(false)
}

func (w *Worker) unhealthy() error {
	r := w.current.Load()
	switch {
	case r == nil && w.returned.Load():
		return errors.New("the worker has stopped")
	case r == nil || r.life.draining.Load():
		return nil
	}
	if still := time.Since(r.began) - time.Duration(r.life.turnedAt.Load()); still > standstill+r.cfg.PollInterval {
		return fmt.Errorf("the fetcher has stood still for %v", still.Round(time.Second))
	}
	return nil
}

func (w *Worker) unready() error {
	r := w.current.Load()
	switch {
	case r == nil && w.returned.Load():
		return errors.New("the worker has stopped")
	case r == nil:
		return errors.New("the worker has not started")
	case r.life.draining.Load():
		return errors.New("the worker is draining")
	case r.life.answeredAt.Load() == 0:
		return errors.New("the database has not answered yet")
	case r.life.failing.Load():
		return errors.New("the database refused the last call")
	}
	if since := time.Since(r.began) - time.Duration(r.life.answeredAt.Load()); since > max(unanswered, 3*r.cfg.PollInterval) {
		return fmt.Errorf("the database has not answered for %v", since.Round(time.Second))
	}
	return nil
}
