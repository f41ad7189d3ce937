package pressure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"syscall"

	v1 "k8s.io/api/core/v1"
)

// OutOfMemory tells people of processes that the kernel has killed because the machine as a whole had no memory left.
// Those of a container that had used up its own are its statuses' to tell.
type OutOfMemory struct {
	Event func(kind, reason, message string) // about the node
	Log   *slog.Logger
}

// kernelLog is where the kernel tells of it; one read is one line.
const kernelLog = "/dev/kmsg"

// Run follows the kernel's log until ctx ends. Where that cannot be read, nothing is told.
func (o *OutOfMemory) Run(ctx context.Context) error {
	f, err := os.OpenFile(kernelLog, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err == nil {
		defer context.AfterFunc(ctx, func() { f.Close() })()
		if _, err = f.Seek(0, io.SeekEnd); err == nil {
			err = o.follow(f)
		}
	}
	if ctx.Err() == nil {
		o.Log.Info("it is not told which processes the kernel kills for want of memory", "err", err)
		<-ctx.Done()
	}
	return context.Cause(ctx)
}

var victim = regexp.MustCompile(`^Out of memory(?: \(oom_kill_allocating_task\))?: Kill(?:ed)? process (\d+) \((.*)\) (?:total-vm|score)`)

// follow reads lines until one cannot be.
func (o *OutOfMemory) follow(log io.Reader) error {
	line := make([]byte, 8<<10)
	for {
		n, err := log.Read(line)
		switch {
		case errors.Is(err, syscall.EPIPE): // so many lines came that some are lost
			continue
		case err != nil:
			return fmt.Errorf("read kernel log: %w", err)
		}
		_, text, _ := strings.Cut(string(line[:n]), ";") // before it: level, number and time
		if m := victim.FindStringSubmatch(text); m != nil {
			o.Event(v1.EventTypeWarning, "SystemOOM", fmt.Sprintf("System OOM encountered, victim process: %s, pid: %s", m[2], m[1]))
		}
	}
}
