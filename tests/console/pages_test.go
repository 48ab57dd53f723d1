package console

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/flowfabric/flowfabric-go/engine"
)

// hostile is a text that would be markup, an attribute, a script or a style somewhere.
const hostile = `<script>alert(1)</script>"'><img src=x onerror=alert(1)>{{.}}</style>`

// pages returns the paths of all pages, with an example of each.
func (w *world) pages() map[string]string {
	return map[string]string{
		"lanes": "lanes", "lane": "lanes?lane=mail", "executions": "executions", "failures": "executions?group=failures",
		"many": "executions/many?lane=mail", "execution": "executions/" + w.greeted.Short(), "waiting": "executions/" + w.limited.Short(),
		"asking":   "executions/" + w.asking.Short(),
		"payloads": "executions/" + w.greeted.Short() + "/payloads", "output": "executions/" + w.greeted.Short() + "/output",
		"flows": "flows", "flow": "flows/" + w.flow.String(), "waits": "waits", "limits": "limits", "limit": "limits/default/hold%2Ftenant",
		"budgets": "budgets", "schedules": "schedules", "sequences": "sequences", "workers": "workers", "health": "health",
		"database": "database", "log": "log",
	}
}

// get returns a page.
func (w *world) get(t *testing.T, path string) (int, string) {
	t.Helper()
	response, err := http.Get(w.base + path)
	must(t, err)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	must(t, err)
	return response.StatusCode, string(body)
}

// Every page shows data of its kind.
func TestPagesShowTheirData(t *testing.T) {
	w := newWorld(t, "Ada's note")
	for name, want := range map[string]string{
		"lanes": "nobody", "lane": "Lane mail", "executions": w.greeted.UUID().String(), "failures": "Ada&#39;s note", "many": "match",
		"execution": "look up Ada", "waiting": "limit_full", "asking": "Publish Ada&#39;s note?", "payloads": "hello Ada", "output": "looking up Ada",
		"flows": w.flow.String(), "flow": "<svg", "waits": "Publish Ada&#39;s note?", "limits": "hold/tenant", "limit": w.holding.UUID().String(),
		"budgets": "700", "schedules": "every 720h0m0s", "sequences": "Ada&#39;s note", "workers": "greet", "health": "expire_leases",
		"database": "ff_exec_core", "log": "No operator has done anything",
	} {
		status, body := w.get(t, w.pages()[name])
		if status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: status %d, without %q: %s", name, status, want, main(body))
		}
	}
	for path, want := range map[string]int{
		"nothing": http.StatusNotFound, "executions/x": http.StatusNotFound, "flows/x": http.StatusNotFound, "limits/-/none": http.StatusNotFound,
		"executions?tag=x": http.StatusBadRequest, "executions?after=x": http.StatusBadRequest, "executions?since=x": http.StatusBadRequest,
		"static/console.css": http.StatusOK, "static/console.js": http.StatusOK, "static/flow.css": http.StatusOK,
	} {
		if status, body := w.get(t, path); status != want {
			t.Errorf("%s: status %d, want %d: %s", path, status, want, main(body))
		}
	}
}

// main returns the content of a page.
func main(body string) string {
	_, content, _ := strings.Cut(body, "<main")
	return content
}

// Texts of people stay texts on every page.
func TestHostileTextStaysTextInABrowser(t *testing.T) {
	w := newWorld(t, hostile)
	b := open(t)
	for name, path := range w.pages() {
		if _, body := w.get(t, path); strings.Contains(body, "<script>alert") || strings.Contains(body, "<img") {
			t.Errorf("%s has markup of a text", name)
		}
		b.Visit(t, w.base+path)
		if n := b.Evaluate(t, "document.querySelectorAll('img, main script, main style').length"); n != "0" {
			t.Errorf("%s: a text became %s elements", name, n)
		}
	}
	b.wantQuiet(t)
}

