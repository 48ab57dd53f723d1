//go:build linux || darwin

package pgserver

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
	"github.com/jackc/pgx/v5"
)

// The cache folder, one for every process of the user:
//
//	lock                    flock: one process at a time looks for a server, fetches, starts
//	postgres/17.5.0/        an unpacked PostgreSQL
//	clusters/17.5.0-1/      an empty cluster, which servers of the tests are copies of
// 	servers/tests-17.json   where the server of a purpose and major version listens, and the folder
// 	servers/tests-17-…/     data/ and log of a server, owned by the account it runs as
//
// The folder of a [Tests] server is in RAM instead, if there is space (memory.go).
//
// A server's record is written before the server starts. So the folders no record names belong to servers that have
// ended, or whose start was killed, and the next start removes such folders; a postmaster without its folder exits.

// record says how to reach a server. Only the user can read it.
type record struct {
	Folder   string `json:"folder"`
	Port     int    `json:"port"`
	Password string `json:"password"`
}

func (r record) url() string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword("postgres", r.Password),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(r.Port)),
		Path:     "/postgres",
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// running reports whether the postmaster's lock file names a process.
func (r record) running() bool {
	raw, err := os.ReadFile(filepath.Join(r.Folder, "data", "postmaster.pid"))
	if err != nil {
		return false
	}
	line, _, _ := strings.Cut(string(raw), "\n")
	pid, err := strconv.Atoi(line)
	return err == nil && !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

// lost reports whether the data was deleted.
func (r record) lost() bool {
	_, err := os.Stat(filepath.Join(r.Folder, "data"))
	return errors.Is(err, fs.ErrNotExist)
}

// embedded is one start of an embedded server.
type embedded struct {
	Options
	account account
	cache   string
	memory  string // a folder in RAM for servers that need not last; empty: there is none
	version string
	name    string // purpose and major version
}

// fromEmbedded finds or starts the embedded server of the purpose and says, for [Server.Source], which.
func fromEmbedded(ctx context.Context, major int, opts Options) (*Server, string, error) {
	e, err := newEmbedded(major, opts)
	if err != nil {
		return nil, "", err
	}
	return e.findOrStart(ctx)
}

func newEmbedded(major int, opts Options) (*embedded, error) {
	account, err := serverAccount()
	if err != nil {
		return nil, err
	}
	cache, err := account.cacheFolder()
	if err != nil {
		return nil, err
	}
	return &embedded{
		Options: opts,
		account: account,
		cache:   cache,
		memory:  account.memoryFolder(),
		version: versions[major],
		name:    fmt.Sprintf("%s-%d", opts.Purpose, major),
	}, nil
}

func (e *embedded) findOrStart(ctx context.Context) (*Server, string, error) {
	unlock, err := lockFile(ctx, filepath.Join(e.cache, "lock"))
	if err != nil {
		return nil, "", err
	}
	defer unlock()

	what := fmt.Sprintf("Embedded PostgreSQL %s", e.version)
	last, known := e.readRecord()
	if known {
		ref, err := e.join(ctx, last)
		if err == nil {
			return &Server{url: last.url(), purpose: e.Purpose, ref: ref},
				fmt.Sprintf("%s that was running at port %d", what, last.Port), nil
		}
		if !errors.Is(err, syscall.ECONNREFUSED) && last.running() {
			return nil, "", fmt.Errorf("the server in %s runs and takes no session: %w", last.Folder, err)
		}
	}
	rec, ref, err := e.start(ctx, last, known)
	if err != nil {
		return nil, "", err
	}
	return &Server{url: rec.url(), purpose: e.Purpose, ref: ref},
		fmt.Sprintf("%s, started at port %d%s", what, rec.Port, e.account.remark()), nil
}

func (e *embedded) join(ctx context.Context, rec record) (*pgx.Conn, error) {
	command := shutDownAndRemove
	if e.Purpose == Dev {
		command = shutDown
	}
	return join(ctx, rec.url(), e.Purpose, command)
}

// start starts a server, on the existing data of the last one if a [Dev] server. Nothing runs under the last record.
func (e *embedded) start(ctx context.Context, last record, known bool) (record, *pgx.Conn, error) {
	resume := known && e.Purpose == Dev
	lost := resume && last.lost()
	if lost {
		fmt.Fprintf(e.Log, "The data in %s is gone. The server starts with an empty database.\n", last.Folder)
		resume, known = false, false // other folders may be copies
	}
	if err := e.removeAbandoned(last.Folder, resume, known); err != nil {
		return record{}, nil, err
	}
	bin, err := e.fetch(ctx)
	if err != nil {
		return record{}, nil, err
	}

	rec := last
	if !resume {
		if !lost {
			rec.Password = rand.Text()
		}
		fmt.Fprintf(e.Log, "Creating a database cluster for embedded PostgreSQL %s.\n", e.version)
		if rec.Folder, err = e.createCluster(ctx, bin, rec.Password); err != nil {
			return record{}, nil, err
		}
	}
	if rec.Port, err = freePort(ctx, last.Port); err != nil {
		return record{}, nil, err
	}
	if err := e.writeRecord(rec); err != nil {
		return record{}, nil, err
	}

	fmt.Fprintf(e.Log, "Starting embedded PostgreSQL %s.\n", e.version)
	if err := e.launch(ctx, bin, rec); err != nil {
		return record{}, nil, err
	}
	ref, err := e.join(ctx, rec)
	return rec, ref, err
}

// launch starts the server of a record and returns when it accepts sessions.
func (e *embedded) launch(ctx context.Context, bin string, rec record) error {
	parameters := map[string]string{
		"listen_addresses":        "127.0.0.1",
		"port":                    strconv.Itoa(rec.Port),
		"unix_socket_directories": "",
		"max_connections":         "300",
	}
	if e.Purpose == Tests {
		parameters["fsync"] = "off"
		parameters["full_page_writes"] = "off"
		parameters["max_wal_size"] = "128MB" // possibly RAM
	}
	args := []string{"start", "-w", "-D", filepath.Join(rec.Folder, "data"), "-l", filepath.Join(rec.Folder, "log")}
	for name, value := range parameters {
		args = append(args, "-o", fmt.Sprintf("-c %s='%s'", name, value))
	}
	if err := e.run(ctx, rec.Folder, filepath.Join(bin, "pg_ctl"), args...); err != nil {
		log, _ := os.ReadFile(filepath.Join(rec.Folder, "log"))
		return fmt.Errorf("%w\n%s", err, log)
	}
	return nil
}

// createCluster makes a new folder with an empty database cluster.
func (e *embedded) createCluster(ctx context.Context, bin, password string) (string, error) {
	parent := e.servers()
	if e.Purpose == Tests && roomy(e.memory) {
		parent = e.memory
	}
	folder, err := os.MkdirTemp(parent, e.name+"-")
	if err != nil {
		return "", err
	}
	if err := e.account.own(folder); err != nil {
		return "", err
	}
	if e.Purpose == Tests {
		return folder, e.copyTemplate(ctx, bin, folder, password)
	}
	return folder, e.initialise(ctx, bin, folder, password)
}

// initialise runs initdb for the folder's data.
func (e *embedded) initialise(ctx context.Context, bin, folder, password string) error {
	passwordFile := folder + ".password"
	if err := os.WriteFile(passwordFile, []byte(password), 0o600); err != nil {
		return err
	}
	defer os.Remove(passwordFile)
	if err := e.account.own(passwordFile); err != nil {
		return err
	}
	args := []string{
		"--pgdata=" + filepath.Join(folder, "data"),
		"--username=postgres", "--pwfile=" + passwordFile, "--auth=" + e.authentication(),
		"--encoding=UTF8", "--locale=C",
	}
	if e.Purpose == Demo {
		args = append(args, "--no-sync") // the data does not outlive the server
	}
	return e.run(ctx, folder, filepath.Join(bin, "initdb"), args...)
}

// authentication returns the server's password method. SCRAM is slow on purpose: a client with the race detector needs
// 6 ms for a login, and tests log in thousands of times. The tests' server listens on the loopback address only, lives
// for minutes and has a random password, so MD5 is safe enough there. A wrong password is still refused.
func (e *embedded) authentication() string {
	if e.Purpose == Tests {
		return "md5"
	}
	return "scram-sha-256"
}

// run runs a program of PostgreSQL as the account, with as little of the caller's environment as will do.
func (e *embedded) run(ctx context.Context, folder, program string, args ...string) error {
	output, err := e.output(exec.CommandContext(ctx, program, args...), folder)
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", filepath.Base(program), err, output)
	}
	return nil
}

