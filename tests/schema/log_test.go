package schema_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/flowfabric/flowfabric-go/internal/pgtest"
	"github.com/flowfabric/flowfabric-go/schema"
	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

// D1, of package schema: without a log in its options it writes to the default one. It is serial: it changes the default
// log of the process.
func TestMigrationsAreLoggedByDefault_D1(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	log := new(fixture.LockedBuffer)
	slog.SetDefault(slog.New(slog.NewTextHandler(log, nil)))

	databaseURL := pgtest.EmptyDatabase(t)
	if _, err := schema.Migrate(t.Context(), databaseURL, schema.Options{}); err != nil {
		t.Fatal(err)
	}
	if text := log.String(); !strings.Contains(text, "level=INFO msg=migrated") || !strings.Contains(text, "to="+schema.Version) {
		t.Errorf("the default log holds\n%s", text)
	}
	logged := len(log.String())
	silent := schema.Options{Log: slog.New(slog.DiscardHandler)}
	if _, err := schema.Rollback(t.Context(), databaseURL, "", silent); err != nil {
		t.Fatal(err)
	}
	if text := log.String()[logged:]; text != "" {
		t.Errorf("with a log that discards, the default one gets\n%s", text)
	}
}