// Nothing serious is found by axe, on light and dark pages; nothing is wider than a narrow screen, except tables in their
// frames; without scripts the pages have the same content.
func TestPagesAreAccessibleInABrowser(t *testing.T) {
	w := newWorld(t, "Ada")
	b := open(t)
	for name, path := range w.pages() {
		b.media(t, "light")
		b.Visit(t, w.base+path)
		b.wantAccessible(t, name)
		if slices.Contains([]string{"lanes", "executions", "execution", "flow", "waits", "limit"}, name) {
			b.picture(t, name)
		}
		light := b.Evaluate(t, "getComputedStyle(document.body).backgroundColor")
		b.media(t, "dark")
		if dark := b.Evaluate(t, "getComputedStyle(document.body).backgroundColor"); dark == light {
			t.Errorf("%s: a dark page has the color %s of a light one", name, dark)
		}
		b.wantAccessible(t, name+", dark")
		b.Do(t, chromedp.EmulateViewport(360, 700))
		if n := b.Evaluate(t, "document.documentElement.scrollWidth"); n != "360" {
			t.Errorf("%s: %s pixels wide on a screen of 360", name, n)
		}
		b.Do(t, chromedp.EmulateViewport(1300, 900))
	}
	b.withoutScripts(t)
	for name, path := range w.pages() {
		b.Visit(t, w.base+path)
		html, err := chromedp.Run(b.Context, chromedp.OuterHTML(chromedp.CSS("main")))
		must(t, err)
		if len(html) < 100 {
			t.Errorf("%s is empty without scripts: %s", name, html)
		}
	}
	b.wantQuiet(t)
}

// The pages can be used by the keyboard alone: skip the navigation, open a form, and send it.
func TestKeyboardSufficesInABrowser(t *testing.T) {
	w := newWorld(t, "Ada")
	b := open(t)
	b.Visit(t, w.base+"lanes?lane=nobody")
	b.Do(t, chromedp.KeyEvent("\t"))
	if got := b.Evaluate(t, "document.activeElement.textContent"); got != "Skip to the content" {
		t.Errorf("the first stop is %q", got)
	}
	b.Do(t, chromedp.KeyEvent("\r"))
	for range 60 {
		b.Do(t, chromedp.KeyEvent("\t"))
		if b.Evaluate(t, "document.activeElement.textContent") == "Pause" {
			break
		}
	}
	b.Do(t, chromedp.KeyEvent("\r"), chromedp.KeyEvent("\t"), chromedp.KeyEvent("too much"), chromedp.KeyEvent("\t"), chromedp.KeyEvent("\t"))
	if got := b.Evaluate(t, "document.activeElement.textContent"); got != "Pause the lane" {
		t.Errorf("after the fields comes %q", got)
	}
	b.Do(t, chromedp.KeyEvent("\r"))
	b.Await(t, "document.querySelector('.done')?.textContent", "Done: lane.pause. It is in the log.")
	if got := w.text(t, "SELECT reason FROM ffx_pause WHERE subject = 'lane' AND name = 'nobody'"); got != "too much" {
		t.Errorf("paused for %q", got)
	}
}

// Rows change while a worker runs, and output grows, without another visit.
func TestRowsAreLiveInABrowser(t *testing.T) {
	w := newWorld(t, "Ada")
	b := open(t)
	b.Visit(t, w.base+"executions?kind=greet")
	created, err := greet.Create(t.Context(), w.eng, "Grace")
	must(t, err)
	b.Await(t, "document.querySelector('a[href*=\""+created.ID.UUID().String()+"\"]')?.closest('tr').querySelector('.state').textContent", "completed")
	b.Visit(t, w.base+"executions/"+w.asking.Short())
	must(t, engine.Signal[string]{Name: "approved"}.Send(t.Context(), w.eng, w.asking, "yes"))
	b.Await(t, "document.querySelector('.lead .state').textContent", "completed")
	b.wantQuiet(t)
}
