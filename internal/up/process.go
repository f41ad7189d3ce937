package up

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// RealDir is the absolute path of a directory without links in it, as the kernel
// names it in its tables of mounts and processes. The directory itself and parents of
// it may be missing.
func RealDir(dir string) (string, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	missing := ""
	for {
		real, err := filepath.EvalSymlinks(path)
		if err == nil {
			return filepath.Join(real, missing), nil
		}
		if !errors.Is(err, os.ErrNotExist) || path == "/" {
			return "", err
		}
		path, missing = filepath.Dir(path), filepath.Join(filepath.Base(path), missing)
	}
}

// PIDFile is where a running server keeps its process ID. It holds a lock on
// the file as long as it lives, so a stale file is recognized.
func PIDFile(runDir string) string { return filepath.Join(runDir, "kemudi.pid") }

// ErrRunning says that another server or agent runs with the same directories.
var ErrRunning = errors.New("a server or an agent is running already")

// Claim writes this process's ID to the PID file and locks it until the lock
// is closed or the process ends. It fails with ErrRunning if another process
// holds the lock.
func Claim(runDir string) (lock *os.File, _ error) {
	return claim(PIDFile(runDir), 0o755, "run directory "+runDir)
}

// ClaimData does the same in a data directory, which servers with different
// run directories must not share either.
func ClaimData(dataDir string) (lock *os.File, _ error) {
	return claim(filepath.Join(dataDir, "server.lock"), 0o700, "data directory "+dataDir)
}

func claim(file string, mode os.FileMode, what string) (lock *os.File, _ error) {
	if err := os.MkdirAll(filepath.Dir(file), mode); err != nil {
		return nil, fmt.Errorf("make %s: %w", what, err)
	}
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC, 0o644)
	if err != nil {
		return nil, fmt.Errorf("claim %s: %w", what, err)
	}
	if err := lockAlone(f); err != nil {
		pid, _ := os.ReadFile(f.Name())
		f.Close()
		return nil, fmt.Errorf("%w (process %s, %s)", ErrRunning, strings.TrimSpace(string(pid)), what)
	}
	if err := f.Truncate(0); err != nil {
		return nil, fmt.Errorf("claim %s: %w", what, err)
	}
	if _, err := f.WriteString(strconv.Itoa(os.Getpid()) + "\n"); err != nil {
		return nil, fmt.Errorf("claim %s: %w", what, err)
	}
	return f, nil
}

// lockTries is how often a lock is tried that those who only look hold for a moment.
const lockTries = 30

// lockAlone locks a file unless another process keeps it locked.
func lockAlone(f *os.File) error {
	for i := 1; ; i++ {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) || i == lockTries {
			return err
		}
		if err := pause(); err != nil {
			return err
		}
	}
}

// pause waits 10 ms, or until a signal.
func pause() error {
	if _, err := unix.Poll(nil, 10); err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("wait: %w", err)
	}
	return nil
}

// Running returns the process ID of the running server, or 0.
func Running(runDir string) (int, error) {
	f, err := os.Open(PIDFile(runDir))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("open pid file: %w", err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err == nil {
		return 0, nil // nobody holds it
	}
	data, err := os.ReadFile(f.Name())
	for i := 1; i < lockTries && err == nil && len(data) == 0; i++ { // it has been locked just now
		if err = pause(); err == nil {
			data, err = os.ReadFile(f.Name())
		}
	}
	if err != nil {
		return 0, fmt.Errorf("read pid file: %w", err)
	}
	if len(data) == 0 {
		return 0, nil // whoever has locked it is not a server yet
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return 0, fmt.Errorf("read pid file: %w", err)
	}
	return pid, nil
}

// open returns the process that runs, to be closed; pid is 0 if there is none.
func open(runDir string) (fd, pid int, err error) {
	if pid, err = Running(runDir); err != nil || pid == 0 {
		return 0, 0, err
	}
	fd, err = unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return 0, 0, nil
	}
	if err != nil {
		return 0, 0, fmt.Errorf("open process %d: %w", pid, err)
	}
	// From here on the descriptor is of one process, whatever gets its ID later. It
	// is the server's if that is still there.
	if still, err := Running(runDir); err != nil || still != pid {
		unix.Close(fd)
		return 0, 0, err
	}
	return fd, pid, nil
}

// stopPatience is how long a server may take to stop in order.
const stopPatience = 30 * time.Second

// Down stops the running server and waits until it has ended; containers keep
// running, unless the cluster is in memory. It returns false if there was none.
func Down(ctx context.Context, dataDir, runDir string) (bool, error) {
	fd, pid, err := open(runDir)
	if err != nil || pid == 0 {
		return false, err
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0); err != nil {
		return false, fmt.Errorf("stop process %d: %w", pid, err)
	}
	patience := stopPatience
	if Ephemeral(dataDir) {
		patience += ForgetPatience
	}
	if err := waitExit(ctx, fd, patience); err == nil {
		return true, nil
	} else if ctx.Err() != nil {
		return false, err
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return false, fmt.Errorf("kill process %d: %w", pid, err)
	}
	return true, waitExit(ctx, fd, stopPatience)
}

// waitExit waits until the process behind a pidfd has ended.
func waitExit(ctx context.Context, fd int, patience time.Duration) error {
	// A pipe lets the end of ctx wake the poll.
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("make pipe: %w", err)
	}
	defer unix.Close(p[0])
	stop := context.AfterFunc(ctx, func() { unix.Close(p[1]) })
	defer func() {
		if stop() {
			unix.Close(p[1])
		}
	}()
	deadline := time.Now().Add(patience)
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return fmt.Errorf("process has not ended after %s", patience)
		}
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(p[0]), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, int(left.Milliseconds())+1); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for process: %w", err)
		}
		if fds[0].Revents != 0 {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}
