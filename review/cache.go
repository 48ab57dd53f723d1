package review

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/flowfabric/flowfabric-go/review/internal/database"
	"github.com/flowfabric/flowfabric-go/review/internal/seed"
)

// makeBase makes the database of base, or copies the database of an earlier review with the same migrations.
func (r *review) makeBase(ctx context.Context) (*database.Database, error) {
	if r.byCommand() {
		return r.make(ctx, "base", r.base)
	}
	key, err := r.baseKey(ctx)
	if err != nil {
		return nil, err
	}
	d, _, err := r.server.Cached(ctx, key, "base", nil, func(d *database.Database) (any, error) {
		return nil, r.migrate(ctx, d, r.base)
	})
	return d, err
}

// applied are the parts of a migration with an effect on a database.
type applied struct {
	File, Version, Key, Text string
	Repeatable, Transaction  bool
	Batches                  []string
}

// baseKey is the key of the database of base without rows. It leaves out statements that are not run: see distrust.
func (r *review) baseKey(ctx context.Context) (database.Key, error) {
	migrations := make([]applied, 0, len(r.base.Migrations))
	for _, m := range r.base.Migrations {
		a := applied{m.File, m.Version, m.Key(), m.Text, m.Repeatable, m.Up.Transaction, nil}
		for _, b := range m.Up.Batches {
			a.Batches = append(a.Batches, b.SQL)
		}
		migrations = append(migrations, a)
	}
	built, err := build()
	if err != nil && r.server.Caches() {
		return database.Key{}, fmt.Errorf("hash the program for the cache (--no-cache goes without): %w", err)
	}
	return r.server.NewKey(ctx, "base", built, r.base.Tool, r.base.MigrationsTable, r.reading.Roles, migrations)
}

// build identifies this build of the command: the version of a released one, otherwise the hash of the program. Builds
// without the version control's data, or with uncommitted changes, share a version.
var build = sync.OnceValues(func() (string, error) {
	version := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		version = info.Main.Version
	}
	program, err := os.Executable()
	if err != nil {
		return "", err
	}
	return buildOf(version, program)
})

func buildOf(version, program string) (string, error) {
	if version != "" && version != "(devel)" && !strings.HasSuffix(version, "+dirty") {
		return version, nil
	}
	file, err := os.Open(program)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// seededKey is the key of the database of base with rows. The rows must depend on base alone: the change leaves the
// seed file as it is, and adds no constraint for the rows to keep. Otherwise the database is not kept. spec is part of
// the key: a session in which a change's SQL could set things has narrowed spec to base's tables.
func (r *review) seededKey(ctx context.Context, dbs databases, spec *seed.Spec, opts seed.Options) (key database.Key, of bool, err error) {
	if !r.server.Caches() {
		return key, false, nil
	}
	files, of := r.seedOfBase()
	if !of {
		return key, false, nil
	}
	before, err := dbs.base.Connect(ctx)
	if err != nil {
		return key, false, err
	}
	defer func() { _ = before.Close(context.WithoutCancel(ctx)) }()
	after, err := dbs.migrated.Connect(ctx)
	if err != nil {
		return key, false, err
	}
	defer func() { _ = after.Close(context.WithoutCancel(ctx)) }()
	later := opts
	later.Later = after
	if bent, err := seed.Bent(ctx, before, spec, later); err != nil || bent {
		return key, false, err
	}
	base, err := r.baseKey(ctx)
	if err != nil {
		return key, false, err
	}
	key, err = r.server.NewKey(ctx, "rows", base.String(), files, spec.Tables, opts.Rows, opts.Now.UTC().Format(time.DateOnly), opts.Queries)
	return key, err == nil, err
}

// seedOfBase returns the texts of the seed files, and whether base has them too, or they are outside the project.
func (r *review) seedOfBase() (texts []string, of bool) {
	for _, name := range r.seedFiles {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, false
		}
		texts = append(texts, string(text))
		relative, err := filepath.Rel(r.head.Dir, name)
		if err != nil || !filepath.IsLocal(relative) {
			if filepath.IsAbs(r.Seed) && name == r.Seed {
				continue
			}
			return nil, false // a file of the working folder, which may belong to the change
		}
		if was, err := os.ReadFile(filepath.Join(r.base.Dir, relative)); err != nil || !bytes.Equal(was, text) {
			return nil, false
		}
	}
	return texts, true
}
