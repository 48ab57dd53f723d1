package signals

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/id"
	"github.com/flowfabric/flowfabric-go/internal/upkeep"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/waitpoint"
)

const (
	formType = "application/x-www-form-urlencoded"
	jsonType = "application/json"
)

// linked is a handler of links, with the link of a wait for a decision.
type linked struct {
	*fixture.Fixture
	http.Handler
	execution id.ExecutionID
	w         engine.Waitpoint
	path      string // of the link
	query     string
}

func newLinked(t *testing.T, change ...func(*waitpoint.Config)) *linked {
	t.Helper()
	f := fixture.GrantFixture(t)
	l := f.Start(t).Lease
	w := open(t, f, l)
	f.SuspendAgain(t, l, engine.AnyOf(engine.Received("approved").At(decision), engine.Received("rejected").At(decision)),
		func(s *engine.SuspendSpec) { s.Timeout = 0 })
	cfg := waitpoint.Config{Actions: []waitpoint.Action{{Signal: "approved"}, {Signal: "rejected"}}}
	for _, with := range change {
		with(&cfg)
	}
	path, query, _ := strings.Cut(waitpoint.Link("/w/", w), "?")
	return &linked{f, http.StripPrefix("/w/", waitpoint.Handler(f.Engine, cfg)), l.Execution, w, path, query}
}

// ask sends a request and returns the answer.
func (l *linked) ask(t *testing.T, method, target, kind string, body io.Reader) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, body)
	r.Header.Set("Content-Type", kind)
	answer := httptest.NewRecorder()
	l.ServeHTTP(answer, r)
	return answer
}

// unread is a body that must not be read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("a stranger's body is read")
	return 0, io.EOF
}

// Strangers get one answer, to the last header, and nothing of their body is read.
func TestStrangersGetOneAnswer(t *testing.T) {
	l := newLinked(t)
	other := open(t, l.Fixture, l.Start(t).Lease)
	ended := l.Start(t).Lease
	closed := open(t, l.Fixture, ended)
	if err := l.CompleteExecution(t.Context(), ended, nil); err != nil {
		t.Fatal(err)
	}
	at := func(x id.ExecutionID, w id.WaitpointID) string {
		return "/w/" + url.PathEscape(x.String()) + "/" + w.String()
	}
	wrong := "token=k1%3A" + strings.Repeat("0", 64)
	answers := make(map[string][]string)
	for name, target := range map[string]string{
		"no token":                      l.path,
		"an empty token":                l.path + "?token=",
		"a forged token":                l.path + "?" + wrong,
		"an unknown key":                l.path + "?token=k9" + strings.TrimPrefix(l.query, "token=k1"),
		"the token twice":               l.path + "?" + l.query + "&" + l.query,
		"another token first":           l.path + "?" + wrong + "&" + l.query,
		"a token in another case":       l.path + "?" + strings.ToUpper(l.query[len("token="):]),
		"an unknown execution":          at(l.NewExecutionID(l.Lane), l.w.ID) + "?" + l.query,
		"an unknown waitpoint":          at(l.execution, id.NewWaitpointID()) + "?" + l.query,
		"another waitpoint":             at(other.Execution, other.ID) + "?" + l.query,
		"a waitpoint of an ended one":   at(closed.Execution, closed.ID) + "?" + wrong,
		"no waitpoint":                  at(l.execution, l.w.ID)[:10] + "?" + l.query,
		"a path that goes on":           l.path + "/more?" + l.query,
		"no ids":                        "/w/a/b?" + l.query,
		"nothing":                       "/w/",
		"a query that can't be decoded": l.path + "?token=%zz",
		"a token behind a semicolon":    l.path + "?a=b;" + l.query,
	} {
		for _, method := range []string{"GET", "POST"} {
			answer := l.ask(t, method, target, formType, unread{t})
			text := fmt.Sprint(answer.Code, answer.Body, answer.Header())
			answers[text] = append(answers[text], method+" with "+name)
			if answer.Code != http.StatusNotFound {
				t.Errorf("%s with %s: %d", method, name, answer.Code)
			}
		}
	}
	if len(answers) != 1 {
		t.Errorf("%d answers: %v", len(answers), answers)
	}
}

