// Package browser drives a page of a headless Chromium for tests.
package browser

import (
	"context"
	"os/exec"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// Page is a page of a headless Chromium.
type Page struct {
	// Context is for commands of chromedp that have no method here.
	Context context.Context

	mu     sync.Mutex
	thrown []string
}

// Open starts a browser with an empty page. Without one the test is skipped.
func Open(t *testing.T) *Page {
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
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox,
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.WindowSize(1300, 900))
	ctx, stop := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	t.Cleanup(stop)
	p := &Page{}
	p.Context, stop = chromedp.NewContext(ctx, chromedp.WithListener(func(event any) {
		if event, ok := event.(*runtime.EventExceptionThrown); ok {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.thrown = append(p.thrown, event.ExceptionDetails.Text)
		}
	}))
	t.Cleanup(stop)
	p.Do(t)
	return p
}

// Do performs actions on the page.
func (p *Page) Do(t *testing.T, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(p.Context, actions...); err != nil {
		t.Fatal(err)
	}
}

// Visit opens an address and waits until the page is loaded.
func (p *Page) Visit(t *testing.T, url string) {
	t.Helper()
	p.Do(t, chromedp.Navigate(url))
}

// Evaluate returns the value of a script on the page, as text.
func (p *Page) Evaluate(t *testing.T, script string) string {
	t.Helper()
	text, err := p.value(script)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func (p *Page) value(script string) (string, error) {
	return chromedp.Run(p.Context, chromedp.Evaluate[string]("String("+script+")"))
}

// Await waits until a script has a value. While a page is being replaced it has none.
func (p *Page) Await(t *testing.T, script, want string) {
	t.Helper()
	fixture.Await(t, script+" to be "+want, func() bool {
		got, err := p.value(script)
		return err == nil && got == want
	})
}

// Thrown returns the exceptions of the page's scripts.
func (p *Page) Thrown() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.thrown
}
