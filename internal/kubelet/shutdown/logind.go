package shutdown

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/kemudi/kemudi/internal/task"
)

const (
	loginName    = "org.freedesktop.login1"
	loginPath    = "/org/freedesktop/login1"
	loginManager = "org.freedesktop.login1.Manager"
)

// ConfDir is where settings of systemd-logind are that go with the machine's shutdown, ConfName the file of ours there.
const (
	ConfDir  = "/run/systemd/logind.conf.d"
	ConfName = "99-kemudi.conf"
)

// Reset removes the settings of systemd-logind that an agent has made there, and returns their file.
func Reset(dir string) ([]string, error) {
	file := filepath.Join(dir, ConfName)
	err := os.Remove(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("remove settings of systemd-logind: %w", err)
	}
	return []string{file}, nil
}

// logind is a connection to systemd-logind.
type logind struct {
	conn    *dbus.Conn
	signals chan *dbus.Signal // closed when the connection has ended
}

// connect connects to systemd-logind by a bus (empty: the machine's), and begins to listen to its signals.
func connect(ctx context.Context, bus string) (*logind, error) {
	dial := func() (*dbus.Conn, error) { return dbus.ConnectSystemBus(dbus.WithContext(ctx)) }
	if bus != "" {
		dial = func() (*dbus.Conn, error) { return dbus.Connect(bus, dbus.WithContext(ctx)) }
	}
	conn, err := dial()
	if err != nil {
		return nil, fmt.Errorf("connect to D-Bus: %w", err)
	}
	l := &logind{conn: conn, signals: make(chan *dbus.Signal, 1)} // buffered, as who sends to it does not wait
	conn.Signal(l.signals)
	err = conn.AddMatchSignalContext(ctx, dbus.WithMatchObjectPath(loginPath), dbus.WithMatchInterface(loginManager), dbus.WithMatchMember("PrepareForShutdown"))
	if err == nil {
		_, err = l.maxDelay() // it may not be there
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("follow systemd-logind: %w", err), conn.Close())
	}
	return l, nil
}

// maxDelay is how long a shutdown can be held up.
func (l *logind) maxDelay() (time.Duration, error) {
	v, err := l.conn.Object(loginName, loginPath).GetProperty(loginManager + ".InhibitDelayMaxUSec")
	if err != nil {
		return 0, fmt.Errorf("ask for how long a shutdown can be held up: %w", err)
	}
	micros, ok := v.Value().(uint64)
	if !ok {
		return 0, fmt.Errorf("ask for how long a shutdown can be held up: got %v", v)
	}
	return time.Duration(micros) * time.Microsecond, nil
}

// reloadTries is how often it is looked whether a service has read its settings again, of which it does not tell.
const reloadTries = 5

// allow lets shutdowns be held up for as long as wanted, if they cannot be already.
func (l *logind) allow(ctx context.Context, wanted time.Duration, dir string) error {
	have, err := l.maxDelay()
	if err != nil || have >= wanted {
		return err
	}
	text := fmt.Sprintf("# Written by the node agent, for --shutdown-grace-period.\n[Login]\nInhibitDelayMaxSec=%.0f\n", wanted.Seconds())
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("let shutdowns be held up: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, ConfName), []byte(text), 0o644); err != nil { //nolint:gosec // who reads it is another user
		return fmt.Errorf("let shutdowns be held up: %w", err)
	}
	call := l.conn.Object("org.freedesktop.systemd1", "/org/freedesktop/systemd1").CallWithContext(ctx, "org.freedesktop.systemd1.Manager.KillUnit", 0,
		"systemd-logind.service", "all", int32(syscall.SIGHUP))
	if call.Err != nil {
		return fmt.Errorf("have systemd-logind read its settings: %w", call.Err)
	}
	again := task.Backoff{Initial: 100 * time.Millisecond, Max: 2 * time.Second}
	for range reloadTries {
		if have, err = l.maxDelay(); err != nil || have >= wanted {
			return err
		}
		if err := task.Sleep(ctx, again.Next()); err != nil {
			return err
		}
	}
	return fmt.Errorf("shutdowns can be held up for %s, want %s: something says InhibitDelayMaxSec in the settings of systemd-logind", have, wanted)
}

// inhibit holds up the next shutdown until release is called.
func (l *logind) inhibit(ctx context.Context) (release func(), err error) {
	var fd dbus.UnixFD
	err = l.conn.Object(loginName, loginPath).CallWithContext(ctx, loginManager+".Inhibit", 0,
		"shutdown", "kubelet", "Pods of the node need time to end", "delay").Store(&fd)
	if err != nil {
		return nil, fmt.Errorf("hold up shutdowns: %w", err)
	}
	file := os.NewFile(uintptr(fd), "inhibitor lock")
	return func() { _ = file.Close() }, nil // which nobody has written to
}
