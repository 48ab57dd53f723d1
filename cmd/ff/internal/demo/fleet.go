package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// Protocol between the demo and a worker process. The process first reads a [workerConfig] from standard input. Then
// the process writes a line before hashing an execution, and continues when a line comes back. At the end of the input
// the process finishes its work and exits.
const (
	askLine   = "start?\n"
	grantLine = "start\n"
)

// fleet is the worker processes of a run. The fleet kills one process instead of answering question number killAt. The
// killed process holds at least one lease.
type fleet struct {
	cancel  context.CancelFunc
	running sync.WaitGroup
	failed  chan error // a process ended without being killed or stopped

	killAt int // number of the unanswered question
	onKill func(pid int)

	mu      sync.Mutex
	asked   int
	stopped bool
}

// process is one worker of a fleet.
type process struct {
	cmd       *exec.Cmd
	input     io.WriteCloser
	output    io.ReadCloser
	complaint bytes.Buffer // its standard error
}

// startFleet starts n processes. newCommand returns the command of one; startFleet sets the input and output.
func startFleet(
	ctx context.Context, n int, newCommand func(context.Context) *exec.Cmd, config workerConfig,
	killAt int, onKill func(pid int),
) (*fleet, error) {
	ctx, cancel := context.WithCancel(ctx)
	f := &fleet{cancel: cancel, failed: make(chan error, n), killAt: killAt, onKill: onKill}
	greeting, err := json.Marshal(config)
	if err != nil {
		cancel()
		return nil, err
	}
	for range n {
		p, err := startProcess(newCommand(ctx), append(greeting, '\n'))
		if err != nil {
			f.stop()
			return nil, fmt.Errorf("start a worker process: %w", err)
		}
		f.running.Go(func() { f.serve(p) })
	}
	return f, nil
}

func startProcess(cmd *exec.Cmd, greeting []byte) (*process, error) {
	p := &process{cmd: cmd}
	cmd.Stderr = &p.complaint
	var err error
	if p.input, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if p.output, err = cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	cmd.Cancel = p.input.Close
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	// If the process dies first, serve notices.
	_, _ = p.input.Write(greeting)
	return p, nil
}

// serve answers a process until the process ends.
func (f *fleet) serve(p *process) {
	killed := false
	for lines := bufio.NewScanner(p.output); lines.Scan(); {
		if killed {
			continue
		}
		if killed = f.turn(); killed {
			_ = p.cmd.Process.Kill()
			f.onKill(p.cmd.Process.Pid)
			continue
		}
		_, _ = io.WriteString(p.input, grantLine)
	}
	err := p.cmd.Wait()
	if killed || f.isStopped() {
		return
	}
	last := strings.TrimSpace(p.complaint.String())
	last = last[strings.LastIndexByte(last, '\n')+1:]
	f.failed <- fmt.Errorf("worker process %d ended by itself (%v): %s", p.cmd.Process.Pid, err, last)
}

// turn counts a question and reports whether to kill its process.
func (f *fleet) turn() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	return f.asked == f.killAt
}

func (f *fleet) isStopped() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stopped
}

// stop makes the processes finish, and waits until all have ended.
func (f *fleet) stop() {
	f.mu.Lock()
	f.stopped = true
	f.mu.Unlock()
	f.cancel()
	f.running.Wait()
}
