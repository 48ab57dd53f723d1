// Package container runs a Postgres server in a container, for the tests and for whoever finds a server as they do.
package container

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log"
	"os"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/modules/postgres"
)

// memory is where the container has a file system in memory, for the server's files: many are made and removed
// (internal/pgserver/memory.go), and none outlives the container.
const memory = "/memory"

// Run finds or starts the container that every test binary on this engine shares, and returns the URL of the
// server in it. The server ends by itself when it is not used (internal/pgserver), and its container is removed with
// it; so there is no work for the reaper of testcontainers, which would only be one more image to pull.
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
	if err := ensureImage(ctx, engine, image); err != nil {
		return "", err
	}

	name := fmt.Sprintf("flowfabric-go-tests-%08x", crc32.ChecksumIEEE([]byte(image)))
	patience, cancel := context.WithTimeout(ctx, 45*time.Second)
	defer cancel()
	for {
		ctr, err := postgres.Run(patience, image, quiet,
			testcontainers.WithReuseByName(name),
			testcontainers.WithCmd("postgres", "-c", "fsync=off", "-c", "full_page_writes=off", "-c", "max_connections=300",
				"-c", "max_wal_size=128MB"),
			testcontainers.WithEnv(map[string]string{"PGDATA": memory + "/data"}),
			testcontainers.WithHostConfigModifier(func(config *container.HostConfig) {
				config.AutoRemove = true
				config.Tmpfs = map[string]string{memory: ""}
			}),
			postgres.BasicWaitStrategies(),
		)
		var url string
		if err == nil {
			url, err = ctr.ConnectionString(patience, "sslmode=disable")
		}
		if err == nil {
			return url, nil
		}
		select {
		case <-patience.Done():
			// A server that cannot be reached does not end by itself.
			_, removeErr := engine.ContainerRemove(context.WithoutCancel(ctx), name,
				client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
			return "", errors.Join(err, removeErr)
		case <-time.After(time.Second): // a container of this name may be on its way out, and may have been found before it went
		}
	}
}

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
