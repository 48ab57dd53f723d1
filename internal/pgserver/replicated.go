//go:build linux || darwin

package pgserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Replicated is an embedded server for one test, with a hot standby that streams from it.
type Replicated struct {
	Primary, Standby *Server
	folders          []string
}

// StartReplicated starts a server and a standby of it, of the version of FF_POSTGRES_VERSION. No other process finds them.
func StartReplicated(ctx context.Context) (*Replicated, error) {
	set, err := readSettings(os.Getenv)
	if err != nil {
		return nil, err
	}
	e, err := newEmbedded(set.major, Options{Purpose: Tests, Log: io.Discard})
	if err != nil {
		return nil, err
	}
	e.name = fmt.Sprintf("replicated-%d", set.major)
	r := &Replicated{}
	if err := r.start(ctx, e); err != nil {
		return nil, errors.Join(err, r.Stop())
	}
	return r, nil
}

func (r *Replicated) start(ctx context.Context, e *embedded) error {
	bin, password, err := r.copyTwice(ctx, e)
	if err != nil {
		return err
	}
	var primary record
	if primary, r.Primary, err = e.startCopy(ctx, bin, r.folders[0], password); err != nil {
		return err
	}
	source := fmt.Sprintf("\nprimary_conninfo = 'host=127.0.0.1 port=%d user=postgres password=%s'\n", primary.Port, password)
	if err := appendTo(filepath.Join(r.folders[1], "data", "postgresql.auto.conf"), source); err != nil {
		return err
	}
	_, r.Standby, err = e.startCopy(ctx, bin, r.folders[1], password)
	return err
}

// copyTwice makes the data of both servers. The files are the same, so a standby can continue from them.
func (r *Replicated) copyTwice(ctx context.Context, e *embedded) (bin, password string, err error) {
	unlock, err := lockFile(ctx, filepath.Join(e.cache, "lock"))
	if err != nil {
		return "", "", err
	}
	defer unlock()
	if bin, err = e.fetch(ctx); err != nil {
		return "", "", err
	}
	password = rand.Text()
	primary, err := e.createCluster(ctx, bin, password)
	if err != nil {
		return "", "", err
	}
	r.folders = append(r.folders, primary)
	standby, err := os.MkdirTemp(filepath.Dir(primary), e.name+"-")
	if err != nil {
		return "", "", err
	}
	r.folders = append(r.folders, standby)
	data := filepath.Join(standby, "data")
	if err := errors.Join(e.account.own(standby), copyCluster(filepath.Join(primary, "data"), data, e.account.own)); err != nil {
		return "", "", err
	}
	signal := filepath.Join(data, "standby.signal")
	return bin, password, errors.Join(os.WriteFile(signal, nil, 0o600), e.account.own(signal))
}

// startCopy starts a server on the data in a folder. It ends when Stop releases it, or a little after its process has ended.
func (e *embedded) startCopy(ctx context.Context, bin, folder, password string) (record, *Server, error) {
	rec := record{Folder: folder, Password: password}
	var err error
	if rec.Port, err = freePort(ctx, 0); err != nil {
		return rec, nil, err
	}
	if err := e.launch(ctx, bin, rec); err != nil {
		return rec, nil, err
	}
	ref, err := join(ctx, rec.url(), Demo, shutDownAndRemove)
	return rec, &Server{url: rec.url(), purpose: Demo, ref: ref}, err
}

// Stop stops both servers and removes their data.
func (r *Replicated) Stop() error {
	var errs []error
	for _, s := range []*Server{r.Standby, r.Primary} {
		if s != nil {
			errs = append(errs, s.Stop())
		}
	}
	for _, folder := range r.folders {
		errs = append(errs, os.RemoveAll(folder))
	}
	return errors.Join(errs...)
}

func appendTo(path, text string) error {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, strings.NewReader(text))
	return errors.Join(err, file.Close())
}
