package schema_test

import (
	"log/slog"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // else migrations log what the tests do
	os.Exit(m.Run())
}
