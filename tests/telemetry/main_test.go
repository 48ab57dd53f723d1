package telemetry

import (
	"testing"

	"github.com/flowfabric/flowfabric-go/tests/internal/fixture"
)

func TestMain(m *testing.M) { fixture.Main(m) }
