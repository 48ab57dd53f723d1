package review_test

import (
	"os"
	"testing"

	"github.com/flowfabric/flowfabric-go/review/internal/sqlctest"
)

func TestMain(m *testing.M) {
	if os.Getenv("APPLY_SCHEMA") != "" { // this program runs as a project's command: see ownCommand
		os.Exit(m.Run())
	}
	os.Exit(sqlctest.Run(m.Run))
}
