package signals

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/flowfabric/flowfabric-go/tests/internal/browser"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

const heading = "document.readyState == 'complete' && document.querySelector('h1') && document.querySelector('h1').innerText"

// A person opens the link in a browser and decides by a button. The decision reaches the execution. No other page frames
// the link, and the browser sends its address to no one.
func TestLinkInABrowser(t *testing.T) {
	l := newLinked(t)
	referers := make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		referers <- r.Referer()
		l.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	link := server.URL + l.path + "?" + l.query
	stranger := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `<!DOCTYPE html><h1>Win</h1><iframe src="%s"></iframe>`, link)
	}))
	t.Cleanup(stranger.Close)

	b := browser.Open(t)
	b.Visit(t, stranger.URL)
	b.Await(t, heading, "Win")
	frames, err := chromedp.Call(b.Context, page.GetFrameTree, cdp.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	if inner := frames.FrameTree.ChildFrames; len(inner) != 1 || inner[0].Frame.UnreachableURL != link {
		t.Errorf("the link is shown in a frame: %+v", inner)
	}
	<-referers // the stranger's own

	b.Visit(t, link)
	b.Await(t, heading, "Your decision")
	if buttons := b.Evaluate(t, "[...document.querySelectorAll('button')].map(b => b.innerText).join()"); buttons != "approved,rejected" {
		t.Error(buttons)
	}
	b.Evaluate(t, "document.querySelectorAll('button')[1].click()")
	b.Await(t, heading, "Thank you")
	l.WantState(t, l.execution, fixture.StateResumable)
	received, err := l.ReceivedSignals(t.Context(), l.execution)
	if err != nil || len(received) != 1 || received[0].Name != "rejected" {
		t.Errorf("%+v, %v", received, err)
	}
	for len(referers) > 0 {
		if referer := <-referers; referer != "" {
			t.Errorf("the browser sent %q", referer)
		}
	}
}
