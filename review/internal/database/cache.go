package database

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// Databases of base stay on the server, to be copied by later reviews. A cached database is named
// ff_review_cache_<key>, and its comment has the whole key, the time of the last use and a note of the maker. The
// tool's role owns the database, which takes no sessions. Only SQL of base runs in such a database, under a login no
// SQL of a change has had. Then the review renames the database: [Server.dropLeft] drops the database of a killed
// review.
//
// A review holds the advisory lock (cacheLock, key) of database postgres while making, dropping or copying a cached
// database, shared for a copy. No review waits for the lock: without the lock, the review makes a database of its own.
// The roles of base's objects stay, since the server drops no role that owns something.
const (
	cachePrefix = "ff_review_cache_"
	cacheLock   = 0x66667278
	cacheFormat = 2
	mostCached  = 6 // a base has one without rows and one with them
)

// Key names everything a database is made from. Only a review with the same input knows the secret: see [Key.seal].
type Key struct{ sum, secret [sha256.Size]byte }

// system are the server's facts behind new databases: versions, the locale, and the settings of sessions.
const system = `SELECT concat_ws(E'\n', version(),
	(SELECT concat_ws(' ', datcollate, datctype, encoding) FROM pg_database WHERE datname = 'template0'),
	(SELECT string_agg(name || ' ' || default_version, E'\n' ORDER BY name) FROM pg_available_extensions),
	(SELECT string_agg(name || ' ' || setting, E'\n' ORDER BY name) FROM pg_settings
		WHERE context IN ('user', 'superuser') AND source NOT IN ('default', 'override', 'session') AND name <> 'application_name'))`

// NewKey returns the key of a database made from the values on the server. Each value must have a JSON form.
func (s *Server) NewKey(ctx context.Context, values ...any) (Key, error) {
	var facts string
	if err := s.locked(func() error { return s.admin.QueryRow(ctx, system).Scan(&facts) }); err != nil {
		return Key{}, err
	}
	text, err := json.Marshal(append([]any{cacheFormat, facts, s.role, s.owner, s.extensions}, values...))
	return Key{sha256.Sum256(text), sha256.Sum256(append(text, " secret"...))}, err
}

func (k Key) String() string { return hex.EncodeToString(k.sum[:]) }

func (k Key) name() string { return cachePrefix + k.String()[:32] }

// lock is the key of the advisory lock.
func (k Key) lock() int32 { return lockOf(k.name()) }

// lockOf returns the key of the advisory lock of a database; 0 for a name of another form.
func lockOf(name string) int32 {
	if len(name) < len(cachePrefix)+8 {
		return 0
	}
	n, _ := strconv.ParseUint(name[len(cachePrefix):len(cachePrefix)+8], 16, 32)
	return int32(uint32(n))
}

// remark is the comment of a cached database.
type remark struct {
	Format int       `json:"schema_review_cache"`
	Key    string    `json:"key"`
	Used   time.Time `json:"used"`
	Note   []byte    `json:"note"` // sealed
}

// UseCache decides whether databases are kept for later reviews. There is no effect if the project's SQL runs as the
// tool's own role, which could change such databases.
func (s *Server) UseCache(use bool) { s.caching = use && s.login.name != "" }

// Caches reports whether databases are kept for later reviews.
func (s *Server) Caches() bool { return s.caching }

// Cached returns a copy of the cached database of the key, with its note. If there is none, build makes the database,
// in from or, if from is nil, in an empty database, and Cached keeps the result. SQL of the change must not have run in
// from. If keeping fails, Cached returns the database itself. An error of the cache is logged, and errors of build are
// returned with the database.
func (s *Server) Cached(ctx context.Context, key Key, label string, from *Database, build func(*Database) (note any, err error)) (d *Database, note json.RawMessage, err error) {
	if s.caching {
		if d, note := s.copyCached(ctx, key, label); d != nil {
			return d, note, nil
		}
	}
	keep := s.caching && s.lockCached(ctx, key)
	if keep {
		defer s.unlockCached(ctx, "pg_advisory_unlock", key)
	}
	if d = from; d == nil {
		if d, err = s.Create(ctx, label); err != nil {
			return nil, nil, err
		}
	}
	inside := *d
	inside.URL = s.loginURL(s.builder, d.Name)
	made, err := build(&inside)
	if err != nil {
		return d, nil, err
	}
	if note, err = json.Marshal(made); err != nil || !keep {
		return d, note, err
	}
	if err := s.keep(ctx, key, d, note); err != nil {
		s.notCached(err)
		return d, note, ctx.Err()
	}
	d.Name = key.name() // so later parts can copy the database, even after a failure here
	s.logf("The database %s is kept for later reviews.", key.name())
	if err := s.dropOldest(ctx); err != nil {
		s.notCached(err)
	}
	copied, err := s.create(ctx, label, key.name())
	if err != nil {
		return d, note, err
	}
	return copied, note, nil
}