// A decision that can be read in two ways, or is too large, is none.
func TestDecisionsAreReadInOneWay(t *testing.T) {
	l := newLinked(t, func(cfg *waitpoint.Config) { cfg.MaxBody = 500 })
	before := l.Dump(t, l.execution)
	for name, c := range map[string]struct {
		kind, body string
		want       int
	}{
		"two decisions":             {formType, "signal=approved&signal=rejected", 400},
		"a field twice":             {formType, "signal=approved&note=a&note=b", 400},
		"no decision":               {formType, "note=a", 400},
		"an unknown decision":       {formType, "signal=deleted", 400},
		"a decision in the query":   {formType, "", 400},
		"malformed escapes":         {formType, "signal=%zz", 400},
		"no UTF-8":                  {formType, "signal=approved&note=%ff", 400},
		"a large form":              {formType, "signal=approved&note=" + strings.Repeat("n", 500), 413},
		"another charset":           {formType + "; charset=utf-16", "signal=approved", 400},
		"another type":              {"text/plain", `{"signal": "approved"}`, 400},
		"a form in parts":           {"multipart/form-data; boundary=x", "--x\r\n", 400},
		"no type":                   {"", "signal=approved", 400},
		"a malformed type":          {"application/json; charset", `{"signal": "approved"}`, 400},
		"no JSON":                   {jsonType, "signal=approved", 400},
		"JSON of another shape":     {jsonType, `["approved"]`, 400},
		"JSON behind JSON":          {jsonType, `{"signal": "approved"}{"signal": "rejected"}`, 400},
		"text behind JSON":          {jsonType, `{"signal": "approved"} rejected`, 400},
		"unended JSON":              {jsonType, `{"signal": "approved"`, 400},
		"a decision of a type":      {jsonType, `{"signal": 1}`, 400},
		"large JSON":                {jsonType, `{"signal": "approved", "payload": "` + strings.Repeat("n", 500) + `"}`, 413},
		"much space behind JSON":    {jsonType, `{"signal": "approved"}` + strings.Repeat(" ", 500), 413},
		"deep JSON":                 {jsonType, `{"signal": "approved", "payload": ` + strings.Repeat("[", 400), 400},
		"a JSON member twice":       {jsonType, `{"signal": "approved", "signal": "rejected"}`, 400},
		"the same member twice":     {jsonType, `{"signal": "approved", "sign\u0061l": "approved"}`, 400},
		"a payload's member twice":  {jsonType, `{"signal": "approved", "payload": [{"b": {"a": 1, "c": [], "a": 2}}]}`, 400},
		"members in two cases":      {jsonType, `{"signal": "approved", "SIGNAL": "rejected"}`, 400},
		"a member in capitals":      {jsonType, `{"SIGNAL": "approved"}`, 400},
		"another member":            {jsonType, `{"signal": "approved", "comment": "good"}`, 400},
		"JSON that is no UTF-8":     {jsonType, "{\"signal\": \"approved\", \"payload\": \"\xff\"}", 400},
		"JSON in another charset":   {jsonType + "; charset=latin1", `{"signal": "approved"}`, 400},
		"an unknown JSON decision ": {jsonType, `{"signal": "__timeout__"}`, 400},
	} {
		target := l.path + "?" + l.query
		if name == "a decision in the query" {
			target += "&signal=approved"
		}
		if answer := l.ask(t, "POST", target, c.kind, strings.NewReader(c.body)); answer.Code != c.want {
			t.Errorf("%s: %d, want %d", name, answer.Code, c.want)
		}
	}
	// A body that breaks off is none either.
	broken := io.MultiReader(strings.NewReader("signal=approved"), errorReader{})
	if answer := l.ask(t, "POST", l.path+"?"+l.query, formType, broken); answer.Code != http.StatusBadRequest {
		t.Error(answer.Code)
	}
	l.WantUnchanged(t, l.execution, before)
	for _, kind := range []string{jsonType + "; charset=UTF-8", jsonType} {
		answer := l.ask(t, "POST", l.path+"?"+l.query, kind, strings.NewReader(`{"signal": "approved", "payload": [{"a": {"a": "a"}}, {"a": "b", "b": "a"}]} `))
		if answer.Code != http.StatusOK || answer.Header().Get("Content-Type") != jsonType {
			t.Errorf("%d %s", answer.Code, answer.Body)
		}
	}
}

type errorReader struct{}

func (errorReader) Read([]byte) (int, error) { return 0, errors.New("the connection broke") }

// Every answer, whatever the page, tells browsers and proxies to keep it to themselves. Nothing of the link is in it.
func TestAnswersArePrivate(t *testing.T) {
	throttled := false
	l := newLinked(t, func(cfg *waitpoint.Config) {
		cfg.Page = func(w http.ResponseWriter, _ *http.Request, page waitpoint.Page) { w.WriteHeader(page.Status) }
		cfg.Allow = func(*http.Request) bool { return !throttled }
	})
	want := map[string]string{
		"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
	}
	link := l.path + "?" + l.query
	check := func(name string, answer *httptest.ResponseRecorder, code int) {
		t.Helper()
		header := answer.Header()
		got := make(map[string]string)
		for key := range want {
			got[key] = header.Get(key)
		}
		if answer.Code != code || !maps.Equal(got, want) || !strings.Contains(header.Get("Content-Security-Policy"), "frame-ancestors 'none'") {
			t.Errorf("%s: %d %v", name, answer.Code, header)
		}
		for _, absent := range []string{"Location", "Set-Cookie", "Access-Control-Allow-Origin", "Link", "Refresh"} {
			if header.Get(absent) != "" {
				t.Errorf("%s: %s is %q", name, absent, header.Get(absent))
			}
		}
		wantNoToken(t, fmt.Sprint(header, answer.Body), l.w)
	}
	check("a page", l.ask(t, "GET", link, "", nil), 200)
	check("its head", l.ask(t, "HEAD", link, "", nil), 200)
	check("a forged link", l.ask(t, "GET", l.path, "", nil), 404)
	check("no decision", l.ask(t, "POST", link, formType, strings.NewReader("")), 400)
	for _, method := range []string{"PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "get", "APPROVE"} {
		answer := l.ask(t, method, link, formType, strings.NewReader("signal=approved"))
		check(method, answer, 405)
		if answer.Header().Get("Allow") != "GET, HEAD, POST" {
			t.Errorf("%s: %v", method, answer.Header())
		}
	}
	throttled = true
	check("throttled", l.ask(t, "POST", link, formType, unread{t}), 429)
	throttled = false
	check("a decision", l.ask(t, "POST", link, formType, strings.NewReader("signal=approved")), 200)
	check("another one", l.ask(t, "POST", link, jsonType, strings.NewReader(`{"signal": "rejected"}`)), 409)

	plain := newLinkedPage(t, l)
	answer := plain.ask(t, "GET", link, "", nil)
	check("the plain page", answer, 200)
	policy := strings.Split(answer.Header().Get("Content-Security-Policy"), "; ")
	for _, rule := range []string{"default-src 'none'", "form-action 'self'", "base-uri 'none'"} {
		if !slices.Contains(policy, rule) {
			t.Errorf("%q is not in %q", rule, policy)
		}
	}
}

