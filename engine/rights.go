package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/fferr"
	"github.com/flowfabric/flowfabric-go/internal/core"
	"github.com/flowfabric/flowfabric-go/internal/rights"
)

// Role is a set of rights in the database. [Engine.Prepare] checks roles, and `ff migrate grants` prints their grants.
// Each role includes the reader's rights.
type Role string

// The roles.
const (
	RoleReader   Role = Role(rights.Reader)   // reads executions, flows, lanes and events
	RoleCreator  Role = Role(rights.Creator)  // creates executions and flows, and cancels them
	RoleWorker   Role = Role(rights.Worker)   // claims and settles executions, and runs the background work
	RoleOperator Role = Role(rights.Operator) // calls package operator, and cancels
)

// checkRights checks all rights of roles at once.
func (e *Engine) checkRights(ctx context.Context, roles []Role) error {
	if len(roles) == 0 {
		roles = []Role{RoleCreator, RoleWorker}
	}
	var asked []rights.Role
	for _, role := range roles {
		if !slices.Contains(rights.All(), rights.Role(role)) {
			return core.Invalid("roles", fmt.Sprintf("has no role %q", role))
		}
		asked = append(asked, rights.Role(role))
	}
	rows, err := e.c.Q.ListMissingRights(ctx, e.c.Reader(), rightsOf(asked))
	if err != nil || len(rows) == 0 {
		return err
	}
	missing := make([]rights.Right, len(rows))
	for i, row := range rows {
		missing[i] = rights.Right{Kind: row.Kind, Object: row.Object, Privilege: row.Privilege}
	}
	return &fferr.DeniedError{User: rows[0].RoleName, Grants: rights.Grants(missing, "", rows[0].RoleName, ", ")}
}

func rightsOf(roles []rights.Role) (params db.ListMissingRightsParams) {
	for _, r := range rights.Of(roles...) {
		params.Kinds, params.Objects, params.Privileges = append(params.Kinds, r.Kind), append(params.Objects, r.Object), append(params.Privileges, r.Privilege)
	}
	return params
}

// Roles returns the roles whose rights the program holds completely. On a standby or a read-only server, only
// [RoleReader] is possible.
//
// Errors: [fferr.ErrUnavailable] without a connection; [fferr.ErrNotMigrated].
func (e *Engine) Roles(ctx context.Context) ([]Role, error) {
	const op = "read roles"
	var found db.GetSchemaStateRow
	var missing []db.ListMissingRightsRow
	err := e.c.Read(ctx,
		func(conn db.DBTX) (err error) {
			found, err = e.c.Q.GetSchemaState(ctx, conn)
			return err
		},
		func(conn db.DBTX) (err error) {
			missing, err = e.c.Q.ListMissingRights(ctx, conn, rightsOf(rights.All()))
			return err
		},
	)
	switch {
	case err != nil:
		return nil, core.Wrap(op, err)
	case !found.Migrated && found.DeniedSchema != "":
		return nil, nil
	case !found.Migrated:
		return nil, core.Wrap(op, fferr.ErrNotMigrated)
	}
	candidates := rights.All()
	if found.ReadOnly {
		candidates = []rights.Role{rights.Reader}
	}
	var held []Role
	for _, role := range candidates {
		needed := rights.Of(rights.Reader, role)
		if !slices.ContainsFunc(missing, func(row db.ListMissingRightsRow) bool {
			return slices.Contains(needed, rights.Right{Kind: row.Kind, Object: row.Object, Privilege: row.Privilege})
		}) {
			held = append(held, Role(role))
		}
	}
	return held, nil
}