// output runs a command as run does, and returns the output.
func (e *embedded) output(cmd *exec.Cmd, folder string) (string, error) {
	cmd.Dir = folder
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}
	cmd.SysProcAttr = e.account.procAttr()
	cmd.WaitDelay = time.Second // after a failure halfway, pg_ctl's child keeps the output open
	output, err := cmd.CombinedOutput()
	return string(output), err
}

// fetch returns the folder of the version's programs, downloading the first time.
//
// The library's one call unpacks the programs, creates a cluster and starts the cluster, the latter two as the calling
// user, possibly root. So the call gets an impossible data directory, and stops there. The library makes its runtime
// folder when the unpacking is complete.
func (e *embedded) fetch(ctx context.Context) (string, error) {
	home := filepath.Join(e.cache, "postgres", e.version)
	bin := filepath.Join(home, "bin")
	if _, err := os.Stat(home); err == nil {
		return bin, nil
	}
	fmt.Fprintf(e.Log, "Fetching PostgreSQL %s, once.\n", e.version)
	archive, err := newArchive(e.version, thisPlatform())
	if err != nil {
		return "", err
	}
	scratch, err := os.MkdirTemp(filepath.Join(e.cache, "postgres"), "fetch-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(scratch)
	if err := archive.download(ctx, http.DefaultClient, scratch); err != nil {
		return "", fmt.Errorf("fetch PostgreSQL %s: %w", e.version, err)
	}
	unpacked, complete := filepath.Join(scratch, "unpacked"), filepath.Join(scratch, "complete")
	err = embeddedpostgres.NewDatabase(embeddedpostgres.DefaultConfig().
		Version(embeddedpostgres.PostgresVersion(e.version)).
		Port(0).
		CachePath(scratch).
		BinaryRepositoryURL("http://127.0.0.1:0"). // the archive is in the cache
		BinariesPath(unpacked).
		RuntimePath(complete).
		DataPath(filepath.Join(os.DevNull, "data")).
		Logger(nil)).Start()
	if _, statErr := os.Stat(complete); statErr != nil {
		return "", fmt.Errorf("unpack PostgreSQL %s: %w", e.version, err)
	}
	if err := makeReadable(unpacked); err != nil {
		return "", err
	}
	return bin, os.Rename(unpacked, home)
}

// makeReadable gives everyone the owner's rights to read and to execute, regardless of the umask.
func makeReadable(root string) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Type()&fs.ModeSymlink != 0 {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		owner := info.Mode().Perm() & 0o500
		return os.Chmod(path, info.Mode().Perm()|owner>>3|owner>>6)
	})
}

