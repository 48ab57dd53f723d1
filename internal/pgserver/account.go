//go:build linux || darwin

package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// account is the account of an embedded server: the caller's, or, since PostgreSQL refuses to run as root, one
// without rights instead of root.
type account struct {
	instead  string // empty: the caller
	uid, gid int
}

func serverAccount() (account, error) {
	if os.Geteuid() != 0 {
		return account{}, nil
	}
	for _, name := range []string{"nobody", "daemon"} {
		found, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.Atoi(found.Uid)
		gid, gidErr := strconv.Atoi(found.Gid)
		if uidErr == nil && gidErr == nil && uid > 0 {
			return account{instead: name, uid: uid, gid: gid}, nil
		}
	}
	return account{}, errors.New("PostgreSQL does not run as root, and there is no account nobody or daemon to run it: run as another user, or set DATABASE_URL")
}

func (a account) remark() string {
	if a.instead == "" {
		return ""
	}
	return " as " + a.instead
}

// procAttr makes a child process run as the account.
func (a account) procAttr() *syscall.SysProcAttr {
	if a.instead == "" {
		return nil
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}}
}

// own gives a file of the caller to the account.
func (a account) own(path string) error {
	if a.instead == "" {
		return nil
	}
	return os.Lchown(path, a.uid, a.gid)
}

// cacheFolder makes the folders described in embedded.go and returns the topmost. Root's own cache is usually out of
// the account's reach, so root uses the machine's; only the servers' own folders below it are the account's.
func (a account) cacheFolder() (string, error) {
	top, mode := "/var/cache", os.FileMode(0o755)
	if a.instead == "" {
		var err error
		if top, err = os.UserCacheDir(); err != nil {
			return "", err
		}
		mode = 0o700
	}
	top = filepath.Join(top, "flowfabric-go")
	for _, folder := range []string{top, filepath.Join(top, "postgres"), filepath.Join(top, "servers")} {
		if err := os.MkdirAll(folder, mode); err != nil {
			return "", err
		}
		if err := os.Chmod(folder, mode); err != nil { // past the umask
			return "", err
		}
	}
	return top, nil
}

// lockFile waits for the file's exclusive lock, which ends with the process at the latest.
func lockFile(ctx context.Context, path string) (unlock func() error, err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return file.Close, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			file.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			file.Close()
			return nil, fmt.Errorf("wait for another process to start its server: %w", ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}
