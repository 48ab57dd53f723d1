package streams

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/stream"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// served is a server of the output of one execution.
type served struct {
	*fixture.Fixture
	*httptest.Server
	x    id.ExecutionID
	left chan struct{} // receives when the handler returns
}

func serve(t *testing.T, f *fixture.Fixture, x id.ExecutionID, change ...func(*stream.Config)) *served {
	t.Helper()
	s := newServed(t, f, x, change...)
	s.Server.Start()
	return s
}

// newServed returns a server that has not started.
func newServed(t *testing.T, f *fixture.Fixture, x id.ExecutionID, change ...func(*stream.Config)) *served {
	t.Helper()
	cfg := stream.Config{
		Authorize: func(*http.Request) (id.ExecutionID, error) { return x, nil },
		Reconnect: time.Millisecond,
	}
	for _, with := range change {
		with(&cfg)
	}
	output, err := stream.Handler(f.Engine, cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := &served{Fixture: f, x: x, left: make(chan struct{}, 1000)}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { s.left <- struct{}{} }()
		output.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// open opens the stream after a position.
func (s *served) open(t *testing.T, after string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	if after != "" {
		r.Header.Set("Last-Event-ID", after)
	}
	answer, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = answer.Body.Close() })
	return answer
}

// event is a received event.
type event struct{ name, id, data string }

// text returns the event without what differs between runs of a test.
func (e event) text(t *testing.T) string {
	t.Helper()
	var data struct {
		Attempt int
		Type    string
		Data    *string
		Base64  []byte
		Frames  int
		Reason  string
	}
	if err := json.Unmarshal([]byte(e.data), &data); err != nil {
		t.Fatalf("%s: %v", e.data, err)
	}
	switch {
	case e.name != "":
		return fmt.Sprint(e.name, " ", data.Attempt, " ", data.Reason)
	case data.Data != nil:
		return fmt.Sprint(data.Attempt, " ", data.Type, " ", *data.Data)
	default:
		return fmt.Sprint(data.Attempt, " ", data.Type, " ", data.Base64)
	}
}

// reader reads events, as a browser does.
type reader struct {
	lines    *bufio.Scanner
	comments int
}

func readEvents(body io.Reader) *reader {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	return &reader{lines: lines}
}

// next returns the next whole event; ok is false at the end of the connection.
func (r *reader) next() (e event, ok bool) {
	for r.lines.Scan() {
		name, value, _ := strings.Cut(r.lines.Text(), ": ")
		switch name {
		case "id":
			e.id = value
		case "event":
			e.name = value
		case "data":
			e.data = value
		case ":":
			r.comments++
		case "":
			if e.data != "" {
				return e, true
			}
		}
	}
	return event{}, false
}

// all returns the events up to the end of the connection.
func (r *reader) all() (events []event) {
	for e, ok := r.next(); ok; e, ok = r.next() {
		events = append(events, e)
	}
	return events
}

func textsOf(t *testing.T, events []event) []string {
	t.Helper()
	all := make([]string, len(events))
	for i, e := range events {
		all[i] = e.text(t)
	}
	return all
}

func write(t *testing.T, f *fixture.Fixture, l engine.Lease, payloads ...string) {
	t.Helper()
	for _, payload := range payloads {
		if _, err := stream.Append(t.Context(), f.Engine, l, []stream.FrameSpec{{Payload: []byte(payload), Type: "token"}}); err != nil {
			t.Fatal(err)
		}
	}
}

func finish(t *testing.T, f *fixture.Fixture, l engine.Lease) {
	t.Helper()
	if err := f.CompleteExecution(t.Context(), l, nil); err != nil {
		t.Fatal(err)
	}
}

// twoAttempts has output of a failed attempt and of one that succeeds.
func twoAttempts(t *testing.T, f *fixture.Fixture) id.ExecutionID {
	t.Helper()
	work := f.Start(t)
	write(t, f, work.Lease, "a", "line\nbreak", "\xff\x00")
	f.RetryAtOnce(t, work.ID)
	f.Fail(t, work.Lease, engine.Failure{})
	again := f.ClaimOne(t)
	write(t, f, again.Lease, "<b>", "")
	finish(t, f, again.Lease)
	return work.ID
}

var twoAttemptsServed = []string{
	"0 token a", "0 token line\nbreak", "0 token [255 0]", "attempt 0 attempt_failure", "1 token <b>", "1 token ", "end 1 attempt_success",
}

