package schema

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/flowfabric/flowfabric-go/internal/rights"
)

// GrantOptions choose what [Grants] gives. At least one of the parts must be set; each includes reading.
type GrantOptions struct {
	// Schema is the schema of the tables. Default: public.
	Schema string

	// Reader reads executions, flows, lanes and events.
	Reader bool
	// Creator creates executions and flows, and cancels them.
	Creator bool
	// Worker claims and settles executions, does the background work, and has named consumers of events.
	Worker bool
	// Operator does what engine.Operator offers, cancels, and moves named consumers.
	Operator bool
}

// Grants returns the statements that give a role of the database the rights to work on the tables, for their owner to run
// after each migration. They give nothing beyond what the library's statements need, and take nothing away. A role that
// owns the tables needs none of them.
//
// Errors: no role, no part of [GrantOptions], or a schema name with a dot.
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
		return "", errors.New("schema: nothing is chosen that the role may do")
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
