package schema

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/internal/rights"
)

// GrantOptions selects the rights for [Grants]. Set at least one part; each includes reading.
type GrantOptions struct {
	// Schema is the schema of the tables. Default: public.
	Schema string

	// Reader may read executions, flows, lanes and events.
	Reader bool
	// Creator may create and cancel executions and flows.
	Creator bool
	// Worker may claim and settle executions, run background work, and run named consumers of events.
	Worker bool
	// Operator may call the functions of package operator, cancel, and move named consumers.
	Operator bool
}

// Grants returns statements to grant a role the rights to work on the tables. The owner of the tables runs them after
// each migration. The statements grant only rights needed by the library's statements, and revoke none. The owner
// itself needs no grants.
//
// Errors: an empty role, no part of [GrantOptions], or a schema name with a dot.
func Grants(role string, opts GrantOptions) (string, error) {
	var parts []rights.Role
	for _, part := range []struct {
		chosen bool
		role   rights.Role
	}{
		{opts.Reader, rights.Reader}, {opts.Creator, rights.Creator}, {opts.Worker, rights.Worker}, {opts.Operator, rights.Operator},
	} {
		if part.chosen {
			parts = append(parts, part.role)
		}
	}
	switch {
	case role == "":
		return "", errors.New("schema: the role has no name")
	case parts == nil:
		return "", errors.New("schema: no right is selected for the role")
	}
	if err := checkSchemaName(opts.Schema); err != nil {
		return "", err
	}
	home := opts.Schema
	if home == "" {
		home = "public"
	}
	home, grantee := pgx.Identifier{home}.Sanitize(), pgx.Identifier{role}.Sanitize()
	statements := append([]string{"GRANT USAGE ON SCHEMA " + home + " TO " + grantee},
		rights.Grants(rights.Of(parts...), home, grantee, ",\n    ")...)
	return fmt.Sprintf("-- As of version %s.\n%s;\n", Version, strings.Join(statements, ";\n")), nil
}
