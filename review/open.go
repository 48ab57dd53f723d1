package review

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"

	"github.com/flowfabric/flowfabric-go/review/internal/database"
	"github.com/flowfabric/flowfabric-go/review/internal/pgquery"
	"github.com/flowfabric/flowfabric-go/review/internal/project"
	"github.com/flowfabric/flowfabric-go/review/internal/rules"
	"github.com/flowfabric/flowfabric-go/review/internal/trust"
)

// revisions are the commits for a review to compare: base is where head left the revision of this name, and target, if
// different, is this revision now.
type revisions struct{ base, target string }

// findRevisions finds the commits, and refuses a wrong configuration before anything starts.
func (r *review) findRevisions(ctx context.Context) error {
	if _, err := r.options(); err != nil || r.BaseDir != "" {
		return err
	}
	var err error
	if r.report.Dir, err = project.Prefix(ctx, r.Dir); err != nil {
		return err
	}
	left, err := project.MergeBase(ctx, r.Dir, r.Base, r.Head)
	if err != nil {
		return fmt.Errorf("find where %s left %s: %w", cmp.Or(r.Head, "the working folder"), r.Base, err)
	}
	r.revisions.base = left
	now, err := project.Commit(ctx, r.Dir, r.Base)
	if err == nil && now != left {
		r.revisions.target = now
	}
	return err
}

// startServer finds or starts the server, and compiles the parser meanwhile. wait waits for the server.
func (r *review) startServer(ctx context.Context) (wait func() (*database.Server, error)) {
	go pgquery.Prepare()
	var server *database.Server
	var err error
	var starting sync.WaitGroup
	starting.Go(func() { server, err = database.Start(ctx, r.Container, r.Log) })
	return func() (*database.Server, error) {
		starting.Wait()
		return server, err
	}
}

// extract writes the files of each side into a folder below dir, side by side. Without a target its files are nil.
func (r *review) extract(ctx context.Context, dir string) (base, head, target *project.Files, err error) {
	var errs [3]error
	var extracting sync.WaitGroup
	extracting.Go(func() {
		from := r.Dir
		if r.BaseDir != "" {
			from = r.BaseDir
		}
		base, errs[0] = project.Extract(ctx, from, r.revisions.base, filepath.Join(dir, "base"))
	})
	extracting.Go(func() { head, errs[1] = project.Extract(ctx, r.Dir, r.Head, filepath.Join(dir, "head")) })
	if r.revisions.target != "" {
		extracting.Go(func() {
			target, errs[2] = project.Extract(ctx, r.Dir, r.revisions.target, filepath.Join(dir, "target"))
		})
	}
	extracting.Wait()
	return base, head, target, errors.Join(errs[:]...)
}

// open reads the sides into folders below dir.
func (r *review) open(ctx context.Context, dir string) error {
	opts, err := r.options()
	if err != nil {
		return err
	}
	base, head, target, err := r.extract(ctx, dir)
	if err != nil {
		return err
	}
	if r.base, err = base.Read(opts); err != nil {
		return err
	}
	opts.PreferredDir = r.base.MigrationsDir
	if target != nil {
		if r.target, err = target.Read(opts); err != nil {
			return err
		}
	}
	if r.head, err = head.Read(opts); err != nil {
		return err
	}
	if err := r.sameTool(); err != nil {
		return err
	}
	project.Qualify(r.base, r.head)
	r.report.NotRead = r.notRead()
	r.passOver()
	if r.spec, err = r.readSeed(); err != nil {
		return err
	}
	if r.spec.Statistics != nil {
		for _, line := range r.spec.Statistics.Bounded {
			r.skip("rows", "%s", line)
		}
	}
	if err := checkExpressions(r.spec); err != nil {
		return err
	}
	r.added = project.New(r.base, r.head)
	r.report.Migrations = []string{}
	for _, m := range r.added {
		r.report.Migrations = append(r.report.Migrations, m.File)
	}
	r.find(r.noted(r.head.Findings)...)
	r.find(rules.Check(r.base, r.head, r.target)...)
	r.reading = trust.Read(r.base, r.head)
	return nil
}

// lines is a log for several goroutines.
type lines struct {
	mu sync.Mutex
	to io.Writer
}

func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(line)
}
