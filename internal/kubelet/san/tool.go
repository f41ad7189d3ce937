package san

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// toolDeadline is how long a program of the machine may take, which waits for the network.
const toolDeadline = 2 * time.Minute

// ToolError is what a program of the machine has said when it failed. What it was told, which may be secret, is not in it.
type ToolError struct {
	Tool, Output string
	Err          error
}

func (e *ToolError) Error() string {
	if errors.Is(e.Err, exec.ErrNotFound) {
		return fmt.Sprintf("this machine has no program %s, which such volumes need", e.Tool)
	}
	return strings.TrimSpace(fmt.Sprintf("%s: %v\nOutput: %s", e.Tool, e.Err, e.Output))
}

func (e *ToolError) Unwrap() error { return e.Err }

// nothingFound is what iscsiadm ends with if there is nothing of what it is asked for.
const nothingFound = 21

// absent reports whether a program has failed because there is nothing of what it was asked for.
func absent(err error) bool {
	exit := (*exec.ExitError)(nil)
	return errors.As(err, &exit) && exit.ExitCode() == nothingFound
}

// tool runs a program of the machine, and returns what it has printed.
func (m Machine) tool(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, toolDeadline)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = time.Second // the kernel may hold it longer than it is waited for
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), &ToolError{Tool: name, Output: string(out), Err: err}
	}
	return string(out), nil
}