// A connection that breaks behind any event continues with the next one, and ends with 204.
func TestServedStreamResumesBehindEachEvent(t *testing.T) {
	f := fixture.New(t)
	s := serve(t, f, twoAttempts(t, f))
	whole := readEvents(s.open(t, "").Body).all()
	if got := textsOf(t, whole); !slices.Equal(got, twoAttemptsServed) {
		t.Fatalf("served %q", got)
	}
	for i, e := range whole {
		for _, way := range []string{"Last-Event-ID", "after"} {
			answer := s.open(t, e.id)
			if way == "after" {
				var err error
				if answer, err = s.Client().Get(s.URL + "?after=" + e.id); err != nil {
					t.Fatal(err)
				}
			}
			rest := readEvents(answer.Body).all()
			_ = answer.Body.Close()
			if !slices.Equal(rest, whole[i+1:]) {
				t.Errorf("%s behind %q: %q", way, e.text(t), textsOf(t, rest))
			}
			if want := i == len(whole)-1; want != (answer.StatusCode == http.StatusNoContent) {
				t.Errorf("%s behind %q: %s", way, e.text(t), answer.Status)
			}
		}
	}
}

// A stream that a client has open gets frames as they are written, and the end. Without a further attempt the end has no
// reason.
func TestServedStreamFollows(t *testing.T) {
	f := fixture.New(t)
	work := f.Start(t)
	s := serve(t, f, work.ID)
	answer := s.open(t, "")
	if got := answer.Header.Get("Content-Type") + ", " + answer.Header.Get("Cache-Control") + ", " + answer.Header.Get("X-Accel-Buffering"); got != "text/event-stream, no-store, no-transform, no" {
		t.Error(got)
	}
	events := readEvents(answer.Body)
	for _, token := range []string{"a", "b"} {
		write(t, f, work.Lease, token)
		if e, _ := events.next(); e.text(t) != "0 token "+token {
			t.Errorf("served %q", e.text(t))
		}
	}
	f.SetExecution(t, work.ID, `policy = '{"retry_policy":{"max_retries":3,"backoff":{"type":"fixed","delay_ms":60000}}}'`)
	f.Fail(t, work.Lease, engine.Failure{})
	if e, _ := events.next(); e.text(t) != "attempt 0 attempt_failure" {
		t.Errorf("served %q", e.text(t))
	}
	f.Cancel(t, work.ID)
	rest := events.all()
	if got := textsOf(t, rest); !slices.Equal(got, []string{"end 0 "}) {
		t.Fatalf("served %q", got)
	}
	if answer := s.open(t, rest[0].id); answer.StatusCode != http.StatusNoContent {
		t.Error(answer.Status)
	}
	fixture.Received(t, s.left)
}

// An execution that ended without any attempt has an end, and 204 behind it.
func TestServedStreamWithoutAttempts(t *testing.T) {
	f := fixture.New(t)
	x := f.Create(t)
	f.Cancel(t, x)
	s := serve(t, f, x)
	events := readEvents(s.open(t, "").Body).all()
	if len(events) != 1 || events[0].name != "end" {
		t.Fatalf("served %+v", events)
	}
	if answer := s.open(t, events[0].id); answer.StatusCode != http.StatusNoContent {
		t.Error(answer.Status)
	}
}

// Heartbeats keep a silent stream open, and change nothing.
func TestServedStreamHasHeartbeats(t *testing.T) {
	f := fixture.New(t)
	work := f.Start(t)
	s := serve(t, f, work.ID, func(cfg *stream.Config) { cfg.Heartbeat = time.Millisecond })
	answer := s.open(t, "")
	lines := bufio.NewScanner(answer.Body)
	for beats := 0; beats < 5 && lines.Scan(); {
		if lines.Text() == ":" {
			beats++
		}
	}
	write(t, f, work.Lease, "a")
	finish(t, f, work.Lease)
	var data []string
	for lines.Scan() {
		if name, _, _ := strings.Cut(lines.Text(), ":"); name == "data" || name == "event" {
			data = append(data, lines.Text())
		}
	}
	if len(data) != 3 || !strings.Contains(data[0], `"data":"a"`) || data[1] != "event: end" {
		t.Errorf("served %q", data)
	}
}

// The client that leaves ends its tail and its handler.
func TestServedStreamOfAClientThatLeaves(t *testing.T) {
	f := fixture.New(t)
	s := serve(t, f, f.Start(t).ID)
	answer := s.open(t, "")
	_ = answer.Body.Close()
	fixture.Received(t, s.left) // follow waits for its tail
}

// A page gets only the frames that it may see.
func TestServedStreamShowsAllowedFrames(t *testing.T) {
	f := fixture.New(t)
	work := f.Start(t)
	frames := []stream.FrameSpec{
		{Payload: []byte("a"), Type: "token"},
		{Payload: []byte("secret"), Type: stream.Log},
		{Payload: []byte("b"), Type: "token", Correlation: "c"},
		{Payload: []byte("c"), Type: "token", Mode: stream.BestEffort},
	}
	if _, err := stream.Append(t.Context(), f.Engine, work.Lease, frames); err != nil {
		t.Fatal(err)
	}
	finish(t, f, work.Lease)
	s := serve(t, f, work.ID, func(cfg *stream.Config) {
		cfg.Show = func(f *stream.Entry) bool { return f.Type == "token" && f.Mode == stream.Durable }
	})
	events := readEvents(s.open(t, "").Body).all()
	if got, want := textsOf(t, events), []string{"0 token a", "0 token b", "end 0 attempt_success"}; !slices.Equal(got, want) {
		t.Errorf("served %q", got)
	}
	want := fmt.Sprintf(`{"attempt":0,"epoch":%d,"type":"token","mode":"durable","at":%d,"correlation":"c","data":"b"}`, work.Lease.Epoch, f.Time().UnixMilli())
	if len(events) == 3 && events[1].data != want {
		t.Errorf("got %s\nwant %s", events[1].data, want)
	}
}

