package notify

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// sends is a pool that records its statements; each takes a while.
type sends struct {
	takes time.Duration
	fail  error
	sent  [][]Notification
	at    []time.Time
}

//pace:allow it is called in bubbles alone
func (s *sends) Exec(_ context.Context, _ string, args ...any) (pgconn.CommandTag, error) {
	var all []Notification
	for i, channel := range args[0].([]string) {
		all = append(all, Notification{channel, args[1].([]string)[i]})
	}
	slices.SortFunc(all, func(a, b Notification) int { return strings.Compare(a.Channel+a.Payload, b.Channel+b.Payload) })
	s.sent, s.at = append(s.sent, all), append(s.at, time.Now())
	time.Sleep(s.takes)
	return pgconn.CommandTag{}, s.fail
}

func notifier(s *sends, log *slog.Logger) *Notifier {
	return NewNotifier(s, NewListener(nil, log), log)
}

func due(all ...Notification) *Set {
	var s Set
	for _, n := range all {
		s.Add(n.Channel, n.Payload)
	}
	return &s
}

func TestNotifierMergesNotifications(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sends{takes: 3 * time.Millisecond}
		n := notifier(s, slog.New(slog.DiscardHandler))
		n.Notify(&Set{})
		synctest.Wait()
		if len(s.sent) > 0 {
			t.Errorf("sent %v of nothing", s.sent)
		}
		start := time.Now()
		n.Notify(due(Notification{"a", "1"}, Notification{"a", "1"}))
		synctest.Wait() // the first goes at once
		n.Notify(due(Notification{"a", "1"}, Notification{"b", ""}))
		n.Notify(due(Notification{"a", "1"}, Notification{"a", "2"}))
		time.Sleep(time.Second)
		n.Notify(due(Notification{"c", ""}))
		time.Sleep(time.Second)
		synctest.Wait()
		want := [][]Notification{{{"a", "1"}}, {{"a", "1"}, {"a", "2"}, {"b", ""}}, {{"c", ""}}}
		if !slices.EqualFunc(s.sent, want, slices.Equal[[]Notification]) {
			t.Errorf("sent %v, want %v", s.sent, want)
		}
		for i, want := range []time.Duration{0, 13 * time.Millisecond, time.Second} {
			if got := s.at[i].Sub(start); got != want {
				t.Errorf("sent number %d after %v, want %v", i, got, want)
			}
		}
	})
}

// A notification that is wanted soon waits for twice as long as the last statement took, and at most as long as others.
func TestNotifierHurries(t *testing.T) {
	for _, c := range []struct{ takes, pause time.Duration }{
		{0, minInterval}, {time.Millisecond, 2 * time.Millisecond}, {time.Second, sendInterval},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &sends{takes: c.takes}
			n := notifier(s, slog.New(slog.DiscardHandler))
			var soon Set
			soon.AddSoon("stream", "")
			n.Notify(&soon)
			synctest.Wait() // the first goes at once
			n.Notify(due(Notification{"a", ""}))
			n.Notify(&soon)
			time.Sleep(time.Minute)
			n.Notify(due(Notification{"a", ""}))
			synctest.Wait()
			n.Notify(due(Notification{"b", ""})) // is not wanted soon
			time.Sleep(time.Minute)
			synctest.Wait()
			if len(s.sent) != 4 || len(s.sent[1]) != 2 || s.at[1].Sub(s.at[0]) != c.takes+c.pause || s.at[3].Sub(s.at[2]) != c.takes+sendInterval {
				t.Errorf("sent %v at %v, want the second %v later, and the last %v", s.sent, s.at, c.takes+c.pause, c.takes+sendInterval)
			}
		})
	}
}

func TestNotifierSurvivesAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		s := &sends{fail: errors.New("no server")}
		n := notifier(s, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
		for range 2 {
			n.Notify(due(Notification{"a", ""}))
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if len(s.sent) != 2 || strings.Count(log.String(), "no server") != 2 {
			t.Errorf("sent %v, logged %s", s.sent, log.String())
		}
	})
}

// Notify wakes the waiters of its process before it returns, even without a server.
func TestNotifierWakesItsOwnProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := notifier(&sends{takes: time.Hour}, slog.New(slog.DiscardHandler))
		w := listen(t, n.listener, "a")
		synctest.Wait()
		n.Notify(due(Notification{"a", "1"}, Notification{"b", "2"}))
		w.want(t, "1")
		w.end()
		n.Notify(due(Notification{"a", "3"}))
		w.want(t)
		time.Sleep(3 * time.Hour)
	})
}
