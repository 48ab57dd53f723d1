package server

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Facts are the conditions that figures depend on besides the code.
type Facts struct {
	CPU      string            `json:"cpu"`
	Cores    int               `json:"cores"`
	MemoryGB float64           `json:"memory_gb,omitempty"`
	Platform string            `json:"platform"`
	Load     string            `json:"load_before,omitempty"` // averages over 1, 5 and 15 minutes
	Go       string            `json:"go"`
	Postgres string            `json:"postgres"`
	Settings map[string]string `json:"settings"`
}

// Facts reads the properties of this machine and the settings of the server. It cannot know whether both are one machine.
func (s *Server) Facts(ctx context.Context) (Facts, error) {
	f := Facts{
		CPU:      procField("/proc/cpuinfo", "model name"),
		Cores:    runtime.NumCPU(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Go:       runtime.Version(),
		Settings: make(map[string]string),
	}
	var kB float64
	if _, err := fmt.Sscanf(procField("/proc/meminfo", "MemTotal"), "%f kB", &kB); err == nil {
		f.MemoryGB = float64(int(kB/(1<<20)*10)) / 10
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		f.Load = strings.Join(strings.Fields(string(load))[:3], " ")
	}
	if err := s.admin.QueryRow(ctx, "select version()").Scan(&f.Postgres); err != nil {
		return f, err
	}
	rows, err := s.admin.Query(ctx, `
		select name, current_setting(name)
		from pg_settings
		where name in (
			'autovacuum', 'checkpoint_timeout', 'commit_delay', 'effective_cache_size', 'fsync', 'full_page_writes',
			'jit', 'max_connections', 'max_wal_size', 'random_page_cost', 'shared_buffers', 'synchronous_commit',
			'wal_buffers', 'wal_compression', 'wal_level', 'wal_sync_method', 'work_mem'
		)`)
	if err != nil {
		return f, err
	}
	var name, value string
	_, err = pgx.ForEachRow(rows, []any{&name, &value}, func() error {
		f.Settings[name] = value
		return nil
	})
	return f, err
}

// procField returns the first value of a field in a file of Linux's /proc, or "" on other systems.
func procField(path, field string) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == field {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