func (s *Server) locked(fn func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fn()
}

func (s *Server) logf(format string, arguments ...any) {
	if s.log != nil {
		fmt.Fprintf(s.log, format+"\n", arguments...)
	}
}

func (s *Server) notCached(err error) {
	s.logf("The cache of databases is not used: %v", err)
}

// try takes an advisory lock, or returns false if another session has the lock.
func (s *Server) try(ctx context.Context, function string, lock int32) (got bool, err error) {
	err = s.locked(func() error {
		return s.admin.QueryRow(ctx, "SELECT "+function+"($1, $2)", cacheLock, lock).Scan(&got)
	})
	return got, err
}

func (s *Server) lockCached(ctx context.Context, key Key) bool {
	got, err := s.try(ctx, "pg_try_advisory_lock", key.lock())
	if err != nil {
		s.notCached(err)
	}
	return got
}

func (s *Server) unlockCached(ctx context.Context, function string, key Key) {
	closed := s.locked(func() error {
		if s.admin.IsClosed() {
			return net.ErrClosed
		}
		return nil
	})
	if ctx.Err() != nil && closed != nil {
		return // the lock ended with the session
	}
	if _, err := s.try(context.WithoutCancel(ctx), function, key.lock()); err != nil {
		s.notCached(err)
	}
}

// copyCached copies the database of the key. Nil: there is no usable one.
func (s *Server) copyCached(ctx context.Context, key Key, label string) (*Database, json.RawMessage) {
	got, err := s.try(ctx, "pg_try_advisory_lock_shared", key.lock())
	if err != nil || !got { // another review makes or drops the database
		if err != nil {
			s.notCached(err)
		}
		return nil, nil
	}
	defer s.unlockCached(ctx, "pg_advisory_unlock_shared", key)
	r, err := s.readRemark(ctx, key.name())
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, nil
	case err != nil:
		s.notCached(err)
		return nil, nil
	case r.Format != cacheFormat || r.Key != key.String():
		s.logf("The database %s is of another key, and is made again.", key.name())
		return nil, nil
	}
	note, err := key.open(r.Note)
	if err != nil {
		s.notCached(err)
		return nil, nil
	}
	d, err := s.create(ctx, label, key.name())
	if err != nil {
		s.notCached(err)
		return nil, nil
	}
	s.logf("The database %s of an earlier review is used.", key.name())
	if err := s.writeRemark(ctx, key.name(), key, note); err != nil && stateOf(err) == "" { // two reviews may write at once
		s.notCached(err)
	}
	return d, note
}

// readRemark reads the comment of a cached database of the tool's role without sessions. Another one counts as one
// without a comment. Errors: pgx.ErrNoRows.
func (s *Server) readRemark(ctx context.Context, name string) (r remark, err error) {
	var text *string
	err = s.locked(func() error {
		return s.admin.QueryRow(ctx, `SELECT CASE WHEN NOT datallowconn AND datdba = (SELECT oid FROM pg_roles WHERE rolname = current_user) THEN shobj_description(oid, 'pg_database') END
			FROM pg_database WHERE datname = $1`, name).Scan(&text)
	})
	if err != nil || text == nil || json.Unmarshal([]byte(*text), &r) != nil {
		return remark{}, err
	}
	return r, nil
}

