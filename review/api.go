package review

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/flowfabric/flowfabric-go/review/internal/api"
)

// startAPI compares the generated packages while the databases are made, since it needs none. wait waits for the
// result.
func (r *review) startAPI(ctx context.Context) (wait func()) {
	var result *api.Result
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		result, err = api.Check(ctx, r.base, r.head, filepath.Join(filepath.Dir(r.head.Dir), "generated"))
	}()
	return func() {
		<-done
		if err != nil {
			r.skip("API", "%s", fmt.Sprint(err))
			return
		}
		r.report.API = result.Changes
		r.find(result.Findings...)
		for _, line := range result.Skipped {
			r.skip("API", "%s", line)
		}
	}
}
