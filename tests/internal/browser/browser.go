// Package browser drives a page of a headless Chromium for tests.
package browser

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// Page is a page of a headless Chromium, which takes commands of the DevTools protocol through a pipe.
type Page struct {
	commands *os.File
	answers  *bufio.Reader
	session  string
	sent     int
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
	b := &Page{commands: commands, answers: bufio.NewReader(answers)}
	t.Cleanup(func() {
		b.session = ""
		_ = b.exchange("Browser.close", nil, nil)
		_ = chromium.Wait()
		_, _ = commands.Close(), answers.Close()
	})
	var target struct{ TargetID string }
	b.Call(t, "Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	b.Call(t, "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	return b
}

// Call sends a command and waits for its answer.
func (b *Page) Call(t *testing.T, method string, params, result any) {
	t.Helper()
	if err := b.exchange(method, params, result); err != nil {
		t.Fatalf("%s: %v", method, err)
	}
}

func (b *Page) exchange(method string, params, result any) error {
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

// Evaluate returns the value of a script on the page, as text.
func (b *Page) Evaluate(t *testing.T, script string) string {
	t.Helper()
	var answer struct{ Result struct{ Value any } }
	b.Call(t, "Runtime.evaluate", map[string]any{"expression": script}, &answer)
	return fmt.Sprint(answer.Result.Value)
}

// Await waits until a script has a value.
func (b *Page) Await(t *testing.T, script, want string) {
	t.Helper()
	fixture.Await(t, script+" to be "+want, func() bool { return b.Evaluate(t, script) == want })
}
