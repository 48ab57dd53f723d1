package console

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/flowfabric/flowfabric-go/tests/internal/browser"
)

// page is a page of the console in a browser.
type page struct{ *browser.Page }

// open starts a browser. Without one the test is skipped.
func open(t *testing.T) page {
	t.Helper()
	return page{browser.Open(t)}
}

// media emulates a light or a dark screen.
func (b page) media(t *testing.T, scheme string) {
	t.Helper()
	_, err := chromedp.Call(b.Context, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	must(t, err)
}

// withoutScripts turns JavaScript off.
func (b page) withoutScripts(t *testing.T) {
	t.Helper()
	_, err := chromedp.Call(b.Context, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	must(t, err)
}

// axe is axe-core 4.14.1 by Deque Systems, under the Mozilla Public License 2.0.
//
//go:embed testdata/axe.min.js.gz
var axe []byte

// wantAccessible fails the test for each serious finding of axe on the page.
func (b page) wantAccessible(t *testing.T, page string) {
	t.Helper()
	packed, err := gzip.NewReader(bytes.NewReader(axe))
	must(t, err)
	script, err := io.ReadAll(packed)
	must(t, err)
	_, err = chromedp.Run(b.Context, chromedp.Evaluate[int](string(script)+";0"))
	must(t, err)
	found, err := chromedp.Run(b.Context, chromedp.Evaluate[[]string](`axe.run().then(r => r.violations
		.filter(v => v.impact === 'serious' || v.impact === 'critical')
		.flatMap(v => v.nodes.map(n => v.id + ': ' + n.html.slice(0, 200) + ' ' + n.failureSummary)))`, chromedp.EvalAwaitPromise))
	must(t, err)
	for _, text := range found {
		t.Errorf("%s: %s", page, text)
	}
}

// picture stores a screenshot in docs/, if FF_PICTURES is set.
func (b page) picture(t *testing.T, name string) {
	t.Helper()
	image, err := chromedp.Run(b.Context, chromedp.CaptureScreenshot())
	must(t, err)
	if len(image) < 1000 {
		t.Errorf("%s: the screenshot is empty", name)
	}
	if os.Getenv("FF_PICTURES") != "" {
		must(t, os.WriteFile(filepath.Join("..", "..", "docs", "console", name+".png"), image, 0o644))
	}
}

// wantQuiet fails the test for exceptions of scripts.
func (b page) wantQuiet(t *testing.T) {
	t.Helper()
	if thrown := b.Thrown(); len(thrown) > 0 {
		t.Errorf("exceptions on the page: %s", strings.Join(thrown, "\n"))
	}
}
