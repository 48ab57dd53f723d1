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

// What the demo and a worker process say to each other. The process first reads a [workerConfig] from its standard
// input. Then it writes a line before each execution that it is about to hash, and goes on when a line comes back.
// The end of its input tells it to finish what it holds and exit.
const (
	askLine   = "start?\n"
	grantLine = "start\n"
)

// A fleet is the worker processes of a run. The one whose question is the killAt-th is killed instead of answered. So it
// holds the lease of at least the execution that it asked about when it dies.
type fleet struct {
	cancel  context.CancelFunc
	running sync.WaitGroup
	failed  chan error // a process ended that nobody killed or told to

	killAt int // the question that is not answered
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

// startFleet starts n processes. newCommand makes the command of one; it gets its input and output here.
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
	// A process that dies first is noticed by serve.
	_, _ = p.input.Write(greeting)
	return p, nil
}

// serve answers a process until it ends.
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

// turn counts an execution that is about to start and reports whether its process is the one to kill.
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

// stop tells the processes to finish, and returns when all have ended.
func (f *fleet) stop() {
	f.mu.Lock()
	f.stopped = true
	f.mu.Unlock()
	f.cancel()
	f.running.Wait()
}
