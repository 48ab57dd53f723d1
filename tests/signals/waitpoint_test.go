package signals

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/tracelog"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/id/wire"
	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/operator"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/waitpoint"
)

const decision = id.WaitpointKey("decision")

// open opens a waitpoint for the holder of a lease.
func open(t *testing.T, f *fixture.Fixture, l engine.Lease) engine.Waitpoint {
	t.Helper()
	w, err := f.Engine.CreateWaitpoint(t.Context(), engine.WaitpointSpec{Lease: l, Key: decision, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// sendBy sends a signal by a token, and returns its effect or its error.
func sendBy(t *testing.T, f *fixture.Fixture, w engine.Waitpoint, name string, change ...func(*engine.WaitpointSignal)) (engine.Signalled, error) {
	t.Helper()
	spec := engine.WaitpointSignal{SignalSpec: engine.SignalSpec{Execution: w.Execution, Name: name}, Waitpoint: w.ID, Token: w.Token}
	for _, with := range change {
		with(&spec)
	}
	return f.Engine.SignalWaitpoint(t.Context(), spec)
}

// A token works before its wait, during it, and not after it; a handler that runs again gets the same one.
func TestWaitpointOfAWait_S4_S5_S6(t *testing.T) {
	f := fixture.GrantFixture(t)
	l := f.Start(t).Lease
	w := open(t, f, l)
	again := open(t, f, l)
	if !w.Created || again.Created || again.ID != w.ID || again.Token != w.Token || !again.ExpiresAt.Equal(w.ExpiresAt) {
		t.Errorf("%+v, then %+v", w, again)
	}
	if got, err := sendBy(t, f, w, "noted"); err != nil || got.Effect != engine.SignalBuffered {
		t.Errorf("before the wait: %+v, %v", got, err)
	}
	// A rotation during the wait leaves the token alone for its grace, and the wait outlives the waitpoint's own time.
	if _, err := operator.RotateKey(t.Context(), f.Engine, "k2", wire.NewSecret(), 3*time.Hour); err != nil {
		t.Fatal(err)
	}
	f.SuspendAgain(t, l, engine.Received("approved").At(decision), func(s *engine.SuspendSpec) { s.Timeout = 3 * time.Hour })
	f.Advance(2 * time.Hour)
	fixture.Run(t, upkeep.Of(f.Engine).ExpireWaitpoints, 0)
	if got, err := sendBy(t, f, w, "rejected"); err != nil || got.Effect != engine.SignalAppended {
		t.Errorf("another name: %+v, %v", got, err)
	}
	if got, err := sendBy(t, f, w, "approved"); err != nil || got.Effect != engine.SignalSatisfied {
		t.Errorf("during the wait: %+v, %v", got, err)
	}
	if _, err := sendBy(t, f, w, "approved"); !errors.Is(err, fferr.ErrNotFound) {
		t.Errorf("after the wait: %v", err)
	}
	received, err := f.ReceivedSignals(t.Context(), l.Execution)
	if err != nil || len(received) != 3 || received[0].Name != "noted" || received[0].Key != decision || !received[2].Matched || received[1].Matched {
		t.Errorf("%+v, %v", received, err)
	}
}

// Every wrong token has the same error, whether its execution exists or not, and changes nothing.
func TestWrongTokens_S33(t *testing.T) {
	f := fixture.GrantFixture(t)
	l := f.Start(t).Lease
	w := open(t, f, l)
	f.SuspendAgain(t, l, engine.Received("approved").At(decision))
	other := open(t, f, f.Start(t).Lease)
	text := w.Token.Reveal()
	retired := func() engine.Waitpoint {
		old := open(t, f, f.Start(t).Lease)
		return old
	}()
	before := f.Dump(t, l.Execution)
	var reasons []string
	for name, change := range map[string]func(*engine.WaitpointSignal){
		"none":                      func(s *engine.WaitpointSignal) { s.Token = "" },
		"no kid":                    func(s *engine.WaitpointSignal) { s.Token = wire.WaitpointToken(strings.TrimPrefix(text, "k1")) },
		"no digest":                 func(s *engine.WaitpointSignal) { s.Token = "k1:" },
		"another digest":            func(s *engine.WaitpointSignal) { s.Token = wire.WaitpointToken("k1:" + strings.Repeat("0", 64)) },
		"a shorter one":             func(s *engine.WaitpointSignal) { s.Token = wire.WaitpointToken(text[:len(text)-1]) },
		"a longer one":              func(s *engine.WaitpointSignal) { s.Token = wire.WaitpointToken(text + "0") },
		"upper case":                func(s *engine.WaitpointSignal) { s.Token = wire.WaitpointToken("k1:" + strings.ToUpper(text[3:])) },
		"an unknown key":            func(s *engine.WaitpointSignal) { s.Token = wire.WaitpointToken("k9" + text[2:]) },
		"a key that is none":        func(s *engine.WaitpointSignal) { s.Token = wire.WaitpointToken("k\x00 1" + text[2:]) },
		"of another waitpoint":      func(s *engine.WaitpointSignal) { s.Token = other.Token },
		"for another execution":     func(s *engine.WaitpointSignal) { s.Execution = other.Execution },
		"for another waitpoint":     func(s *engine.WaitpointSignal) { s.Waitpoint = other.ID },
		"for an unknown execution":  func(s *engine.WaitpointSignal) { s.Execution = f.NewExecutionID(l.Lane) },
		"for an unknown waitpoint":  func(s *engine.WaitpointSignal) { s.Waitpoint = id.NewWaitpointID() },
		"for both, and both exist":  func(s *engine.WaitpointSignal) { s.Execution, s.Waitpoint = retired.Execution, retired.ID },
		"with spaces around":        func(s *engine.WaitpointSignal) { s.Token = wire.WaitpointToken(" " + text) },
		"a token that is too large": func(s *engine.WaitpointSignal) { s.Token = wire.WaitpointToken("k1:" + strings.Repeat("a", 1<<20)) },
	} {
		_, err := sendBy(t, f, w, "approved", change)
		if !errors.Is(err, fferr.ErrInvalidToken) {
			t.Errorf("%s: %v", name, err)
		} else {
			reasons = append(reasons, err.Error())
		}
	}
	for _, reason := range reasons {
		if reason != reasons[0] || strings.Contains(reason, text[3:]) {
			t.Errorf("%q is not %q", reason, reasons[0])
		}
	}
	f.WantUnchanged(t, l.Execution, before)
	// A rotation without grace ends all tokens in the call.
	if _, err := operator.RotateKey(t.Context(), f.Engine, "k2", wire.NewSecret(), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := sendBy(t, f, w, "approved"); !errors.Is(err, fferr.ErrInvalidToken) || err.Error() != reasons[0] {
		t.Errorf("after the rotation: %v", err)
	}
}

// Waitpoints at which nothing waits end with their time, or when their holder closes them.
func TestWaitpointsEnd_S27_S28(t *testing.T) {
	f := fixture.GrantFixture(t)
	l := f.Start(t, func(s *engine.ExecutionSpec) {}).Lease
	w := open(t, f, l)
	if err := f.Engine.CloseWaitpoint(t.Context(), l, w.ID); err != nil {
		t.Fatal(err)
	}
	if err := f.Engine.CloseWaitpoint(t.Context(), l, w.ID); err != nil {
		t.Errorf("closed twice: %v", err)
	}
	if _, err := sendBy(t, f, w, "approved"); !errors.Is(err, fferr.ErrNotFound) {
		t.Errorf("closed: %v", err)
	}
	next := open(t, f, l)
	if next.ID == w.ID || next.Token == w.Token {
		t.Error("an id is used again")
	}
	f.Advance(time.Hour)
	if _, err := sendBy(t, f, next, "approved"); !errors.Is(err, fferr.ErrWaitpointClosed) {
		t.Errorf("expired: %v", err)
	}
	fixture.Run(t, upkeep.Of(f.Engine).ExpireWaitpoints, 1)
	if n := rows(t, f, "ff_waitpoint_pending"); n != 0 {
		t.Errorf("%d are left", n)
	}
}

func TestListWaitpoints(t *testing.T) {
	f := fixture.GrantFixture(t)
	l := f.Start(t).Lease
	var tokens []string
	var second engine.Waitpoint
	for _, key := range []id.WaitpointKey{"a", "b", "c"} {
		w, err := f.Engine.CreateWaitpoint(t.Context(), engine.WaitpointSpec{Lease: l, Key: key, TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, w.Token.Reveal())
		if key == "b" {
			second = w
		}
	}
	if _, err := sendBy(t, f, second, "noted"); err != nil {
		t.Fatal(err)
	}
	var keys []string
	after := ""
	for {
		page, err := f.Engine.ListWaitpoints(t.Context(), l.Execution, after, 2)
		if err != nil {
			t.Fatal(err)
		}
		for i, w := range page.Items {
			keys = append(keys, fmt.Sprint(w.Key, w.Active, w.Buffered, w.Kid, len(w.Fingerprint)))
			if strings.Contains(fmt.Sprintf("%+v", w), tokens[i][3:]) {
				t.Error("a token is listed")
			}
		}
		if after = page.Next; after == "" {
			break
		}
	}
	if got := strings.Join(keys, " "); got != "afalse 0k116 bfalse 1k116 cfalse 0k116" {
		t.Error(got)
	}
	for field, spec := range map[string]engine.WaitpointSpec{
		"key": {Lease: l, TTL: time.Hour}, "key ": {Lease: l, Key: "__timeout__", TTL: time.Hour}, "ttl": {Lease: l, Key: "k"},
	} {
		_, err := f.Engine.CreateWaitpoint(t.Context(), spec)
		fixture.WantInputError(t, err, strings.TrimSpace(field))
	}
}

// A link shows a page that changes nothing, takes one decision, and answers its repetition the same.
func TestWaitpointHandler(t *testing.T) {
	f := fixture.GrantFixture(t)
	logged := new(fixture.LockedBuffer)
	pool := fixture.OpenPool(t, f.Url, func(cfg *pgxpool.Config) {
		cfg.ConnConfig.Tracer = &tracelog.TraceLog{LogLevel: tracelog.LogLevelTrace, Logger: tracelog.LoggerFunc(
			func(_ context.Context, _ tracelog.LogLevel, msg string, data map[string]any) {
				fmt.Fprintf(logged, "%s %+v\n", msg, data)
			})}
	})
	eng := f.EngineOn(t, pool, engine.Config{Log: slog.New(slog.NewTextHandler(logged, nil))})
	l := f.Start(t).Lease
	w, err := eng.CreateWaitpoint(t.Context(), engine.WaitpointSpec{Lease: l, Key: decision, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := eng.Suspend(t.Context(), engine.SuspendSpec{
		Lease: l, Condition: engine.AnyOf(engine.Received("approved").At(decision), engine.Received("rejected").At(decision)),
	}); err != nil {
		t.Fatal(err)
	}
	failures := 0
	allowed := true
	mux := http.NewServeMux()
	mux.Handle("/waitpoints/", http.StripPrefix("/waitpoints/", waitpoint.Handler(eng, waitpoint.Config{
		Actions: []waitpoint.Action{{Signal: "approved", Label: "Approve <it>"}, {Signal: "rejected"}},
		Failed:  func(*http.Request) { failures++ },
		Allow:   func(*http.Request) bool { return allowed },
		MaxBody: 1000,
	})))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	link := waitpoint.Link(server.URL+"/waitpoints/", w)
	do := func(method, link, kind, body string) (int, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, link, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", kind)
		response, err := server.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		if response.Header.Get("Referrer-Policy") != "no-referrer" || response.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %v", method, response.Header)
		}
		return response.StatusCode, string(text)
	}
	const form = "application/x-www-form-urlencoded"
	before := f.Dump(t, l.Execution)
	for _, method := range []string{"GET", "HEAD"} {
		if code, body := do(method, link, "", ""); code != 200 || method == "GET" && !strings.Contains(body, "Approve &lt;it&gt;") {
			t.Errorf("%s: %d %s", method, code, body)
		}
	}
	wrong := link[:len(link)-4] + "0000"
	elsewhere := server.URL + "/waitpoints/" + url.PathEscape(f.NewExecutionID(l.Lane).String()) + "/" + w.ID.String() + link[strings.Index(link, "?"):]
	var answers []string
	for _, bad := range []string{wrong, elsewhere, server.URL + "/waitpoints/", server.URL + "/waitpoints/a/b?token=c", link[:strings.Index(link, "?")]} {
		for _, method := range []string{"GET", "POST"} {
			code, body := do(method, bad, form, "signal=approved")
			answers = append(answers, fmt.Sprint(code, body))
		}
	}
	for _, answer := range answers {
		if answer != answers[0] || !strings.HasPrefix(answer, "404") {
			t.Errorf("%q is not %q", answer, answers[0])
		}
	}
	if failures != len(answers) {
		t.Errorf("%d failures of %d", failures, len(answers))
	}
	for body, want := range map[string]int{"signal=other": 400, "": 400, "signal=approved&note=" + strings.Repeat("n", 1000): 413} {
		if code, _ := do("POST", link, form, body); code != want {
			t.Errorf("%.20q: %d, want %d", body, code, want)
		}
	}
	if code, _ := do("POST", link, "text/plain", "signal=approved"); code != 400 {
		t.Error(code)
	}
	if code, _ := do("DELETE", link, "", ""); code != 405 {
		t.Error(code)
	}
	allowed = false
	if code, _ := do("GET", link, "", ""); code != 429 {
		t.Error(code)
	}
	allowed = true
	f.WantUnchanged(t, l.Execution, before)

	for range 2 {
		if code, body := do("POST", link, form, "signal=approved&note=fine"); code != 200 || !strings.Contains(body, "approved") {
			t.Errorf("%d %s", code, body)
		}
	}
	if code, body := do("POST", link, "application/json", `{"signal": "approved"}`); code != 200 || !strings.Contains(body, `"decided":"approved"`) {
		t.Errorf("%d %s", code, body)
	}
	if code, _ := do("POST", link, form, "signal=rejected"); code != 409 {
		t.Errorf("another decision: %d", code)
	}
	f.WantState(t, l.Execution, fixture.StateResumable)
	received, err := f.ReceivedSignals(t.Context(), l.Execution)
	if err != nil || len(received) != 1 || string(received[0].Payload) != `{"note":"fine"}` || received[0].SourceType != "link" {
		t.Errorf("%+v, %v", received, err)
	}
	digest := w.Token.Reveal()[3:]
	if !strings.Contains(logged.String(), "DeliverSignal") || strings.Contains(logged.String(), digest) || strings.Contains(fmt.Sprintf("%v %+v %#v %s %q", w, w, w.Token, w.Token, w.Token), digest) {
		t.Error("the token is in a log")
	}
}

// Any text presented as a token is refused without an error of its own.
func FuzzWaitpointTokens(fuzz *testing.F) {
	for _, seed := range []string{"", ":", "k1:", "k1:" + strings.Repeat("0", 64), "\x00", "k1:\xff"} {
		fuzz.Add(seed)
	}
	x := id.NewExecutionID("lane", id.Partitions{})
	waitpointID := id.NewWaitpointID()
	fuzz.Fuzz(func(t *testing.T, text string) {
		eng, err := engine.New(pgtest.Pool(t), engine.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if err := eng.VerifyWaitpoint(t.Context(), x, waitpointID, wire.WaitpointToken(text)); !errors.Is(err, fferr.ErrInvalidToken) {
			t.Errorf("%q: %v", text, err)
		}
	})
}
