package streams

import (
	"bufio"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/stream"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// Hidden frames are no silence: heartbeats go on, and carry the position behind them, so that a client that reconnects does not
// begin before them again. They dispatch no event.
func TestServedStreamHasHeartbeatsWhileFramesAreHidden(t *testing.T) {
	f := fixture.New(t)
	work := f.Start(t)
	shows := make(chan string, 1000)
	s := serve(t, f, work.ID, func(cfg *stream.Config) {
		cfg.Heartbeat = 10 * time.Millisecond
		cfg.Show = func(f *stream.Entry) bool {
			shows <- string(f.Payload)
			return f.Type == "token"
		}
	})
	appendTo(t, f.Engine, work.Lease, texts("hidden", "hidden too")...)
	behind := read(t, f.Engine, work.ID).Frames[1].Position().String()
	lines := bufio.NewScanner(s.open(t, "").Body)
	for lines.Scan() && lines.Text() != "id: "+behind {
		if name, _, _ := strings.Cut(lines.Text(), ":"); name == "data" {
			t.Fatalf("served %q", lines.Text())
		}
	}
	if rest := []bool{lines.Scan(), lines.Text() == "", lines.Scan(), lines.Text() == ":"}; slices.Contains(rest, false) {
		t.Fatalf("behind the position the stream goes on with %q", lines.Text())
	}
	s.CloseClientConnections()
	fixture.Received(t, shows)
	fixture.Received(t, shows)
	write(t, f, work.Lease, "shown")
	finish(t, f, work.Lease)
	events := readEvents(s.open(t, behind).Body).all()
	if got := textsOf(t, events); !slices.Equal(got, []string{"0 token shown", "end 0 attempt_success"}) {
		t.Errorf("served %q", got)
	}
	if first := fixture.Received(t, shows); first != "shown" {
		t.Errorf("behind %q the stream begins with %q", behind, first)
	}
}

// Trimmed frames before a hidden one count for the next event.
func TestServedStreamCountsTrimmedFramesBeforeHiddenOnes(t *testing.T) {
	f := fixture.New(t)
	work := f.Start(t)
	frames := texts("trimmed", "hidden", "trimmed", "shown", "trimmed", "hidden")
	for i := range frames {
		frames[i].Mode, frames[i].Type = stream.BestEffort, string(frames[i].Payload)
	}
	appendTo(t, f.Engine, work.Lease, frames...)
	finish(t, f, work.Lease)
	f.Exec(t, `DELETE FROM ff_stream_frame WHERE partition_key = $1 AND execution_id = $2 AND ffx_number IN (1, 3, 5)`, work.ID.Partition(), work.ID.UUID())
	s := serve(t, f, work.ID, func(cfg *stream.Config) {
		cfg.Show = func(f *stream.Entry) bool { return f.Type == "shown" }
	})
	var trimmed []string
	for _, e := range readEvents(s.open(t, "").Body).all() {
		_, count, _ := strings.Cut(e.data, `"trimmed":`)
		trimmed = append(trimmed, e.name+" "+count[:min(1, len(count))])
	}
	if !slices.Equal(trimmed, []string{" 2", "end 1"}) {
		t.Errorf("trimmed frames: %q", trimmed)
	}
}

// A connection ends after a while, so that the client is authorized again. It continues where it was, also behind hidden frames.
func TestServedStreamAuthorizesAgain(t *testing.T) {
	f := fixture.New(t)
	work := f.Start(t)
	var refused atomic.Bool
	var log fixture.LockedBuffer
	s := serve(t, f, work.ID, func(cfg *stream.Config) {
		cfg.MaxAge, cfg.Log = 20*time.Millisecond, textLog(&log)
		cfg.Show = func(f *stream.Entry) bool { return f.Type == "token" }
		cfg.Authorize = func(*http.Request) (id.ExecutionID, error) {
			if refused.Load() {
				return id.ExecutionID{}, stream.ErrForbidden
			}
			return work.ID, nil
		}
	})
	write(t, f, work.Lease, "a")
	after := ""
	for position := regexp.MustCompile(`(?m)^id: (.*)$`); after == ""; {
		document, err := io.ReadAll(s.open(t, "").Body) // the server ends it
		if err != nil {
			t.Fatal(err)
		}
		if found := position.FindSubmatch(document); found != nil {
			after = string(found[1])
		}
	}
	write(t, f, work.Lease, "b")
	for {
		events := readEvents(s.open(t, after).Body).all()
		if len(events) > 0 {
			if e := events[0].text(t); len(events) != 1 || e != "0 token b" {
				t.Fatalf("served %q", textsOf(t, events))
			}
			break
		}
	}
	refused.Store(true)
	if answer := s.open(t, after); answer.StatusCode != http.StatusForbidden {
		t.Error(answer.Status)
	}
	if strings.Contains(log.String(), "WARN") {
		t.Errorf("logged %q", &log)
	}
}

// Heartbeats come at their time also while hidden frames arrive, each of them sooner than a heartbeat.
func TestServedStreamHasHeartbeatsWhileHiddenFramesArrive(t *testing.T) {
	f := fixture.New(t)
	work := f.Start(t)
	var stop atomic.Bool
	s := serve(t, f, work.ID, func(cfg *stream.Config) {
		cfg.Heartbeat = 300 * time.Millisecond
		cfg.Show = func(*stream.Entry) bool {
			if !stop.Load() {
				_, _ = stream.Append(t.Context(), f.Engine, work.Lease, texts("hidden")) // refused once the test has ended the execution
			}
			return false
		}
	})
	appendTo(t, f.Engine, work.Lease, texts("hidden")...)
	lines := bufio.NewScanner(s.open(t, "").Body)
	for beats := 0; beats < 3 && lines.Scan(); {
		if strings.HasPrefix(lines.Text(), ":") || strings.HasPrefix(lines.Text(), "id: ") {
			beats++
		}
	}
	stop.Store(true)
	finish(t, f, work.Lease)
	for lines.Scan() {
		if lines.Text() == "event: end" {
			return
		}
	}
	t.Error("the stream has no end")
}
