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

// Replicated is an embedded server for one test, with a standby.
type Replicated struct {
	Primary, Standby *Server
}

// StartReplicated is not supported here.
func StartReplicated(context.Context) (*Replicated, error) {
	return nil, fmt.Errorf("not supported on %s", runtime.GOOS)
}

// Stop stops both servers.
func (r *Replicated) Stop() error { return nil }
