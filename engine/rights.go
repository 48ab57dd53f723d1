package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/flowfabric/flowfabric-go/db"
	"github.com/flowfabric/flowfabric-go/internal/rights"
)

// Role is a set of rights that a program needs in the database. [Engine.Prepare] checks them, and `ff migrate grants`
// prints them. Each role includes the reader's rights.
type Role string

// The roles.
const (
	RoleReader   Role = Role(rights.Reader)   // reads executions, flows, lanes and events
	RoleCreator  Role = Role(rights.Creator)  // creates executions and flows, and cancels them
	RoleWorker   Role = Role(rights.Worker)   // claims and settles executions, and runs the background work
	RoleOperator Role = Role(rights.Operator) // calls [Operator]'s methods, and cancels
)

// DeniedError reports the rights that a database role lacks. Grants are the statements that grant them; the owner of
// the tables can run them.
type DeniedError struct {
	User   string // the database role, quoted for SQL
	Grants []string
}

func (e *DeniedError) Error() string {
	return fmt.Sprintf("%v: %s lacks rights: run %s", ErrDenied, e.User, strings.Join(e.Grants, "; "))
}

// Unwrap returns [ErrDenied].
func (e *DeniedError) Unwrap() error { return ErrDenied }

// checkRights checks all rights of roles at once.
func (e *Engine) checkRights(ctx context.Context, roles []Role) error {
	if len(roles) == 0 {
		roles = []Role{RoleCreator, RoleWorker}
	}
	var asked []rights.Role
	for _, role := range roles {
		if !slices.Contains(rights.All(), rights.Role(role)) {
			return invalid("roles", fmt.Sprintf("has no role %q", role))
		}
		asked = append(asked, rights.Role(role))
	}
	var params db.ListMissingRightsParams
	for _, r := range rights.Of(asked...) {
		params.Kinds, params.Objects, params.Privileges = append(params.Kinds, r.Kind), append(params.Objects, r.Object), append(params.Privileges, r.Privilege)
	}
	rows, err := e.q.ListMissingRights(ctx, e.reader(), params)
	if err != nil || len(rows) == 0 {
		return err
	}
	missing := make([]rights.Right, len(rows))
	for i, row := range rows {
		missing[i] = rights.Right{Kind: row.Kind, Object: row.Object, Privilege: row.Privilege}
	}
	return &DeniedError{User: rows[0].RoleName, Grants: rights.Grants(missing, "", rows[0].RoleName, ", ")}
}
