package engine

import (
	"math"
	"testing"

	"github.com/flowfabric/flowfabric-go/internal/core"
)

func TestAddTTLSaturates(t *testing.T) {
	t.Parallel()
	tests := []struct{ at, ttl, want int64 }{
		{1000, 30, 1030},
		{math.MaxInt64 - 1, 1, math.MaxInt64},
		{math.MaxInt64, 1, math.MaxInt64},
		{1, math.MaxInt64, math.MaxInt64},
		{-5, math.MaxInt64, math.MaxInt64 - 5},
		{math.MinInt64, 7, math.MinInt64 + 7},
	}
	for _, tt := range tests {
		if got := core.AddTTL(tt.at, tt.ttl); got != tt.want {
			t.Errorf("%d + %d: got %d, want %d", tt.at, tt.ttl, got, tt.want)
		}
	}
}
