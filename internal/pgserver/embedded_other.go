//go:build !linux && !darwin

package pgserver

import (
	"context"
	"fmt"
	"runtime"
)

func fromEmbedded(context.Context, int, Options) (*Server, string, error) {
	return nil, "", fmt.Errorf("not supported on %s: set DATABASE_URL", runtime.GOOS)
}
