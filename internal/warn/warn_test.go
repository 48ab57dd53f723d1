package warn

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestRepeatedFailuresAreWarnedOfOnceAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug, AddSource: true}))
		var failure, other Repeated
		for range 90 {
			failure.Log(log, "cannot claim", "error", "no database")
			time.Sleep(time.Second)
		}
		other.Log(log, "cannot renew")
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		var warned []int
		for i, line := range lines {
			if strings.Contains(line, "level=WARN") {
				warned = append(warned, i)
			}
			if !strings.Contains(line, "warn_test.go") {
				t.Errorf("the line does not name its caller: %s", line)
			}
		}
		if len(lines) != 91 || len(warned) != 3 || warned[0] != 0 || warned[1] != 60 || warned[2] != 90 {
			t.Fatalf("%d lines, warnings %v, want 91 and those at 0, 60 and 90", len(lines), warned)
		}
		if !strings.Contains(lines[60], "not_shown=59") || strings.Contains(lines[0], "not_shown") || strings.Contains(lines[90], "not_shown") {
			t.Errorf("a warning does not say how many were left out: %s", lines[60])
		}
	})
}
