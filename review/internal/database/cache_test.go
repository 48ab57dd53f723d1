package database

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// tenant is a role of the tool with a cache of its own, so that other tests do not drop its databases.
type tenant struct {
	t     *testing.T
	admin *Server
	role  string
}

func newTenant(t *testing.T) tenant {
	t.Helper()
	admin := start(t)
	c := tenant{t, admin, fmt.Sprintf("ff_tenant_%08x", admin.key)}
	c.exec("CREATE ROLE " + c.role + " SUPERUSER LOGIN PASSWORD 'tenant'")
	t.Cleanup(func() {
		for _, name := range c.cached() {
			c.exec("DROP DATABASE " + name)
		}
		c.exec("DROP OWNED BY " + c.role)
		c.exec("DROP ROLE " + c.role)
	})
	u := *admin.base
	u.User = url.UserPassword(c.role, "tenant")
	t.Setenv("FF_POSTGRES", "url")
	t.Setenv("DATABASE_URL", u.String())
	return c
}

func (c tenant) exec(sql string) {
	c.t.Helper()
	if _, err := c.admin.admin.Exec(context.WithoutCancel(c.t.Context()), sql); err != nil {
		c.t.Errorf("%s: %v", sql, err)
	}
}

// cached returns the names of the tenant's cached databases.
func (c tenant) cached() []string {
	c.t.Helper()
	rows, err := c.admin.admin.Query(context.WithoutCancel(c.t.Context()), "SELECT datname::text FROM pg_database JOIN pg_roles AS r ON r.oid = datdba WHERE rolname = $1 AND starts_with(datname, $2) ORDER BY 1", c.role, cachePrefix)
	if err != nil {
		c.t.Fatal(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		c.t.Fatal(err)
	}
	return names
}

// review starts a review that keeps databases.
func (c tenant) review(log io.Writer) *Server {
	c.t.Helper()
	s, err := Start(c.t.Context(), nil, log)
	if err != nil {
		c.t.Fatal(err)
	}
	s.UseCache(true)
	c.t.Cleanup(func() { _ = s.Close(c.t.Context()) })
	return s
}

func (c tenant) key(s *Server, values ...any) Key {
	c.t.Helper()
	key, err := s.NewKey(c.t.Context(), values...)
	if err != nil {
		c.t.Fatal(err)
	}
	return key
}

// get takes the database of the key, and reports whether it was built.
func (c tenant) get(s *Server, key Key, from *Database) (d *Database, note string, built bool) {
	c.t.Helper()
	d, raw, err := s.Cached(c.t.Context(), key, "base", from, func(d *Database) (any, error) {
		built = true
		return "made", run(c.t.Context(), d, "CREATE TABLE t (id int); INSERT INTO t VALUES (7)")
	})
	if err != nil {
		c.t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &note); err != nil {
		c.t.Fatal(err)
	}
	if n := one[int](c.t, d, "SELECT id FROM t"); n != 7 {
		c.t.Errorf("the database has %d", n)
	}
	return d, note, built
}

func run(ctx context.Context, d *Database, sql string) error {
	conn, err := d.Connect(ctx)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	return errors.Join(err, conn.Close(ctx))
}

func TestCachedDatabaseIsCopied(t *testing.T) {
	c := newTenant(t)
	first := c.review(t.Output())
	key := c.key(first, "x")
	if _, note, built := c.get(first, key, nil); !built || note != "made" {
		t.Errorf("built %v, note %q", built, note)
	}
	if err := first.Close(t.Context()); err != nil {
		t.Error(err)
	}
	var log bytes.Buffer
	second := c.review(&log) // drops what killed reviews left, and not this
	d, note, built := c.get(second, c.key(second, "x"), nil)
	if built || note != "made" || !strings.Contains(log.String(), key.name()+" of an earlier review is used") {
		t.Errorf("built %v, note %q\n%s", built, note, log.String())
	}
	// The project's role owns the objects of the copy, as of a database that it made.
	if err := run(t.Context(), d, "ALTER TABLE t ADD COLUMN a int; CREATE TABLE u (id int); CREATE SCHEMA s; UPDATE t SET id = 8"); err != nil {
		t.Error(err)
	}
	if _, _, built := c.get(second, c.key(second, "x"), nil); built {
		t.Error("it was built again")
	}
	if _, _, built := c.get(second, c.key(second, "y"), nil); !built {
		t.Error("another key got its database")
	}
	second.UseCache(false)
	if _, _, built := c.get(second, key, nil); !built {
		t.Error("the cache was used, although it is off")
	}
}

// A database of the review itself is kept with what build adds to it.
func TestCachedDatabaseContinuesAnother(t *testing.T) {
	c := newTenant(t)
	s := c.review(t.Output())
	key := c.key(s, "rows")
	for _, want := range []bool{true, false} {
		from, err := s.Create(t.Context(), "from")
		if err != nil {
			t.Fatal(err)
		}
		if err := run(t.Context(), from, "CREATE TABLE before (id int)"); err != nil {
			t.Fatal(err)
		}
		d, _, built := c.get(s, key, from)
		if built != want {
			t.Errorf("built %v", built)
		}
		if n := one[int](t, d, "SELECT count(*) FROM before"); n != 0 {
			t.Errorf("%d rows", n)
		}
	}
}

func TestKeyDependsOnAllThatMakesTheDatabase(t *testing.T) {
	s := start(t)
	key := func() Key {
		t.Helper()
		k, err := s.NewKey(t.Context(), "migrations")
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	want := key()
	if key() != want {
		t.Fatal("two keys of the same values differ")
	}
	if k, err := s.NewKey(t.Context(), "migration", "s"); err != nil || k == want {
		t.Error("other values have the same key", err)
	}
	for name, change := range map[string]func() (undo func()){
		"role":       func() func() { was := s.role; s.role = "another"; return func() { s.role = was } },
		"owner":      func() func() { was := s.owner; s.owner = "another"; return func() { s.owner = was } },
		"extensions": func() func() { s.extensions = []Extension{{Name: "citext"}}; return func() { s.extensions = nil } },
	} {
		undo := change()
		if key() == want {
			t.Errorf("another %s has the same key", name)
		}
		undo()
	}
	u := *s.base
	settings := u.Query()
	settings.Set("search_path", "app,public")
	u.RawQuery = settings.Encode()
	t.Setenv("FF_POSTGRES", "url")
	t.Setenv("DATABASE_URL", u.String())
	other := start(t)
	other.role, other.owner = s.role, s.owner
	if k, err := other.NewKey(t.Context(), "migrations"); err != nil || k == want {
		t.Error("another search path has the same key", err)
	}
	if _, err := s.NewKey(t.Context(), func() {}); err == nil {
		t.Error("a value without a JSON form has a key")
	}
}

// A review that is killed while it builds leaves no cached database, and what it leaves is dropped.
func TestKilledWhileBuilding(t *testing.T) {
	c := newTenant(t)
	for name, kill := range map[string]func(s *Server, cancel func()){
		"interrupted": func(_ *Server, cancel func()) { cancel() },
		"killed": func(s *Server, _ func()) {
			c.exec(fmt.Sprintf("SELECT pg_terminate_backend(%d, 10000)", s.admin.PgConn().PID()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := c.review(io.Discard)
			key := c.key(s, name)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			built := ""
			_, _, err := s.Cached(ctx, key, "base", nil, func(d *Database) (any, error) {
				built = d.Name
				err := run(t.Context(), d, "CREATE TABLE half (id int)")
				kill(s, cancel)
				return nil, err
			})
			if names := c.cached(); slices.Contains(names, key.name()) {
				t.Errorf("%q are there after the error %v", names, err)
			}
			if name == "killed" {
				// Nothing of the killed review runs, so nothing closes it.
				_ = s.admin.Close(t.Context())
				next := c.review(t.Output())
				var left bool
				if err := next.admin.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", built).Scan(&left); err != nil || left {
					t.Errorf("%s is left, error %v", built, err)
				}
			}
			next := c.review(t.Output())
			if _, _, built := c.get(next, key, nil); !built {
				t.Error("a half-built database was used")
			}
		})
	}
}

// A review that comes while another one builds does not wait for it, and makes a database of its own.
func TestTwoReviewsBuildAtOnce(t *testing.T) {
	c := newTenant(t)
	first, second := c.review(t.Output()), c.review(t.Output())
	key := c.key(first, "x")
	_, _, err := first.Cached(t.Context(), key, "base", nil, func(d *Database) (any, error) {
		if err := run(t.Context(), d, "CREATE TABLE half (id int)"); err != nil {
			return nil, err
		}
		other, _, built := c.get(second, key, nil)
		if !built || one[bool](t, other, "SELECT to_regclass('half') IS NOT NULL") {
			t.Error("the second review got the first one's database")
		}
		if names := c.cached(); len(names) > 0 {
			t.Errorf("%q are there", names)
		}
		return "made", run(t.Context(), d, "CREATE TABLE t AS SELECT 7 AS id")
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, built := c.get(second, key, nil); built {
		t.Error("the first review kept nothing")
	}
}

// The databases used last stay, and one that another review copies.
func TestCacheIsBounded(t *testing.T) {
	c := newTenant(t)
	s, other := c.review(t.Output()), c.review(t.Output())
	var keys []Key
	for i := range mostCached {
		keys = append(keys, c.key(s, i))
		c.get(s, keys[i], nil)
	}
	if _, _, built := c.get(s, keys[0], nil); built { // used again
		t.Error("it was built again")
	}
	if got, err := other.try(t.Context(), "pg_try_advisory_lock_shared", keys[1].lock()); err != nil || !got {
		t.Fatal(got, err)
	}
	for i := range 2 {
		keys = append(keys, c.key(s, "further", i))
		c.get(s, keys[mostCached+i], nil)
	}
	var want []string
	for i, key := range keys {
		if i != 2 { // 0 was used again, 1 is in use
			want = append(want, key.name())
		}
	}
	slices.Sort(want)
	if names := c.cached(); !slices.Equal(names, want) {
		t.Errorf("%q are there, want %q", names, want)
	}
}

// A database that is not what its name says is made again. One that cannot be replaced ends nothing.
func TestCachedDatabaseIsVerified(t *testing.T) {
	c := newTenant(t)
	var log bytes.Buffer
	s := c.review(&log)
	key := c.key(s, "x")
	comment := fmt.Sprintf(`{"schema_review_cache": %d, "key": "%s"}`, cacheFormat, key)
	for name, spoil := range map[string][]string{
		"another key":       {"COMMENT ON DATABASE " + key.name() + ` IS '{"schema_review_cache": 1, "key": "` + c.key(s, "y").String() + `"}'`},
		"another format":    {"COMMENT ON DATABASE " + key.name() + ` IS '` + strings.Replace(comment, `: 1`, `: 0`, 1) + `'`},
		"a changed note":    {"COMMENT ON DATABASE " + key.name() + ` IS '` + strings.TrimSuffix(comment, "}") + `, "note": "` + strings.Repeat("A", 64) + `"}'`},
		"no note":           {"COMMENT ON DATABASE " + key.name() + ` IS '` + comment + `'`},
		"no comment":        {"COMMENT ON DATABASE " + key.name() + " IS NULL"},
		"takes sessions":    {"ALTER DATABASE " + key.name() + " WITH ALLOW_CONNECTIONS true"},
		"of another's role": {"ALTER DATABASE " + key.name() + " OWNER TO CURRENT_USER"},
	} {
		c.get(s, key, nil)
		for _, sql := range spoil {
			c.exec(sql)
		}
		if _, _, built := c.get(s, key, nil); !built {
			t.Errorf("%s: it was used", name)
		}
		if _, _, built := c.get(s, key, nil); built {
			t.Errorf("%s: it was not made again", name)
		}
	}
	c.exec("COMMENT ON DATABASE " + key.name() + " IS NULL")
	c.exec("ALTER DATABASE " + key.name() + " WITH IS_TEMPLATE true")
	d, _, built := c.get(s, key, nil)
	if !built || !strings.Contains(log.String(), "The cache of databases is not used: ") {
		t.Errorf("built %v\n%s", built, log.String())
	}
	if _, err := s.Copy(t.Context(), d, "copy"); err != nil {
		t.Error(err)
	}
	c.exec("ALTER DATABASE " + key.name() + " WITH IS_TEMPLATE false")
}

// Every role of the server can read the comment, and a change could print it in its report.
func TestNoteIsForThoseWhoHaveTheKey(t *testing.T) {
	c := newTenant(t)
	s := c.review(t.Output())
	key := c.key(s, "x")
	d, _, err := s.Cached(t.Context(), key, "base", nil, func(*Database) (any, error) { return "the size of the table salaries", nil })
	if err != nil {
		t.Fatal(err)
	}
	comment := one[string](t, d, "SELECT shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = '"+key.name()+"'")
	var r remark
	if err := json.Unmarshal([]byte(comment), &r); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(comment, "salaries") || bytes.Contains(r.Note, []byte("salaries")) {
		t.Error(comment)
	}
	if _, err := c.key(s, "y").open(r.Note); err == nil {
		t.Error("another key opens the note")
	}
	if note, err := key.open(r.Note); err != nil || !strings.Contains(string(note), "salaries") {
		t.Errorf("%s, %v", note, err)
	}
}

// What base's SQL makes as the login itself belongs to the owner in the copies, and the login does not stay.
func TestKeptObjectsBelongToTheOwner(t *testing.T) {
	c := newTenant(t)
	s := c.review(t.Output())
	builder := s.builder.name
	d, _, err := s.Cached(t.Context(), c.key(s, "x"), "base", nil, func(d *Database) (any, error) {
		return nil, run(t.Context(), d, "CREATE SCHEMA app; GRANT CREATE, USAGE ON SCHEMA app TO "+builder+"; SET SESSION AUTHORIZATION DEFAULT; SET ROLE NONE; CREATE TABLE app.t (id int)")
	})
	if err != nil {
		t.Fatal(err)
	}
	if by := one[string](t, d, "SELECT tableowner::text FROM pg_tables WHERE tablename = 't'"); by != s.owner {
		t.Errorf("the table belongs to %s", by)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	var left bool
	if err := c.admin.admin.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)", builder).Scan(&left); err != nil || left {
		t.Errorf("the login %s is left: %v, %v", builder, left, err)
	}
}

// The SQL of a change has no way to a cached database, nor to the settings of the login that makes one.
func TestSQLOfAChangeCannotReachTheCache(t *testing.T) {
	c := newTenant(t)
	s := c.review(t.Output())
	key := c.key(s, "x")
	d, _, _ := c.get(s, key, nil)
	for _, sql := range []string{
		"ALTER DATABASE " + key.name() + " WITH ALLOW_CONNECTIONS true",
		"ALTER DATABASE " + key.name() + " SET search_path = evil",
		"ALTER DATABASE " + key.name() + " RENAME TO evil",
		"COMMENT ON DATABASE " + key.name() + " IS 'x'",
		"DROP DATABASE " + key.name(),
		"CREATE DATABASE evil TEMPLATE " + key.name(),
		"ALTER ROLE " + s.builder.name + " SET search_path = evil",
		"SET ROLE NONE; ALTER ROLE " + s.builder.name + " SET search_path = evil",
		"SET ROLE " + s.builder.name,
		"SET SESSION AUTHORIZATION " + s.builder.name,
	} {
		if err := run(t.Context(), d, sql); err == nil {
			t.Errorf("%s was run", sql)
		}
	}
	conn, err := pgx.Connect(t.Context(), s.loginURL(s.login, key.name()))
	if err == nil {
		_ = conn.Close(t.Context())
		t.Error("the cached database takes sessions")
	}
	// It can change the settings of its own login. They do not reach the next database that is made.
	if err := run(t.Context(), d, "SET ROLE NONE; ALTER ROLE "+s.login.name+" SET search_path = evil"); err != nil {
		t.Fatal(err)
	}
	_, _, err = s.Cached(t.Context(), c.key(s, "y"), "base", nil, func(d *Database) (any, error) {
		if path := one[string](t, d, "SHOW search_path"); strings.Contains(path, "evil") {
			t.Errorf("the search path is %s", path)
		}
		return nil, nil
	})
	if err != nil {
		t.Error(err)
	}
}
