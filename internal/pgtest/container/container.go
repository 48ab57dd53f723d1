// Package container runs a Postgres server in a container, for the tests and for other users of internal/pgserver.
package container

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log"
	"net"
	"net/url"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/modules/postgres"
)

// The container's settings. A new text makes a new container, with another name.
var (
	command = []string{
		"postgres", "-c", "fsync=off", "-c", "full_page_writes=off", "-c", "max_connections=300",
		"-c", "max_wal_size=128MB", "-c", "hba_file=" + accessFile,
		// Compiling the catalogue queries of tests and reviews took longer than running the queries. The engine turns
		// compilation off for its own.
		"-c", "jit=off",
		// Tests make thousands of errors. Nothing reads the errors in the log, where each takes a page with the statement.
		"-c", "log_min_messages=fatal",
	}
	// SCRAM is slow on purpose: a client with the race detector needs 6 ms for a login, and tests log in thousands of
	// times. MD5 is cheap, still refuses a wrong password, and is in all versions from 14 to 18. See also [storeCheaply].
	access = "local all all trust\nhost all all all md5\n"
)

const accessFile = "/etc/flowfabric-go-hba.conf"

// The image's superuser and database.
const (
	user     = "postgres"
	password = "postgres"
)

// memory is the container's file system in RAM, for the server's files: many are made and removed (see memoryFolder in
// internal/pgserver), and none outlives the container.
const memory = "/memory"

// Run finds or starts the container every test binary on this engine shares, and returns the URL of its server. An
// unused server ends by itself (internal/pgserver), and the container is removed at the same time; so there is no work
// for the reaper of testcontainers, which would only be one more image to pull.
func Run(ctx context.Context, image string) (string, error) {
	if err := os.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true"); err != nil {
		return "", err
	}
	quiet := testcontainers.WithLogger(log.New(io.Discard, "", 0))
	provider, err := testcontainers.NewDockerProvider(testcontainers.Generic2DockerOptions(quiet)...)
	if err != nil {
		return "", fmt.Errorf("no Docker engine answers: %w", err)
	}
	defer provider.Close()
	engine := provider.Client()
	// Testcontainers looks for another engine if the one in DOCKER_HOST does not answer.
	if host := os.Getenv("DOCKER_HOST"); host != "" && engine.DaemonHost() != host {
		return "", fmt.Errorf("no Docker engine answers at %s, which DOCKER_HOST names", host)
	}
	if err := ensureImage(ctx, engine, image); err != nil {
		return "", err
	}

	name := containerName(image)
	patience, cancel := context.WithTimeout(ctx, 45*time.Second)
	defer cancel()
	for {
		ctr, err := postgres.Run(patience, image, quiet,
			testcontainers.WithReuseByName(name),
			testcontainers.WithCmd(command...),
			testcontainers.WithEnv(map[string]string{"PGDATA": memory + "/data"}),
			postgres.WithUsername(user),
			postgres.WithPassword(password),
			testcontainers.WithFiles(testcontainers.ContainerFile{
				Reader:            strings.NewReader(access),
				ContainerFilePath: accessFile,
				FileMode:          0o644,
			}),
			testcontainers.WithHostConfigModifier(func(config *container.HostConfig) {
				config.AutoRemove = true
				config.Tmpfs = map[string]string{memory: ""}
			}),
		)
		var url string
		if err == nil {
			url, err = ctr.ConnectionString(patience, "sslmode=disable")
		}
		if err == nil {
			err = storeCheaply(patience, url)
		}
		if err == nil {
			return direct(patience, engine, ctr, url), nil
		}
		select {
		case <-patience.Done():
			// An unreachable server does not end by itself.
			_, removeErr := engine.ContainerRemove(context.WithoutCancel(ctx), name,
				client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
			return "", errors.Join(err, removeErr)
		// The server may be starting, or the found container may be about to end. The module's own wait reads the server's
		// log from the beginning, which takes longer after each test: in a run of all tests a fifth of the processor time.
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// direct returns the URL of the server at the container's own address, if reachable from here, or else the given one.
// The published port leads through a proxy of the engine, which takes processor time from the tests.
func direct(ctx context.Context, engine client.APIClient, ctr *postgres.PostgresContainer, published string) string {
	if runtime.GOOS != "linux" || !strings.HasPrefix(engine.DaemonHost(), "unix://") {
		return published
	}
	address, err := ctr.ContainerIP(ctx)
	if err != nil || address == "" {
		return published
	}
	host := net.JoinHostPort(address, "5432")
	dialer := net.Dialer{Timeout: time.Second}
	conn, err := dialer.DialContext(ctx, "tcp", host)
	if err != nil {
		return published
	}
	_ = conn.Close()
	reached, err := url.Parse(published)
	if err != nil {
		return published
	}
	reached.Host = host
	return reached.String()
}

// containerName returns the name of the container with the image and the settings of this version of the package.
func containerName(image string) string {
	sum := crc32.NewIEEE()
	for _, part := range append([]string{image, memory, user, password, access}, command...) {
		fmt.Fprintf(sum, "%q", part)
	}
	return fmt.Sprintf("flowfabric-go-tests-%08x", sum.Sum32())
}

// storeCheaply stores the superuser's password as an MD5 hash, unless stored so already. The server asks for the method
// the stored form allows, and images store passwords for SCRAM.
func storeCheaply(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	// Other test binaries do the same at this moment: the lock keeps them from updating one row at once.
	_, err = conn.Exec(ctx, fmt.Sprintf(`
		DO $$
		BEGIN
			PERFORM pg_advisory_xact_lock(%d);
			IF (SELECT rolpassword NOT LIKE 'md5%%' FROM pg_authid WHERE rolname = '%s') THEN
				SET LOCAL password_encryption = 'md5';
				ALTER ROLE %s PASSWORD '%s';
			END IF;
		END
		$$`, passwordLock, user, user, password), pgx.QueryExecModeSimpleProtocol)
	return err
}

// passwordLock is the key of an advisory lock in the database postgres.
const passwordLock = 0x66667061

// ensureImage pulls the image unless the engine has it. It tries once: testcontainers itself would go on for a
// quarter of an hour while the registry is out of reach.
func ensureImage(ctx context.Context, engine client.APIClient, image string) error {
	if _, err := engine.ImageInspect(ctx, image); err == nil {
		return nil
	}
	pull, err := engine.ImagePull(ctx, image, client.ImagePullOptions{})
	if err == nil {
		err = pull.Wait(ctx)
	}
	if err != nil {
		return fmt.Errorf("pull %s: %w", image, err)
	}
	return nil
}
