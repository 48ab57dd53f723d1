//go:build linux || darwin

package pgserver

import (
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Servers of the tests are copies of one cluster, and have passwords of their own. No server's account owns the cluster.
func TestServersOfTestsAreCopies(t *testing.T) {
	first, second := newServer(t, Tests, "test-copy-a"), newServer(t, Tests, "test-copy-b")
	a, _ := mustStart(t, first)
	defer stopNow(t, a)
	b, _ := mustStart(t, second)
	defer stopNow(t, b)
	var passwords []string
	for _, s := range []*Server{a, b} {
		u, err := url.Parse(s.URL())
		if err != nil {
			t.Fatal(err)
		}
		password, _ := u.User.Password()
		passwords = append(passwords, password)
	}
	if passwords[0] == passwords[1] {
		t.Error("two servers have one password")
	}
	u, err := url.Parse(b.URL())
	if err != nil {
		t.Fatal(err)
	}
	for _, password := range []string{passwords[0], "", "postgres"} {
		u.User = url.UserPassword("postgres", password)
		if conn, err := pgx.Connect(t.Context(), u.String()); err == nil {
			_ = conn.Close(t.Context())
			t.Errorf("the second server takes the password %q", password)
		}
	}
	name, err := first.template(t.Context(), "no-programs") // it is there, so none are run
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(name, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); !ok || int(stat.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
			t.Errorf("%s: %v", path, info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
