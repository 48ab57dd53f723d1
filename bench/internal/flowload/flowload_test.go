package flowload

import (
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flowfabric/flowfabric-go/internal/pgtest"
)

// transcript collects the output of the load, and log lines of the engine after its end.
type transcript struct {
	mu   sync.Mutex
	text strings.Builder
}

func (t *transcript) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.Write(p)
}

func (t *transcript) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text.String()
}

// A small load, long enough to create, grow and cancel each flow. Its figures mean nothing.
func TestLoad(t *testing.T) {
	o := options{flows: 10, workers: 2, members: 4, pace: 20 * time.Millisecond, span: 3 * time.Second, longest: time.Hour}
	var out transcript
	if err := o.on(t.Context(), pgtest.EmptyDatabase(t), &out); err != nil {
		t.Fatal(err)
	}
	t.Log(out.String())
	for _, call := range []string{"create", "grow", "claim", "complete"} {
		if !strings.Contains(out.String(), call) {
			t.Errorf("says nothing of %s", call)
		}
	}
}

func TestParse(t *testing.T) {
	for args, want := range map[string]string{
		"":               "",
		"-flows 0":       "at least 1",
		"-members 1":     "at least",
		"-pace 0s":       "at least",
		"now":            "flags only",
		"-span 1s now":   "flags only",
		"-longest -1s":   "positive",
		"-flows 2 -h":    "help requested",
		"-workers 3 -no": "not defined",
	} {
		_, _, err := parse(strings.Fields(args), io.Discard)
		if got := ""; err != nil {
			if got = err.Error(); want == "" || !strings.Contains(got, want) {
				t.Errorf("%q: got %q, want %q", args, got, want)
			}
		} else if want != "" {
			t.Errorf("%q was accepted, want %q", args, want)
		}
	}
}
