package database

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/fnv"
	"net/url"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// The project's SQL must not have the rights of the tool's own session. So a review makes roles without any right
// outside its databases:
//
//   - ff_review owns the schemas and everything in them; the databases are the tool's. It has no login, and outlives a
//     review while another one runs. Each role that is no superuser has an owner of its own: from version 16 on, only its
//     maker can make members of it.
//   - ff_review_<key>_login is the review's own, a member of owner. Its sessions begin as owner. A session can change the
//     settings of its login, so ff_review_<key>_base_login makes the databases kept for later reviews (cache.go).
//
// A role of the project, named by its migrations, is made without login and rights of its own. All reviews on a server
// share the role and owner, and a comment marks both. Each user of a shared role holds the advisory lock (rolesLock,
// hash of its name), shared; the review with the exclusive lock drops the role.
const (
	owner     = "ff_review"
	rolesLock = 0x66667277
	roleMark  = "made by a schema review, which drops it when it ends"
)

// SQLSTATEs
const (
	duplicateObject  = "42710"
	uniqueViolation  = "23505" // two sessions create one role at once
	dependentObjects = "2BP01"
	undefinedObject  = "42704"
	objectInUse      = "55006"
	notAllowed       = "42501"
)

func stateOf(err error) string {
	if refused, is := errors.AsType[*pgconn.PgError](err); is {
		return refused.Code
	}
	return ""
}

// dangerous are the predefined roles with access to files, programs and other sessions of the server.
var dangerous = []string{"pg_execute_server_program", "pg_read_server_files", "pg_write_server_files"}

// readRole reads the rights of the tool's own role. A role without the right to create others runs the project's SQL
// itself, and must not reach the server's files and programs.
func (s *Server) readRole(ctx context.Context) error {
	var reaches *string
	err := s.admin.QueryRow(ctx, `SELECT rolname::text, rolsuper, rolsuper OR rolcreaterole,
			(SELECT min(d.rolname)::text FROM pg_roles AS d WHERE d.rolname = ANY ($1) AND pg_has_role(d.oid, 'MEMBER'))
		FROM pg_roles WHERE rolname = current_user`, dangerous).Scan(&s.role, &s.super, &s.creates, &reaches)
	if err == nil && !s.creates && reaches != nil {
		err = fmt.Errorf("the role %s of DATABASE_URL is a member of %s and may not create a role that is not: the SQL of a change could run programs or access files; use one that may create roles, or a superuser of a server that is only for reviews", s.role, *reaches)
	}
	return err
}

// makeOwner makes the roles of a review.
func (s *Server) makeOwner(ctx context.Context) error {
	if !s.creates {
		return nil
	}
	s.owner = owner
	if !s.super {
		hash := fnv.New32a()
		hash.Write([]byte(s.role))
		s.owner = fmt.Sprintf("%s_by_%08x", owner, hash.Sum32())
	}
	if err := s.share(ctx, s.owner); err != nil {
		return err
	}
	var rights bool
	err := s.admin.QueryRow(ctx, `SELECT rolsuper OR rolcreaterole OR rolcreatedb OR rolreplication OR rolbypassrls OR rolcanlogin
			OR EXISTS (SELECT FROM pg_auth_members WHERE member = r.oid) FROM pg_roles AS r WHERE rolname = $1`, s.owner).Scan(&rights)
	if err != nil {
		return err
	}
	if rights {
		return fmt.Errorf("the server has a role %s with rights, but reviews need that name for a role without any: rename it", s.owner)
	}
	if s.super && s.version >= 15_00_00 { // rows are filled in without triggers
		// One review after the other: the server refuses two at once, "tuple concurrently updated".
		grant := fmt.Sprintf("SELECT pg_advisory_xact_lock(%d, 0); GRANT SET ON PARAMETER session_replication_role TO %s", rolesLock, s.owner)
		if _, err := s.admin.Exec(ctx, grant); err != nil {
			return fmt.Errorf("make the role of the review: %w", err)
		}
	}
	if s.builder, err = s.makeLogin(ctx, fmt.Sprintf("ff_review_%08x_base_login", s.key)); err != nil {
		return err
	}
	s.login, err = s.makeLogin(ctx, fmt.Sprintf("ff_review_%08x_login", s.key))
	return err
}

// login is a role for sessions with the project's SQL. Empty: the tool's own.
type login struct{ name, password string }

