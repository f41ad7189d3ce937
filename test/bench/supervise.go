package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// insideEnv tells the process that measures where it may put files.
const insideEnv = "KEMUDI_BENCH_DIR"

// dirPrefix starts the name of the directory of a benchmark.
const dirPrefix = "kemudi-bench"

// supervise builds what the parts asked for need, runs this program again in a
// network namespace of its own, where it measures, and removes what that leaves
// behind, however it ends.
func supervise(ctx context.Context, b *bench) (err error) {
	if b.dir, err = os.MkdirTemp("", dirPrefix); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	// Building may download modules, which the namespace has no way to.
	var tests []goTest
	switch {
	case b.wanted("tests"):
		tests = goTests
	case b.only == "net":
		tests = b.netTests()
	}
	if err := b.prepare(ctx, b.wanted("node"), tests); err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.CommandContext(ctx, exe, os.Args[1:]...)
	cmd.Env = append(os.Environ(), insideEnv+"="+b.dir)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start in a network namespace: %w; this needs root", err)
	}
	netns, err := os.Open("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/ns/net")
	if err != nil {
		return errors.Join(fmt.Errorf("keep network namespace: %w", err), cmd.Process.Kill(), cmd.Wait())
	}
	defer netns.Close()
	err = cmd.Wait()
	node, plane := places(b.dir)
	for _, p := range []place{node, plane, simulated(b.dir), joined(b.dir), many(b.dir), alone(b.dir), memberPlace(b.dir, 0), memberPlace(b.dir, 1), memberPlace(b.dir, 2)} {
		err = errors.Join(err, p.wipe(context.WithoutCancel(ctx), b.bin, netns), forgetMemory(filepath.Dir(p.data)))
	}
	return errors.Join(err, forgetMemory(memoryDir(b.dir)))
}

// install copies a program into a folder, and is then what bin names. A program that is
// mapped takes as much memory as the system's cache has of it in one piece, from a page to
// 2 MiB: the linker leaves some in large pieces and some not, which is up to 20 MiB of a
// server at rest. Copied like this, as what installs programs does, all are alike.
func install(bin *string, dir string) error {
	from, err := os.Open(*bin)
	if err != nil {
		return fmt.Errorf("install program: %w", err)
	}
	defer from.Close()
	path := filepath.Join(dir, filepath.Base(*bin))
	to, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return fmt.Errorf("install program: %w", err)
	}
	// Neither end has a method by which the kernel would copy in pieces of its own choice.
	_, err = io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, 32<<10))
	if err = errors.Join(err, to.Close()); err != nil {
		return fmt.Errorf("install program: %w", err)
	}
	*bin = path
	return nil
}

// A place is the directories of one server.
type place struct {
	data, run, logs string
	args            []string // the command line of the server
}

// newPlace is a place in the directory of a benchmark. Its server is run by the arguments.
func newPlace(dir, name string, args ...string) place {
	p := place{
		data: filepath.Join(dir, name, "data"), logs: filepath.Join(dir, name, "pods"),
		run: "/run/kb" + strings.TrimPrefix(filepath.Base(dir), dirPrefix) + name[:1],
	}
	p.args = append(args, "--data-dir", p.data, "--run-dir", p.run)
	return p
}

// places are where the servers of a benchmark with this directory are: the one
// with a node, and the control plane alone.
func places(dir string) (node, plane place) {
	node, plane = newPlace(dir, "node", "server"), newPlace(dir, "plane", "server", "--disable-agent", "--secure-port", planePort)
	for _, p := range []*place{&node, &plane} {
		p.args = append(p.args, "--pod-logs-dir", p.logs)
	}
	return node, plane
}

// simulated is where a cluster of simulated nodes is.
func simulated(dir string) place {
	return newPlace(dir, "simulated", "simulate", "--profile", pools(dir), "--secure-port", planePort)
}

// pools is the file that says which nodes those are.
func pools(dir string) string { return filepath.Join(dir, "pools.yaml") }

// joined is where a server is whose agents are machines of their own.
func joined(dir string) place { return newPlace(dir, "joined", "server") }

// many is where a control plane is for agents that are simulated.
func many(dir string) place {
	return newPlace(dir, "many", "server", "--disable-agent", "--secure-port", planePort, "--cluster-cidr", "172.16.0.0/12")
}

// alone is where a control plane is for one agent that is simulated. It runs beside that for many.
func alone(dir string) place {
	return newPlace(dir, "watches", "server", "--disable-agent", "--secure-port", alonePort)
}

// alonePort is the port of that.
const alonePort = "7444"

// planePort is the port of the control plane that runs beside the server.
const planePort = "7443"

// wipe removes what a server left, if the benchmark could not.
func (p place) wipe(ctx context.Context, bin string, netns *os.File) error {
	if _, err := os.Stat(p.data); err != nil {
		return nil // it has been reset
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"--net=/proc/self/fd/3", bin}, p.reset()...)...)
	cmd.ExtraFiles = []*os.File{netns}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("clean up %s: %w\n%s", p.data, err, out)
	}
	return nil
}

// reset is the command line that removes every trace.
func (p place) reset() []string {
	return []string{"reset", "--data-dir", p.data, "--run-dir", p.run, "--kubeconfig", ""}
}

// remove removes every trace of the place, and fails if something is left.
func (p place) remove(ctx context.Context, bin string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, bin, p.reset()...).CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("nothing is left")) {
		return fmt.Errorf("reset %s: %w\n%s", p.data, err, out)
	}
	return nil
}
