package container

import (
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// An engine elsewhere is not asked if the one that DOCKER_HOST names does not answer: .ci/run relies on it.
func TestRunAsksTheEngineOfDockerHostOnly(t *testing.T) {
	folder := t.TempDir()
	listener, err := net.Listen("unix", filepath.Join(folder, "docker.sock")) // where testcontainers looks last
	if err != nil {
		t.Fatal(err)
	}
	other := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte("{}"))
	})}
	go func() { _ = other.Serve(listener) }()
	t.Cleanup(func() { _ = other.Close() })
	t.Setenv("HOME", folder)
	t.Setenv("XDG_RUNTIME_DIR", folder)
	t.Setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")

	url, err := Run(t.Context(), "no-such-registry.invalid/no-such-image")
	if err == nil || !strings.Contains(err.Error(), "unix:///nonexistent/docker.sock, which DOCKER_HOST names") {
		t.Errorf("Run returned %q, %v", url, err)
	}
}

// A container with other settings must not be taken for this one.
func TestContainerNameDependsOnTheSettings(t *testing.T) {
	names := map[string]string{containerName("postgres:15"): "the default"}
	want := func(what, name string) {
		t.Helper()
		if other, taken := names[name]; taken {
			t.Errorf("%s and %s share the name %s", what, other, name)
		}
		names[name] = what
	}
	want("another image", containerName("postgres:18"))

	oldCommand, oldAccess := command, access
	t.Cleanup(func() { command, access = oldCommand, oldAccess })
	command = append(oldCommand[:len(oldCommand):len(oldCommand)], "-c", "fsync=on")
	want("another setting", containerName("postgres:15"))
	command, access = oldCommand, "host all all all trust\n"
	want("another method", containerName("postgres:15"))
}