// removeAbandoned removes the folders of this purpose's servers that ended or never started, save a [Dev] server's
// data: such data is removed neither while the record names it nor while the record is missing.
func (e *embedded) removeAbandoned(named string, resume, known bool) error {
	if e.Purpose == Dev && !known {
		return nil
	}
	folders, err := e.folders()
	if err != nil {
		return err
	}
	for _, folder := range folders {
		if resume && folder == named {
			continue
		}
		if err := os.RemoveAll(folder); err != nil {
			return err
		}
	}
	return nil
}

// folders returns the folders of the name's servers in all locations.
func (e *embedded) folders() ([]string, error) {
	folders, err := filepath.Glob(filepath.Join(e.servers(), e.name+"-*"))
	if err != nil || e.memory == "" {
		return folders, err
	}
	inMemory, err := filepath.Glob(filepath.Join(e.memory, e.name+"-*"))
	return append(folders, inMemory...), err
}

func (e *embedded) servers() string    { return filepath.Join(e.cache, "servers") }
func (e *embedded) recordPath() string { return filepath.Join(e.servers(), e.name+".json") }

func (e *embedded) readRecord() (record, bool) {
	var rec record
	raw, err := os.ReadFile(e.recordPath())
	if err != nil || json.Unmarshal(raw, &rec) != nil {
		return record{}, false
	}
	if parent := filepath.Dir(rec.Folder); parent != e.servers() && parent != e.memory {
		return record{}, false
	}
	return rec, true
}

func (e *embedded) writeRecord(rec record) error {
	raw, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	fresh := e.recordPath() + ".new"
	if err := os.WriteFile(fresh, raw, 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, e.recordPath())
}

// freePort returns the preferred port if free, else a free one.
func freePort(ctx context.Context, preferred int) (int, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp4", fmt.Sprintf("127.0.0.1:%d", preferred))
	if err != nil && preferred != 0 {
		listener, err = config.Listen(ctx, "tcp4", "127.0.0.1:0")
	}
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}
