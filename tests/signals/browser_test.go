package signals

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"

	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// browser is a page of a headless Chromium, which takes commands of the DevTools protocol through a pipe.
type browser struct {
	commands *os.File
	answers  *bufio.Reader
	session  string
	sent     int
}

func openBrowser(t *testing.T) *browser {
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
	read, commands, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	answers, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	// Chromium reads the third file and writes the fourth.
	chromium := exec.CommandContext(context.WithoutCancel(t.Context()), program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--remote-debugging-pipe", "--user-data-dir="+t.TempDir())
	chromium.ExtraFiles = []*os.File{read, write}
	if err := chromium.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = read.Close(), write.Close()
	b := &browser{commands: commands, answers: bufio.NewReader(answers)}
	t.Cleanup(func() {
		b.session = ""
		_ = b.exchange("Browser.close", nil, nil)
		_ = chromium.Wait()
		_, _ = commands.Close(), answers.Close()
	})
	var target struct{ TargetID string }
	b.call(t, "Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.call(t, "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	return b
}

// call sends a command and waits for its answer.
func (b *browser) call(t *testing.T, method string, params, result any) {
	t.Helper()
	if err := b.exchange(method, params, result); err != nil {
		t.Fatalf("%s: %v", method, err)
	}
}

func (b *browser) exchange(method string, params, result any) error {
	b.sent++
	command := map[string]any{"id": b.sent, "method": method}
	if params != nil {
		command["params"] = params
	}
	if b.session != "" {
		command["sessionId"] = b.session
	}
	text, err := json.Marshal(command)
	if err != nil {
		return err
	}
	if _, err := b.commands.Write(append(text, 0)); err != nil {
		return err
	}
	for {
		if text, err = b.answers.ReadBytes(0); err != nil {
			return err
		}
		var answer struct {
			ID     int
			Result json.RawMessage
			Error  json.RawMessage
		}
		if err := json.Unmarshal(text[:len(text)-1], &answer); err != nil {
			return err
		}
		switch {
		case answer.ID != b.sent: // an event
		case answer.Error != nil:
			return fmt.Errorf("%s", answer.Error)
		case result == nil:
			return nil
		default:
			return json.Unmarshal(answer.Result, result)
		}
	}
}

// evaluate returns the value of a script on the page, as text.
func (b *browser) evaluate(t *testing.T, script string) string {
	t.Helper()
	var answer struct{ Result struct{ Value any } }
	b.call(t, "Runtime.evaluate", map[string]any{"expression": script}, &answer)
	return fmt.Sprint(answer.Result.Value)
}

// await waits until a script has a value.
func (b *browser) await(t *testing.T, script, want string) {
	t.Helper()
	fixture.Await(t, script+" to be "+want, func() bool { return b.evaluate(t, script) == want })
}

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

	b := openBrowser(t)
	b.call(t, "Page.navigate", map[string]any{"url": stranger.URL}, nil)
	b.await(t, heading, "Win")
	var frames struct {
		FrameTree struct {
			ChildFrames []struct {
				Frame struct{ UnreachableURL string }
			}
		}
	}
	b.call(t, "Page.getFrameTree", nil, &frames)
	if inner := frames.FrameTree.ChildFrames; len(inner) != 1 || inner[0].Frame.UnreachableURL != link {
		t.Errorf("the link is shown in a frame: %+v", inner)
	}
	<-referers // the stranger's own

	b.call(t, "Page.navigate", map[string]any{"url": link}, nil)
	b.await(t, heading, "Your decision")
	if buttons := b.evaluate(t, "[...document.querySelectorAll('button')].map(b => b.innerText).join()"); buttons != "approved,rejected" {
		t.Error(buttons)
	}
	b.evaluate(t, "document.querySelectorAll('button')[1].click()")
	b.await(t, heading, "Thank you")
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