func (s *Server) writeRemark(ctx context.Context, name string, key Key, note json.RawMessage) error {
	return s.locked(func() error {
		sealed, err := key.seal(note)
		if err != nil {
			return err
		}
		r := remark{Format: cacheFormat, Key: key.String(), Note: sealed}
		if err := s.admin.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&r.Used); err != nil {
			return err
		}
		text, err := json.Marshal(r)
		if err != nil {
			return err
		}
		var statement string
		err = s.admin.QueryRow(ctx, "SELECT format('COMMENT ON DATABASE %I IS %L', $1::text, $2::text)", name, string(text)).Scan(&statement)
		if err != nil {
			return err
		}
		_, err = s.admin.Exec(ctx, statement)
		return err
	})
}

// keep makes a database of the review the cached one. After an error the database stays the review's.
func (s *Server) keep(ctx context.Context, key Key, d *Database, note json.RawMessage) error {
	exec := func(ctx context.Context, sql string) error {
		return s.locked(func() error {
			_, err := s.admin.Exec(ctx, sql)
			return err
		})
	}
	own := pgx.Identifier{d.Name}.Sanitize()
	if err := s.dropCached(ctx, key.name()); err != nil { // an unusable one of the name
		return err
	}
	if err := s.reassign(ctx, d.Name); err != nil {
		return err
	}
	if err := exec(ctx, "ALTER DATABASE "+own+" WITH ALLOW_CONNECTIONS false"); err != nil {
		return err
	}
	err := s.writeRemark(ctx, d.Name, key, note)
	if err == nil {
		err = s.rename(ctx, d.Name, key.name())
	}
	if err != nil {
		return errors.Join(err, exec(context.WithoutCancel(ctx), "ALTER DATABASE "+own+" WITH ALLOW_CONNECTIONS true"))
	}
	return s.locked(func() error {
		delete(s.names, d.Name)
		return nil
	})
}

// reassign gives the owner the objects made by base's SQL as the login, for example after SET SESSION AUTHORIZATION,
// and takes away the rights of the login, which is dropped with the review.
func (s *Server) reassign(ctx context.Context, name string) error {
	conn, err := pgx.Connect(ctx, s.loginURL(s.builder, name))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, fmt.Sprintf("SET ROLE NONE; REASSIGN OWNED BY %[1]s TO %[2]s; DROP OWNED BY %[1]s", s.builder.name, s.owner))
	return errors.Join(err, conn.Close(ctx))
}

// rename waits for the end of closing sessions.
func (s *Server) rename(ctx context.Context, from, to string) error {
	statement := fmt.Sprintf("ALTER DATABASE %s RENAME TO %s", pgx.Identifier{from}.Sanitize(), pgx.Identifier{to}.Sanitize())
	return s.locked(func() error { return s.patiently(ctx, statement) })
}

// dropOldest drops the cached databases of the tool's role beyond mostCached; the last used ones stay, and so do
// databases another review uses.
func (s *Server) dropOldest(ctx context.Context) error {
	var names []string
	err := s.locked(func() error {
		rows, err := s.admin.Query(ctx, "SELECT datname::text FROM pg_database WHERE starts_with(datname, $1) AND datdba = (SELECT oid FROM pg_roles WHERE rolname = current_user)", cachePrefix)
		if err != nil {
			return err
		}
		names, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	if err != nil || len(names) <= mostCached {
		return err
	}
	used := map[string]time.Time{}
	for _, name := range names {
		r, err := s.readRemark(ctx, name)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		used[name] = r.Used
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(used[b].Compare(used[a]), cmp.Compare(a, b)) })
	var errs error
	for _, name := range names[mostCached:] {
		got, err := s.try(ctx, "pg_try_advisory_lock", lockOf(name))
		if err == nil && got {
			err = s.dropCached(ctx, name)
			_, unlocked := s.try(context.WithoutCancel(ctx), "pg_advisory_unlock", lockOf(name))
			err = errors.Join(err, unlocked)
		}
		errs = errors.Join(errs, err)
	}
	return errs
}

func (s *Server) dropCached(ctx context.Context, name string) error {
	return s.locked(func() error {
		_, err := s.admin.Exec(ctx, dropStatement(name))
		return err
	})
}
