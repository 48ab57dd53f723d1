package signals

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/engine"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
	"github.com/flowfabric/flowfabric-go/waitpoint"
)

// A service calls the link of a waitpoint, and its body becomes the payload. A repetition is the same signal.
func TestCallback(t *testing.T) {
	f := fixture.GrantFixture(t)
	l := f.Start(t).Lease
	w := open(t, f, l)
	failed, allowed := 0, true
	server := httptest.NewServer(waitpoint.Callback(f.Engine, "ready", waitpoint.Config{
		MaxBody: 20,
		Allow:   func(*http.Request) bool { return allowed },
		Failed:  func(*http.Request) { failed++ },
	}))
	defer server.Close()
	link := waitpoint.Link(server.URL, w)
	call := func(method, link, body string) int {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, link, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		if err := response.Body.Close(); err != nil {
			t.Fatal(err)
		}
		return response.StatusCode
	}
	wrong := strings.Replace(link, "token=", "token=x", 1)
	for _, c := range []struct {
		name, method, link, body string
		want                     int
	}{
		{"a scanner", http.MethodGet, link, "", http.StatusMethodNotAllowed},
		{"a wrong link", http.MethodPost, wrong, "{}", http.StatusNotFound},
		{"too much", http.MethodPost, link, strings.Repeat("x", 21), http.StatusRequestEntityTooLarge},
		{"progress", http.MethodPost, link, "half", http.StatusNoContent},
		{"progress again", http.MethodPost, link, "half", http.StatusNoContent},
		{"the result", http.MethodPost, link, `{"n": 1}`, http.StatusNoContent},
	} {
		if got := call(c.method, c.link, c.body); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
	if failed != 1 {
		t.Errorf("%d failures, want 1", failed)
	}
	f.SuspendAgain(t, l, engine.Received("ready").At(decision).Where("$.n == 1"))
	received, err := f.Engine.ReceivedSignals(t.Context(), l.Execution)
	if err != nil {
		t.Fatal(err)
	}
	var payloads []string
	for _, signal := range received {
		payloads = append(payloads, string(signal.Payload))
	}
	if want := []string{"half", `{"n": 1}`}; !slices.Equal(payloads, want) {
		t.Errorf("payloads %q, want %q", payloads, want)
	}
	if got := call(http.MethodPost, link, "late"); got != http.StatusConflict {
		t.Errorf("after the wait: %d, want 409", got)
	}
	if got := call(http.MethodPost, link, "half"); got != http.StatusNoContent {
		t.Errorf("a repetition after the wait: %d, want 204", got)
	}
	allowed = false
	if got := call(http.MethodPost, link, "half"); got != http.StatusTooManyRequests {
		t.Errorf("not allowed: %d, want 429", got)
	}
}