// Lost durable frames are an event, and the stream goes on.
func TestServedStreamHasGaps(t *testing.T) {
	f := fixture.New(t)
	work := f.Start(t)
	write(t, f, work.Lease, "a", "b", "c", "d")
	finish(t, f, work.Lease)
	f.Exec(t, `DELETE FROM ff_stream_frame WHERE partition_key = $1 AND execution_id = $2 AND ffx_number IN (2, 3)`, work.ID.Partition(), work.ID.UUID())
	events := readEvents(serve(t, f, work.ID).open(t, "").Body).all()
	if got, want := textsOf(t, events), []string{"0 token a", "gap 0 ", "0 token d", "end 0 attempt_success"}; !slices.Equal(got, want) {
		t.Fatalf("served %q", got)
	}
	if events[1].data != `{"attempt":0,"frames":2}` || events[1].id != "" {
		t.Errorf("served %+v", events[1])
	}
}

// Strangers learn nothing: an execution of another user looks like one that does not exist.
func TestServedStreamRefusals(t *testing.T) {
	f := fixture.New(t)
	running := f.Start(t).ID
	ask := func(method, target string, x id.ExecutionID, refusal error) *httptest.ResponseRecorder {
		output, err := stream.Handler(f.Engine, stream.Config{Authorize: func(*http.Request) (id.ExecutionID, error) { return x, refusal }})
		if err != nil {
			t.Fatal(err)
		}
		answer := httptest.NewRecorder()
		output.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), method, target, nil))
		return answer
	}
	unknown := ask("GET", "/", f.NewExecutionID(f.Lane), nil)
	for _, c := range []struct {
		name, method, target string
		x                    id.ExecutionID
		refusal              error
		code                 int
	}{
		{"not logged in", "GET", "/", running, fmt.Errorf("no cookie: %w", stream.ErrUnauthorized), 401},
		{"not permitted", "GET", "/", running, stream.ErrForbidden, 403},
		{"of another user", "GET", "/", running, errors.New("of another user"), 404},
		{"no execution", "GET", "/", id.ExecutionID{}, nil, 404},
		{"a malformed position", "GET", "/?after=1.2", running, nil, 400},
		{"a write", "POST", "/", running, nil, 405},
		{"only the header", "HEAD", "/", running, nil, 200},
	} {
		answer := ask(c.method, c.target, c.x, c.refusal)
		if answer.Code != c.code {
			t.Errorf("%s: %d", c.name, answer.Code)
		}
		got, want := fmt.Sprint(answer.Header(), answer.Body), fmt.Sprint(unknown.Header(), unknown.Body)
		if c.code == 404 && got != want {
			t.Errorf("%s: %s, want %s", c.name, got, want)
		}
	}
}

// A failure of the database is an event, after which browsers reconnect.
func TestServedStreamIsInterrupted(t *testing.T) {
	f := fixture.New(t)
	work := f.Start(t)
	pool := fixture.OpenPool(t, f.Url, nil)
	pool.Close()
	var log fixture.LockedBuffer
	cut := &fixture.Fixture{Engine: f.EngineOn(t, pool, engine.Config{})}
	s := serve(t, cut, work.ID, func(cfg *stream.Config) { cfg.Log = textLog(&log) })
	answer := s.open(t, "")
	events := readEvents(answer.Body).all()
	if answer.StatusCode != http.StatusOK || len(events) != 1 || events[0] != (event{name: "interrupted", data: "{}"}) {
		t.Errorf("%s: %+v", answer.Status, events)
	}
	fixture.Received(t, s.left)
	if !strings.Contains(log.String(), "stream: interrupted") {
		t.Errorf("logged %q", &log)
	}
}

// Handler refuses a configuration that can't work.
func TestStreamHandlerConfig(t *testing.T) {
	f := fixture.New(t)
	authorize := func(*http.Request) (id.ExecutionID, error) { return id.ExecutionID{}, nil }
	for _, cfg := range []stream.Config{
		{},
		{Authorize: authorize, Heartbeat: -1},
		{Authorize: authorize, WriteTimeout: -1},
		{Authorize: authorize, Reconnect: -1},
		{Authorize: authorize, MaxAge: -1},
	} {
		if _, err := stream.Handler(f.Engine, cfg); !errors.Is(err, fferr.ErrInvalidInput) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
	tx, err := f.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	if _, err := stream.Handler(f.WithTx(tx), stream.Config{Authorize: authorize}); !errors.Is(err, fferr.ErrInvalidInput) {
		t.Errorf("in a transaction: %v", err)
	}
}
