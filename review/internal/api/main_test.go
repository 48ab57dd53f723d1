package api

import (
	"os"
	"testing"

	"github.com/flowfabric/flowfabric-go/review/internal/sqlctest"
)

func TestMain(m *testing.M) { os.Exit(sqlctest.Run(m.Run)) }
