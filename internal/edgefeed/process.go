package edgefeed

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/edge"
	"github.com/kemudi/kemudi/internal/kubelet/cgroup"
	"github.com/kemudi/kemudi/internal/task"
)

// process is an edge that runs, and the connection to it.
type process struct {
	*edge.Control
	child *os.Process // nil: it was not started by this process
}

// program is this one, also when it has been replaced on the disk: an edge is of the version of who
// feeds it.
const program = "/proc/self/exe"

// answerPatience is how long an edge may take until it says who it is.
const answerPatience = 30 * time.Second

// connect returns the edge of this machine: the one that runs, if it is of this version, or
// a new one (F2).
func (f *Feeder) connect(ctx context.Context) (*process, error) {
	p, hello, err := f.dial(ctx)
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx) // it may run: another in its place would make it unreachable for ever
	}
	if err == nil {
		if hello.Version == f.o.Version {
			f.o.Log.Debug("found the edge that runs", "process", hello.PID)
			return p, nil
		}
		f.o.Log.Info("the edge that runs is of another version, and leaves", "process", hello.PID, "version", hello.Version)
		leave(p)
	}
	child, err := f.start()
	if err != nil {
		return nil, err
	}
	if p, _, err = f.dial(ctx); err != nil {
		end(child)
		return nil, fmt.Errorf("start the edge: %w; see %s", err, f.o.LogFile)
	}
	p.child = child
	return p, nil
}

// dial connects to the edge that runs.
func (f *Feeder) dial(ctx context.Context) (*process, *edge.Hello, error) {
	ctx, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", Socket(f.o.RunDir))
	if err != nil {
		return nil, nil, err
	}
	p := &process{Control: edge.NewControl(conn)}
	stop := context.AfterFunc(ctx, func() { p.Close() })
	defer stop()
	var r edge.Report
	if err := p.Receive(&r); err != nil {
		return nil, nil, errors.Join(err, p.Close())
	}
	if r.Hello == nil {
		return nil, nil, errors.Join(errors.New("who answers on the edge's socket is no edge"), p.Close())
	}
	return p, r.Hello, nil
}

// leave tells an edge to finish what it does.
func leave(p *process) {
	_ = p.Send(edge.Order{Leave: true}) // who does not listen any more has left
	p.Close()
}

// dismiss ends the edge that runs, if there is one. An edge listens to who has connected last: if that is somebody else before
// it has heard, it is told again.
func (f *Feeder) dismiss(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	again := task.Backoff{Initial: 10 * time.Millisecond, Max: time.Second}
	for {
		p, hello, err := f.dial(ctx)
		switch {
		case err == nil:
			f.o.Log.Info("no Ingress is left: the edge leaves", "process", hello.PID)
			p.hear(ctx, edge.Order{Leave: true})
		case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
			return // it has closed its socket, or there is none
		}
		if err := task.Sleep(ctx, again.Next()); err != nil {
			return
		}
	}
}

// hear sends an edge the last order, and waits until it hangs up.
func (p *process) hear(ctx context.Context, last edge.Order) {
	defer p.Close()
	defer context.AfterFunc(ctx, func() { p.Close() })()
	err := p.Send(last)
	for err == nil {
		var r edge.Report
		err = p.Receive(&r)
	}
}

// start starts an edge, in a session and a cgroup of its own. It listens on its socket before
// it runs, so that nobody has to wait for that.
func (f *Feeder) start() (*os.Process, error) {
	path := Socket(f.o.RunDir)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove the socket of an edge that has ended: %w", err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("make the socket of the edge: %w", err)
	}
	l.SetUnlinkOnClose(false)
	defer l.Close()
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, fmt.Errorf("make the socket of the edge: %w", err)
	}
	socket, err := l.File()
	if err != nil {
		return nil, fmt.Errorf("hand over the socket of the edge: %w", err)
	}
	defer socket.Close()
	log, err := os.OpenFile(f.o.LogFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of the edge: %w", err)
	}
	defer log.Close()
	tree := cgroup.Open(cgroup.Top)
	if f.o.Cgroup != "" {
		if err := tree.Ensure(f.o.Cgroup, &runtimeapi.LinuxContainerResources{CpuShares: 1024}); err != nil {
			return nil, err
		}
	}
	cmd := exec.Command(program, "edge") // not tied to a context: it is to outlive us
	cmd.Args[0] = "kemudi"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{socket}
	cmd.Env = append(os.Environ(), edge.SocketEnv+"=3", edge.AccessLogEnv+"="+f.o.AccessLog)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the edge: %w", err)
	}
	if f.o.Cgroup != "" {
		if err := tree.Join(f.o.Cgroup, cmd.Process.Pid); err != nil {
			end(cmd.Process)
			return nil, err
		}
	}
	f.o.Log.Info("edge started", "process", cmd.Process.Pid)
	return cmd.Process, nil
}

// end kills a child and buries it.
func end(child *os.Process) {
	_ = child.Kill() // one that has ended already is only buried
	_, _ = child.Wait()
}

// bury waits until a child has ended that was told to leave, or until ctx ends: it lives on
// then.
func bury(ctx context.Context, child *os.Process) error {
	fd, err := unix.PidfdOpen(child.Pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("watch the edge, process %d: %w", child.Pid, err)
	}
	file := os.NewFile(uintptr(fd), "edge") // which the runtime waits for as for a socket
	defer file.Close()
	defer context.AfterFunc(ctx, func() { _ = file.SetReadDeadline(time.Now()) })()
	raw, err := file.SyscallConn()
	if err != nil {
		return fmt.Errorf("watch the edge, process %d: %w", child.Pid, err)
	}
	err = raw.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
	})
	if err != nil {
		return child.Release()
	}
	_, err = child.Wait()
	return err
}

// Reset ends the edge of a machine whose program does not run any more.
func Reset(ctx context.Context, runDir string) (removed []string, err error) {
	f := New(Options{RunDir: runDir})
	p, hello, err := f.dial(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, err
	case err == nil:
		fd, err := unix.PidfdOpen(hello.PID, 0)
		leave(p)
		if err == nil {
			defer unix.Close(fd)
			if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
				return nil, fmt.Errorf("end edge, process %d: %w", hello.PID, err)
			}
			removed = append(removed, fmt.Sprintf("process %d (edge)", hello.PID))
		}
	}
	path := Socket(runDir)
	if err := os.Remove(path); err == nil {
		removed = append(removed, "file "+path)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return removed, fmt.Errorf("remove %s: %w", filepath.Base(path), err)
	}
	return removed, nil
}
