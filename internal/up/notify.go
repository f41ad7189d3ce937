package up

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"time"
)

// NotifyEnv names the file descriptor on which a server reports its steps to
// whoever started it.
const NotifyEnv = "KEMUDI_NOTIFY_FD"

// systemdEnv names the socket on which a service tells systemd that it is ready:
// see sd_notify(3).
const systemdEnv = "NOTIFY_SOCKET"

// Step is one step of a start that has been done.
type Step struct {
	Name  string        `json:"name"`
	Took  time.Duration `json:"took"`            // since the step before it
	Ready bool          `json:"ready,omitempty"` // the last step: everything works
}

// Notifier reports steps to the process that asked for them. A nil Notifier
// reports to nobody. Its methods may be called concurrently.
type Notifier struct {
	mu struct {
		sync.Mutex
		w       io.WriteCloser // nil: nobody who reads steps
		systemd io.WriteCloser // told only of the last one; nil: it did not start us
		last    time.Time
	}
}

// NewNotifier returns the notifier that the environment asks for, or nil.
func NewNotifier() (*Notifier, error) {
	n := &Notifier{}
	n.mu.last = time.Now()
	if v := os.Getenv(NotifyEnv); v != "" {
		fd, err := strconv.Atoi(v)
		if err != nil {
			return nil, fmt.Errorf("%s=%q is not a file descriptor", NotifyEnv, v)
		}
		n.mu.w = os.NewFile(uintptr(fd), "notify")
	}
	if v := os.Getenv(systemdEnv); v != "" {
		conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: v, Net: "unixgram"})
		if err != nil {
			return nil, fmt.Errorf("notify systemd: %w", err)
		}
		n.mu.systemd = conn
	}
	for _, name := range []string{NotifyEnv, systemdEnv} { // not for the programs that the server starts
		if err := os.Unsetenv(name); err != nil {
			return nil, fmt.Errorf("unset %s: %w", name, err)
		}
	}
	if n.mu.w == nil && n.mu.systemd == nil {
		return nil, nil
	}
	return n, nil
}

// Done reports a step. After a ready one nothing more can be reported. Nobody
// listening any more is no reason to fail.
func (n *Notifier) Done(name string, ready bool) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if ready && n.mu.systemd != nil {
		_, _ = io.WriteString(n.mu.systemd, "READY=1")
		n.mu.systemd.Close()
		n.mu.systemd = nil
	}
	if n.mu.w == nil {
		return
	}
	now := time.Now()
	line, err := json.Marshal(Step{Name: name, Took: now.Sub(n.mu.last), Ready: ready})
	if err == nil {
		_, err = n.mu.w.Write(append(line, '\n'))
	}
	n.mu.last = now
	if ready || err != nil {
		n.mu.w.Close()
		n.mu.w = nil
	}
}

// follow calls fn with each step that comes from r, until the last one. It
// fails if r ends before that.
func follow(r io.Reader, fn func(Step)) error {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var s Step
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			return fmt.Errorf("read step %q: %w", lines.Text(), err)
		}
		fn(s)
		if s.Ready {
			return nil
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read steps: %w", err)
	}
	return io.ErrUnexpectedEOF
}
