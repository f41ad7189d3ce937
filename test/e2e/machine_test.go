package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/podnet/nettest"
	"github.com/kemudi/kemudi/test/wait"
)

// Addresses of a machine and of the neighbour at the other end of its cable.
const (
	machineIP   = "192.168.77.2"
	neighbourIP = "192.168.77.1"
)

// place is what a machine consists of, so that it can be removed.
type place struct {
	Bin     string `json:"bin"`
	Netns   string `json:"netns"` // the file that names the machine's network namespace
	Peer    string `json:"peer"`  // and its neighbour's
	Dir     string `json:"dir"`   // holds everything but the run directory
	DataDir string `json:"dataDir"`
	LogsDir string `json:"logsDir"`
	RunDir  string `json:"runDir"`
}

// machine is a computer in small: a network namespace with an address, cabled
// to a neighbour, and directories.
type machine struct {
	place
	*build
	host, neighbour *nettest.Host
	before          hostState
}

// room is for as many servers and agents as there may be at a time. Each wants a processor when it
// starts, and what they wait for meanwhile comes later and later.
var room = make(chan struct{}, 4)

// door is held by who enters: two who have half of what they want would wait for each other.
var door sync.Mutex

// enter waits for room until the end of the test.
func enter(t *testing.T, places int) {
	t.Helper()
	places = min(places, cap(room))
	door.Lock()
	defer door.Unlock()
	for range places {
		room <- struct{}{}
	}
	t.Cleanup(func() {
		for range places {
			<-room
		}
	})
}

// newMachine makes a machine for a server. At the end of the test it is reset, and the test
// fails if something of it is left.
func newMachine(t *testing.T) *machine {
	t.Helper()
	enter(t, 1)
	return makeMachine(t)
}

// makeMachine is newMachine for those who have entered.
func makeMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{build: need(t)}
	m.host, m.neighbour = nettest.New(t, "machine"), nettest.New(t, "neighbour")
	nettest.Link(m.host, "eth0", m.neighbour, "eth0")
	m.host.Addr("eth0", machineIP+"/24")
	m.neighbour.Addr("eth0", neighbourIP+"/24")
	m.host.Route("0.0.0.0/0", neighbourIP)
	return m.furnish(t)
}

// furnish gives a machine that is cabled its directories, and sees to its end.
func (m *machine) furnish(t *testing.T) *machine {
	t.Helper()
	dir, err := os.MkdirTemp("", "ke")
	if err != nil {
		t.Fatal(err)
	}
	var id [4]byte
	_, _ = rand.Read(id[:])
	m.place = place{
		Bin: m.bin, Netns: m.host.Path(), Peer: m.neighbour.Path(), Dir: dir, DataDir: filepath.Join(dir, "data"),
		LogsDir: filepath.Join(dir, "pods"), RunDir: "/run/ke" + hex.EncodeToString(id[:]),
	}
	if err := os.Mkdir(filepath.Join(dir, "home"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := m.order(order{Machine: &m.place}); err != nil {
		t.Fatal(err)
	}
	m.before = m.look(t)
	t.Cleanup(func() { m.end(t) })
	return m
}

// end resets the machine as a person would, and looks what is left.
func (m *machine) end(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), wait.Patience)
	defer cancel()
	out := m.run(ctx, nil, m.bin, "reset", "--data-dir", m.DataDir, "--run-dir", m.RunDir, "--kubeconfig", "")
	if out.code != 0 || !strings.Contains(out.stdout, "nothing is left") {
		t.Errorf("reset: exit code %d\n%s%s", out.code, out.stdout, out.stderr)
	}
	m.before.compare(t, m.look(t))
	if err := m.wipe(ctx); err != nil {
		t.Errorf("clean up: %v", err)
		return
	}
	if err := m.order(order{Done: m.RunDir}); err != nil {
		t.Error(err)
	}
}

// wipe removes the machine by force. It needs nothing of it to be whole.
func (p *place) wipe(ctx context.Context) error {
	var errs []error
	if _, err := os.Stat(p.DataDir); err == nil {
		out, err := exec.CommandContext(ctx, "nsenter", "--net="+p.Netns, p.Bin, "reset", "--data-dir", p.DataDir, "--run-dir", p.RunDir, "--kubeconfig", "").CombinedOutput()
		if err != nil {
			errs = append(errs, fmt.Errorf("reset: %w\n%s", err, out))
		}
	}
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(p.Dir))
	errs = append(errs, err)
	for i := len(mounts) - 1; i >= 0; i-- {
		errs = append(errs, unix.Unmount(mounts[i].Mountpoint, unix.MNT_DETACH))
	}
	errs = append(errs, os.RemoveAll(p.Dir), os.RemoveAll(p.RunDir))
	further, err := filepath.Glob(p.RunDir + "-*") // of machines in a machine
	errs = append(errs, err)
	for _, dir := range further {
		errs = append(errs, os.RemoveAll(dir))
	}
	if os.Getenv(janitorEnv) != "" { // else the test removes them
		for _, name := range []string{p.Netns, p.Peer} {
			_ = unix.Unmount(name, unix.MNT_DETACH)
			_ = os.Remove(name)
		}
	}
	return errors.Join(errs...)
}

// output is what a program said.
type output struct {
	stdout, stderr string
	code           int
}

// all is everything it said, for error messages.
func (o output) all() string { return o.stdout + o.stderr }

// start starts a program on the machine.
func (m *machine) start(cmd *exec.Cmd) error { return m.host.Do(cmd.Start) }

// command is a program to run on the machine, with a home and the access to
// the cluster of its own.
func (m *machine) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = m.Dir
	cmd.Env = append(os.Environ(), "HOME="+filepath.Join(m.Dir, "home"), "KUBECONFIG="+m.adminKubeconfig())
	cmd.WaitDelay = time.Minute
	return cmd
}

func (m *machine) adminKubeconfig() string { return filepath.Join(m.DataDir, "admin.kubeconfig") }

// run runs a program on the machine to its end.
func (m *machine) run(ctx context.Context, stdin io.Reader, args ...string) output {
	var stdout, stderr bytes.Buffer
	cmd := m.command(ctx, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &stdout, &stderr
	err := m.start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	o := output{stdout: stdout.String(), stderr: stderr.String(), code: cmd.ProcessState.ExitCode()}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		o.stderr += err.Error() + "\n"
		o.code = -1
	}
	if ctx.Err() != nil {
		o.stderr += "the test gave up waiting\n"
	}
	return o
}

// httpClient sends requests from a host. Connections are not reused: each
// request may go elsewhere.
func httpClient(h *nettest.Host) *http.Client {
	return &http.Client{
		Timeout:   time.Minute,
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: dialer(h)},
	}
}

// get fetches a URL from a host, once.
func get(h *nettest.Host, url string) (string, error) {
	resp, err := httpClient(h).Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %s", url, resp.Status, body)
	}
	return string(body), err
}

// patient is the patience of tests for kubectl.
var patient = "--timeout=" + wait.Patience.String()

// dialer connects from a host.
func dialer(h *nettest.Host) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (c net.Conn, err error) {
		err = h.Do(func() error {
			c, err = (&net.Dialer{}).DialContext(ctx, network, addr)
			return err
		})
		return c, err
	}
}
