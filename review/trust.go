package review

import (
	"context"
	"strings"

	"github.com/flowfabric/flowfabric-go/review/internal/database"
	"github.com/flowfabric/flowfabric-go/review/internal/project"
)

// distrust takes the statements not to be run out of both sides, and reports them. The sides as written stay in
// written.
func (r *review) distrust(ctx context.Context) error {
	r.written.base, r.written.head = r.base, r.head
	reading := r.reading
	missing, err := r.server.MakeRoles(ctx, reading.Roles)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		r.skip("roles", "they do not exist, and the review could not make them: %s", strings.Join(missing, ", "))
	}
	ways, err := r.server.Ways(ctx, reading.Extensions)
	if err != nil {
		return err
	}
	failed, err := r.server.Install(ctx, reading.Installs(ways))
	if err != nil {
		return err
	}
	for _, name := range failed {
		ways[name] = database.Failed
	}
	base, head, findings, err := reading.Clean(ways)
	if err != nil {
		return err
	}
	r.base, r.head, r.added = base, head, project.New(base, head)
	r.find(findings...)
	if role, own := r.server.Own(); !own {
		r.say("The SQL of the change runs as %s: that role may not create one without rights, and --trust-sql is set.", role)
	}
	return nil
}