// newLinkedPage serves the same links with the default page.
func newLinkedPage(t *testing.T, l *linked) *linked {
	t.Helper()
	plain := *l
	plain.Handler = http.StripPrefix("/w/", waitpoint.Handler(l.Engine, waitpoint.Config{Actions: []waitpoint.Action{{Signal: "approved"}}}))
	return &plain
}

// A link takes one decision, before its wait and during it, whatever else the wait needs. W11
func TestLinkTakesOneDecision(t *testing.T) {
	f := fixture.GrantFixture(t)
	l := f.Start(t).Lease
	w := open(t, f, l)
	serve := waitpoint.Handler(f.Engine, decisions)
	decide := func(signal string, want int) {
		t.Helper()
		if got := post(t, serve, w, signal); got != want {
			t.Errorf("%s: %d, want %d", signal, got, want)
		}
	}
	decide("rejected", http.StatusOK)
	decide("approved", http.StatusConflict)
	decide("rejected", http.StatusOK)
	f.SuspendAgain(t, l, engine.AllOf(engine.Received("rejected").At(decision), engine.Received("confirmed")))
	decide("approved", http.StatusConflict)
	decide("rejected", http.StatusOK)
	f.Advance(30 * fixture.Day)
	decide("approved", http.StatusConflict)
	received, err := f.ReceivedSignals(t.Context(), l.Execution)
	if err != nil || len(received) != 1 || received[0].Name != "rejected" {
		t.Errorf("%+v, %v", received, err)
	}
}

// The payload of a decision goes with the other signals an hour after the end of its execution, before its wait or not. The
// link has the same answers as before. W14
func TestPayloadOfALinkIsForgotten(t *testing.T) {
	for _, waited := range []bool{false, true} {
		t.Run(fmt.Sprintf("waited %t", waited), func(t *testing.T) {
			f := fixture.GrantFixture(t)
			l := f.Start(t).Lease
			w := open(t, f, l)
			linked := &linked{Fixture: f, Handler: waitpoint.Handler(f.Engine, decisions)}
			decide := func(signal string) int {
				return linked.ask(t, "POST", waitpoint.Link("", w), formType, strings.NewReader("signal="+signal+"&note=private")).Code
			}
			if got := decide("approved"); got != http.StatusOK {
				t.Fatal(got)
			}
			if waited {
				f.SuspendAgain(t, l, engine.AllOf(engine.Received("approved").At(decision), ready))
				f.Signal(t, l, "ready")
				l = f.ClaimOne(t).Lease
			}
			if err := f.CompleteExecution(t.Context(), l, nil); err != nil {
				t.Fatal(err)
			}
			f.Advance(time.Hour)
			if _, err := upkeep.Of(f.Engine).SweepWaits(t.Context(), 100); err != nil {
				t.Fatal(err)
			}
			if s, w := rows(t, f, "ff_suspension_current"), rows(t, f, "ff_waitpoint_pending"); s+w > 0 {
				t.Errorf("%d suspensions and %d waitpoints are left", s, w)
			}
			if got := []int{decide("approved"), decide("rejected")}; !slices.Equal(got, []int{http.StatusOK, http.StatusConflict}) {
				t.Errorf("the link answers %d", got)
			}
		})
	}
}

// The same decision is one, even after days.
func TestDecisionIsTakenOnce(t *testing.T) {
	l := newLinked(t)
	link := l.path + "?" + l.query
	for range 2 {
		if answer := l.ask(t, "POST", link, formType, strings.NewReader("signal=rejected&note=late")); answer.Code != http.StatusOK {
			t.Errorf("%d %s", answer.Code, answer.Body)
		}
		l.Advance(30 * fixture.Day)
	}
	received, err := l.ReceivedSignals(t.Context(), l.execution)
	if err != nil || len(received) != 1 || received[0].Source != l.w.ID.String() || received[0].SourceType != "link" {
		t.Errorf("%+v, %v", received, err)
	}
}
