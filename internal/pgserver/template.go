//go:build linux || darwin

package pgserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// templateFormat changes with the arguments of initdb.
const templateFormat = 1

// template returns the folder of an empty cluster to copy for [Tests] servers: initdb takes two seconds, a copy a
// tenth. The first call makes the cluster. The account of the servers cannot write there. The caller holds the lock of
// the cache folder.
func (e *embedded) template(ctx context.Context, bin string) (string, error) {
	name := filepath.Join(e.cache, "clusters", fmt.Sprintf("%s-%d", e.version, templateFormat))
	if _, err := os.Stat(name); err == nil {
		return name, nil
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return "", err
	}
	// The account makes the cluster in a folder of its own.
	made, err := os.MkdirTemp(e.servers(), e.name+"-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(made)
	if err := e.account.own(made); err != nil {
		return "", err
	}
	// Every server gets a password of its own. initdb waits for the disk, since the template lasts.
	if err := e.initialise(ctx, bin, made, rand.Text()); err != nil {
		return "", err
	}
	// A copy, because a process of the account may still have files open.
	copied := made + ".copy"
	defer os.RemoveAll(copied)
	if err := copyCluster(filepath.Join(made, "data"), copied, func(string) error { return nil }); err != nil {
		return "", err
	}
	return name, os.Rename(copied, name)
}

// copyCluster copies a cluster's files with the modes the server demands.
func copyCluster(from, to string, own func(path string) error) error {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	return filepath.WalkDir(to, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		mode := os.FileMode(0o600)
		if entry.IsDir() {
			mode = 0o700
		}
		return errors.Join(os.Chmod(path, mode), own(path))
	})
}

// copyTemplate makes the data of a new server in folder from the template, with its password.
func (e *embedded) copyTemplate(ctx context.Context, bin, folder, password string) error {
	from, err := e.template(ctx, bin)
	if err != nil {
		return err
	}
	data := filepath.Join(folder, "data")
	if err := copyCluster(from, data, e.account.own); err != nil {
		return err
	}
	if err := e.setPassword(ctx, bin, data, password); err != nil {
		// A damaged template, for example after a cleaning of the cache folder, is made again.
		return errors.Join(err, os.RemoveAll(from))
	}
	return nil
}

// setPassword sets the superuser's password in a cluster no server runs on.
func (e *embedded) setPassword(ctx context.Context, bin, data, password string) error {
	// rand.Text has letters and digits only.
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "postgres"), "--single", "-F", "-D", data, "postgres")
	cmd.Stdin = strings.NewReader(fmt.Sprintf("ALTER ROLE postgres PASSWORD '%s'\n", password))
	output, err := e.output(cmd, filepath.Dir(data))
	if err != nil || strings.Contains(output, "ERROR:") {
		return fmt.Errorf("set the password of the new cluster: %w\n%s", errors.Join(err, errors.New("postgres --single failed")), strings.ReplaceAll(output, password, "…"))
	}
	return nil
}
