package baremetal

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

const (
	// mostOutput is how much a hook may print; what is beyond is an error.
	mostOutput = 1 << 20
	// grace is how long a hook that was killed may hold its output open.
	grace = 2 * time.Second
)

// call runs a hook, and returns what it prints. It is ended when its time is over.
func (h *Hooks) call(ctx context.Context, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, h.Timeout.Duration, fmt.Errorf("it has not ended within %s", h.Timeout.Duration))
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.WaitDelay = grace
	// What the hook has started ends with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var out, said limited
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("hook %s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(said.b.String()))
	}
	return strings.TrimSpace(out.b.String()), nil
}

// limited keeps what a program prints, up to a limit.
type limited struct{ b bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	if l.b.Len()+len(p) > mostOutput {
		return 0, fmt.Errorf("it prints more than %d bytes", mostOutput)
	}
	return l.b.Write(p)
}