// makeLogin makes a login of the owner.
func (s *Server) makeLogin(ctx context.Context, name string) (login, error) {
	made := login{name, rand.Text()}
	statements := []string{
		// rand.Text has letters and digits only.
		fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD '%s' IN ROLE %s", name, made.password, s.owner),
		fmt.Sprintf("ALTER ROLE %s SET role = %s", name, s.owner),
		fmt.Sprintf("ALTER ROLE %s SET statement_timeout = '%s'", name, longestStatement),
		// The databases are dropped soon, so no commit need wait for the disk. Compiling the queries of the catalog takes
		// longer than running them.
		fmt.Sprintf("ALTER ROLE %s SET synchronous_commit = off", name),
		fmt.Sprintf("ALTER ROLE %s SET jit = off", name),
	}
	if !s.super { // to give the owner a schema, and end sessions of the login
		statements = append(statements, fmt.Sprintf("GRANT %s, %s TO CURRENT_USER", s.owner, name))
	}
	for i, statement := range statements {
		if _, err := s.admin.Exec(ctx, statement); err != nil {
			return login{}, fmt.Errorf("make the role of the review: %w", err)
		}
		if i == 0 {
			s.logins = append(s.logins, name)
		}
	}
	return made, nil
}

// share makes a role shared by all reviews on the server, unless one exists.
func (s *Server) share(ctx context.Context, name string) error {
	if slices.Contains(s.shared, name) {
		return nil
	}
	if _, err := s.admin.Exec(ctx, "SELECT pg_advisory_lock_shared($1, hashtext($2))", rolesLock, name); err != nil {
		return err
	}
	s.shared = append(s.shared, name)
	quoted := pgx.Identifier{name}.Sanitize()
	var exists bool
	if err := s.admin.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)", name).Scan(&exists); err != nil || exists {
		return err
	}
	tx, err := s.admin.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // no effect after a commit
	_, err = tx.Exec(ctx, fmt.Sprintf("CREATE ROLE %s NOLOGIN; COMMENT ON ROLE %s IS '%s'", quoted, quoted, roleMark))
	if state := stateOf(err); state == duplicateObject || state == uniqueViolation {
		return nil // another review was faster
	}
	if err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// mostRoles is how many roles a review makes, with a lock for each.
const mostRoles = 200

// MakeRoles makes the roles the project's SQL names, without rights, unless the server has such a role. The end of the
// review drops these roles. MakeRoles returns the ones the server refused.
func (s *Server) MakeRoles(ctx context.Context, names []string) (missing []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.creates {
		rows, err := s.admin.Query(ctx, "SELECT n FROM unnest($1::text[]) AS n WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = n) ORDER BY n", names)
		if err != nil {
			return nil, err
		}
		return pgx.CollectRows(rows, pgx.RowTo[string])
	}
	for _, name := range names {
		if name == owner || strings.HasPrefix(name, owner+"_") || len(name) > 63 || len(s.shared) > mostRoles {
			missing = append(missing, name)
			continue
		}
		err := s.share(ctx, name)
		if stateOf(err) != "" { // the server refuses the name, for example
			missing = append(missing, name)
		} else if err != nil {
			return nil, fmt.Errorf("make the role %s that the migrations name: %w", name, err)
		}
	}
	return missing, nil
}

// dropRoles drops the review's login, and the shared roles no other review uses. It also drops roles left by killed
// reviews.
func (s *Server) dropRoles(ctx context.Context) error {
	if !s.creates {
		return nil
	}
	var errs error
	for _, login := range s.logins {
		errs = errors.Join(errs, s.dropRole(ctx, login))
	}
	s.logins = nil
	// The owner is the last: others may have rights from the owner.
	names := append(slices.DeleteFunc(slices.Clone(s.shared), func(name string) bool { return name == s.owner }), s.owner)
	for _, name := range names {
		if slices.Contains(s.shared, name) {
			if _, err := s.admin.Exec(ctx, "SELECT pg_advisory_unlock_shared($1, hashtext($2))", rolesLock, name); err != nil {
				return errors.Join(errs, err)
			}
		}
		errs = errors.Join(errs, s.dropShared(ctx, name))
	}
	s.shared = nil
	return errs
}

