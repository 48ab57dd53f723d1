package console

import (
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// browser is a page of a headless Chromium.
type browser struct {
	ctx    context.Context
	mu     sync.Mutex
	errors []string // of the page's scripts
}

// open starts a browser. Without one the test is skipped.
func open(t *testing.T) *browser {
	t.Helper()
	var program string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
			break
		}
	}
	if program == "" {
		t.Skip("this test needs a browser: apt-get install chromium")
	}
	all := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox,
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.WindowSize(1300, 900))
	ctx, stop := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), all...)
	t.Cleanup(stop)
	b := &browser{}
	b.ctx, stop = chromedp.NewContext(ctx, chromedp.WithListener(func(event any) {
		if thrown, ok := event.(*runtime.EventExceptionThrown); ok {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.errors = append(b.errors, thrown.ExceptionDetails.Text)
		}
	}))
	t.Cleanup(stop)
	b.do(t)
	return b
}

// do performs actions on the page.
func (b *browser) do(t *testing.T, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	must(t, chromedp.Do(b.ctx, actions...))
}

// visit opens a page and waits for its content.
func (b *browser) visit(t *testing.T, url string) {
	t.Helper()
	b.do(t, chromedp.Navigate(url), chromedp.WaitReady(chromedp.CSS("main h1")))
}

// value returns the value of a script on the page, as text.
func (b *browser) value(t *testing.T, script string) string {
	t.Helper()
	text, err := chromedp.Run(b.ctx, chromedp.Evaluate[string]("String("+script+")"))
	must(t, err)
	return text
}

// await waits until a script has a value.
func (b *browser) await(t *testing.T, script, want string) {
	t.Helper()
	fixture.Await(t, script+" to be "+want, func() bool {
		// While a page is being replaced there is nothing to ask.
		got, err := chromedp.Run(b.ctx, chromedp.Evaluate[string]("String("+script+")"))
		return err == nil && got == want
	})
}

// media emulates a light or a dark screen.
func (b *browser) media(t *testing.T, scheme string) {
	t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	must(t, err)
}

// withoutScripts turns JavaScript off.
func (b *browser) withoutScripts(t *testing.T) {
	t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	must(t, err)
}

// axe is axe-core 4.14.1 by Deque Systems, under the Mozilla Public License 2.0.
//
//go:embed testdata/axe.min.js.gz
var axe []byte

// wantAccessible fails the test for each serious finding of axe on the page.
func (b *browser) wantAccessible(t *testing.T, page string) {
	t.Helper()
	packed, err := gzip.NewReader(bytes.NewReader(axe))
	must(t, err)
	script, err := io.ReadAll(packed)
	must(t, err)
	_, err = chromedp.Run(b.ctx, chromedp.Evaluate[int](string(script)+";0"))
	must(t, err)
	found, err := chromedp.Run(b.ctx, chromedp.Evaluate[[]string](`axe.run().then(r => r.violations
		.filter(v => v.impact === 'serious' || v.impact === 'critical')
		.flatMap(v => v.nodes.map(n => v.id + ': ' + n.html.slice(0, 200) + ' ' + n.failureSummary)))`, chromedp.EvalAwaitPromise))
	must(t, err)
	for _, text := range found {
		t.Errorf("%s: %s", page, text)
	}
}

// picture stores a screenshot in docs/, if FF_PICTURES is set.
func (b *browser) picture(t *testing.T, name string) {
	t.Helper()
	image, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	must(t, err)
	if len(image) < 1000 {
		t.Errorf("%s: the screenshot is empty", name)
	}
	if os.Getenv("FF_PICTURES") != "" {
		must(t, os.WriteFile(filepath.Join("..", "..", "docs", "console", name+".png"), image, 0o644))
	}
}

// wantQuiet fails the test for errors of scripts.
func (b *browser) wantQuiet(t *testing.T) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.errors) > 0 {
		t.Errorf("errors on the page: %s", strings.Join(b.errors, "\n"))
	}
}