// dropShared drops a marked role unless another review uses the role, or the role has become a login.
func (s *Server) dropShared(ctx context.Context, name string) error {
	var alone bool
	if err := s.admin.QueryRow(ctx, "SELECT pg_try_advisory_lock($1, hashtext($2))", rolesLock, name).Scan(&alone); err != nil || !alone {
		return err
	}
	var marked bool
	err := s.admin.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1 AND NOT rolcanlogin AND shobj_description(oid, 'pg_authid') = $2)", name, roleMark).Scan(&marked)
	if err == nil && marked {
		err = s.dropRole(ctx, name)
	}
	_, unlocked := s.admin.Exec(ctx, "SELECT pg_advisory_unlock($1, hashtext($2))", rolesLock, name)
	return errors.Join(err, unlocked)
}

// dropRole drops a role with its rights. The role stays if objects of a remaining database or another role need it.
func (s *Server) dropRole(ctx context.Context, name string) error {
	quoted := pgx.Identifier{name}.Sanitize()
	var elsewhere bool
	err := s.admin.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_shdepend AS d JOIN pg_roles AS r ON r.oid = d.refobjid
		WHERE d.refclassid = 'pg_authid'::regclass AND r.rolname = $1
			AND (d.dbid <> 0 OR d.classid = 'pg_database'::regclass))`, name).Scan(&elsewhere)
	if err != nil {
		return err
	}
	for _, statement := range []string{"DROP OWNED BY " + quoted, "DROP ROLE IF EXISTS " + quoted} {
		if strings.HasPrefix(statement, "DROP OWNED") && (!s.super || elsewhere) {
			continue // no rights are left beyond dropped databases, or the role stays for others, with its rights there
		}
		_, err := s.admin.Exec(ctx, statement)
		if state := stateOf(err); state == dependentObjects || state == undefinedObject || state == notAllowed {
			return nil
		}
		if err != nil {
			return fmt.Errorf("drop the role %s: %w", name, err)
		}
	}
	return nil
}

// dropLeftRoles drops the roles of killed reviews, and logs the remaining ones. Their databases are gone already.
func (s *Server) dropLeftRoles(ctx context.Context) error {
	return s.dropEach(ctx, s.dropShared,
		"SELECT rolname::text FROM pg_roles WHERE shobj_description(oid, 'pg_authid') = $1 ORDER BY starts_with(rolname, $2), rolname", roleMark, owner)
}

// as returns the URL with a login of the review.
func (s *Server) as(l login, u url.URL) url.URL {
	if l.name == "" {
		return u
	}
	u.User = url.UserPassword(l.name, l.password)
	settings := u.Query()
	for _, name := range []string{"user", "password", "passfile", "sslcert", "sslkey", "sslpassword", "options", "role"} {
		settings.Del(name)
	}
	u.RawQuery = settings.Encode()
	return u
}

// Own reports whether the project's SQL runs as a role the review made. Otherwise role is the role in use.
func (s *Server) Own() (role string, own bool) {
	if s.login.name == "" {
		return s.role, false
	}
	return s.owner, true
}

// prepare lets the project's role make objects in a new database copied from template0.
func (s *Server) prepare(ctx context.Context, name string, extensions []Extension) error {
	if s.login.name == "" {
		return nil
	}
	statements := make([]string, 0, 1+len(extensions))
	if s.version >= 15_00_00 || s.super { // otherwise any role may make objects there
		statements = append(statements, "ALTER SCHEMA public OWNER TO "+s.owner)
	}
	for _, e := range extensions {
		statements = append(statements, e.statements(s.owner))
	}
	if len(statements) == 0 && s.proved {
		return nil
	}
	if err := s.prove(ctx, name); err != nil || len(statements) == 0 {
		return err
	}
	conn, err := pgx.Connect(ctx, s.url(name))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("prepare a database: %s: %w", statement, err)
		}
	}
	return nil
}

// prove logs in as the review's role, once.
func (s *Server) prove(ctx context.Context, name string) error {
	if s.proved {
		return nil
	}
	u := *s.base
	u.Path, u.RawPath = "/"+name, ""
	u = s.as(s.login, u)
	conn, err := pgx.Connect(ctx, u.String())
	if err != nil {
		return fmt.Errorf("the server takes no login of the role without rights that a review makes (its pg_hba.conf decides; a DATABASE_URL whose role has only CREATEDB needs none): %w", err)
	}
	s.proved = true
	return conn.Close(ctx)
}
