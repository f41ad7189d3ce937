//go:build !race

package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kemudi/kemudi/internal/join"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/internal/up"
	"github.com/kemudi/kemudi/test/stuck"
	"github.com/kemudi/kemudi/test/wait"
)

// serverEnv has the settings of a child process that is a server.
const serverEnv = "KEMUDI_TEST_SERVER"

// childSettings are those of a server in a process of its own.
type childSettings struct {
	Dir, Name, Token string
	Servers          []string
	Port, PeerPort   uint16
}

func TestChildIsAServer(t *testing.T) {
	text := os.Getenv(serverEnv)
	if text == "" {
		t.Skip("only as the child of other tests")
	}
	var c childSettings
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	s := newOneServer(t, c.Name)
	s.o.DataDir, s.o.RunDir = c.Dir+"/data", c.Dir+"/run"
	s.o.SecurePort, s.o.Joining.PeerPort, s.o.Joining.Servers = c.Port, c.PeerPort, c.Servers
	if c.Token != "" {
		var err error
		if s.o.Joining.Token, err = join.ParseToken(c.Token); err != nil {
			t.Fatal(err)
		}
	}
	s.o.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	s.o.Step = func(_ string, done bool) {
		if done {
			fmt.Printf("\nready\n")
		}
	}
	if err := Run(t.Context(), s.o); err != nil {
		fmt.Printf("\nended: %v\n", err)
	}
}

// child is a server in a process of its own.
type child struct {
	*oneServer
	join  []string // URLs of servers
	token string

	cmd   *exec.Cmd
	lines chan string // what it says; closed when it has ended
	log   *os.File
}

func newChild(t *testing.T, name string) *child {
	t.Helper()
	c := &child{oneServer: newOneServer(t, name)}
	t.Cleanup(func() {
		if c.cmd != nil {
			c.kill()
		}
	})
	return c
}

// run starts the process, and is called again after kill.
func (c *child) run() {
	c.Helper()
	exe, err := os.Executable()
	if err != nil {
		c.Fatal(err)
	}
	text, err := json.Marshal(childSettings{
		Dir: filepath.Dir(c.o.DataDir), Name: c.o.NodeName, Token: c.token, Servers: c.join, Port: c.o.SecurePort, PeerPort: c.o.Joining.PeerPort,
	})
	if err != nil {
		c.Fatal(err)
	}
	c.cmd = exec.Command(exe, "-test.run=^TestChildIsAServer$")
	c.cmd.Env = append(os.Environ(), serverEnv+"="+string(text), "KEMUDI_TRACE_DIR=")
	if c.log, err = os.OpenFile(filepath.Dir(c.o.DataDir)+"/log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		c.Fatal(err)
	}
	c.cmd.Stderr = c.log
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		c.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		c.Fatal(err)
	}
	stuck.Guard(c.T, c.cmd, c.log.Name())
	lines := make(chan string, 100) // more than it says
	go func() {
		defer close(lines)
		s := bufio.NewScanner(io.LimitReader(out, 1<<20))
		for s.Scan() {
			lines <- s.Text()
		}
		if err := s.Err(); err != nil { // it was killed, or says more in a line than anybody reads
			lines <- "cannot be read: " + err.Error()
		}
	}()
	c.lines = lines
}

// kill kills the process with all that it is about to do.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
	_ = c.log.Close()
}

// says waits until the process says a line that begins so, and returns it.
func (c *child) says(prefix string) string {
	c.Helper()
	over := time.After(wait.Patience)
	for {
		select {
		case line, ok := <-c.lines:
			if !ok {
				c.tell()
				c.Fatalf("%s has ended and has not said %q", c.o.NodeName, prefix)
			}
			if strings.HasPrefix(line, prefix) {
				return line
			}
			if strings.HasPrefix(line, "ended") {
				c.tell()
				c.Fatalf("%s: %s, want %q", c.o.NodeName, line, prefix)
			}
		case <-over:
			c.tell()
			c.Fatalf("%s has not said %q after %s", c.o.NodeName, prefix, wait.Patience)
		}
	}
}

// tell shows the end of the process's log and what it does, which ends it.
func (c *child) tell() { stuck.Explain(c.T, c.cmd, c.log.Name()) }

// killWhen kills the process as soon as f holds, starts it again and reports whether it
// was killed; it was not if f does not hold when it is ready.
func (c *child) killWhen(f func() bool) bool {
	c.Helper()
	if !c.endWhen(f) {
		return false
	}
	c.run()
	return true
}

// endWhen is killWhen without another start.
func (c *child) endWhen(f func() bool) bool {
	c.Helper()
	over := time.After(wait.Patience)
	for !f() {
		select {
		case line, ok := <-c.lines:
			if ok && line == "ready" && !f() {
				return false
			}
			if !ok || strings.HasPrefix(line, "ended") {
				c.tell()
				c.Fatalf("%s ended before it was killed: %s", c.o.NodeName, line)
			}
		case <-over:
			c.tell()
			c.Fatalf("%s has not come so far after %s", c.o.NodeName, wait.Patience)
		case <-time.After(time.Millisecond):
		}
	}
	c.kill()
	return true
}

// has reports whether there is a file in the data directory.
func (c *child) has(name string) func() bool {
	return func() bool {
		_, err := os.Stat(filepath.Join(c.o.DataDir, name))
		return err == nil
	}
}

// stands reports whether the server has noted that place.
func (c *child) stands(f func(standing) bool) func() bool {
	return func() bool {
		m, err := openMembership(c.o.DataDir)
		return err == nil && f(m.get())
	}
}

func TestServersSurviveAKillAtEachStepOfAJoinAndOfARemoval(t *testing.T) {
	t.Parallel()
	trace.Proves(t, "COMP-005")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	first := newChild(t, "n0")
	first.run()
	first.says("ready")
	var written []string
	write := func(by *child) {
		t.Helper()
		name := fmt.Sprintf("w%d", len(written))
		by.write(name)
		written = append(written, name)
	}
	write(first)
	token := first.oneServer.token(up.TokenOptions{Server: true, Uses: 2})

	second := newChild(t, "n1")
	second.join, second.token = []string{first.url()}, token
	second.killedAtEachStep(r, func() { write(first) })
	write(second)

	// So is the server that takes a machine in, which is one of two: without it nothing is written.
	third := newChild(t, "n2")
	third.join, third.token = []string{second.url()}, token
	third.run()
	for range 3 {
		_ = task.Sleep(t.Context(), time.Duration(r.IntN(2000))*time.Millisecond)
		second.kill()
		second.run()
		second.says("ready")
	}
	third.says("ready")
	write(third)
	if got, want := third.members(), "n0 voter, n1 voter, n2 voter"; got != want {
		t.Errorf("got members %s, want %s", got, want)
	}

	for _, gone := range []*child{third, second} {
		first.killedWhileRemoving(r, gone)
		write(first)
	}
	first.isSingle()
	first.kill()
	first.run()
	first.says("ready")
	first.sees(written...)
	if got := first.members(); got != "n0 voter" {
		t.Errorf("got members %s, want n0 alone", got)
	}
}

// TestWhoWasCutOffBeforeItsStoreBeganJoinsTheServersThereAreNow kills a server when it knows which
// members there are, and before it has their log: the member that it was to be is seated anew, as
// the others may be others by then.
func TestWhoWasCutOffBeforeItsStoreBeganJoinsTheServersThereAreNow(t *testing.T) {
	t.Parallel()
	first, second, third := newChild(t, "n0"), newChild(t, "n1"), newChild(t, "n2")
	first.run()
	first.says("ready")
	token := first.oneServer.token(up.TokenOptions{Server: true, Uses: 3})
	for _, c := range []*child{second, third} {
		c.join, c.token = []string{first.url()}, token
	}
	second.run()
	if !second.endWhen(second.stands(func(s standing) bool { return s.Joined })) {
		t.Fatal("it was ready before it had joined")
	}
	if err := os.RemoveAll(filepath.Join(second.o.DataDir, "etcd", "member")); err != nil { // what of it came about meanwhile
		t.Fatal(err)
	}
	third.run()
	third.says("ready")
	second.run()
	second.says("ready")
	if got, want := second.members(), "n0 voter, n1 voter, n2 voter"; got != want {
		t.Errorf("got members %s, want %s", got, want)
	}
}

// TestARemovalThatComesAboutLateIsAWholeOne asks for the removal of one of two servers that is down:
// it is agreed upon when that one comes back, and then nobody is there any more who has asked.
func TestARemovalThatComesAboutLateIsAWholeOne(t *testing.T) {
	t.Parallel()
	first, second := newChild(t, "n0"), newChild(t, "n1")
	first.run()
	first.says("ready")
	second.join, second.token = []string{first.url()}, first.oneServer.token(up.TokenOptions{Server: true})
	second.run()
	second.says("ready")
	second.kill()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if _, err := up.RemoveMember(ctx, first.access(), "n1"); err == nil {
		t.Fatal("one of two agrees to a removal alone")
	}
	second.run()
	if line := endedBy(second); !strings.Contains(line, "was removed") {
		t.Errorf("who was removed ends with %q", line)
	}
	first.isSingle()
	if got := first.members(); got != "n0 voter" {
		t.Errorf("got members %s, want n0 alone", got)
	}
}

// isSingle waits until the server has no port for others any more.
func (c *child) isSingle() {
	c.Helper()
	if err := wait.Try(wait.Patience, func() error {
		if c.stands(func(s standing) bool { return s.Several })() {
			return errors.New("it still has a port for others")
		}
		return nil
	}); err != nil {
		c.tell()
		c.Fatal(err)
	}
}

// killedAtEachStep has a machine join that is killed at each step, and goes on each time. next is
// called after each kill.
func (c *child) killedAtEachStep(r *rand.Rand, next func()) {
	c.Helper()
	c.run()
	for _, step := range []struct {
		name string
		come func() bool
	}{
		{"it has a key", c.has("pki/peer.key")},
		{"it is about to write what it was given", c.stands(func(s standing) bool { return s.Joining || s.Joined })},
		{"it has some keys", c.has("pki/sa.key")},
		{"it has the keys", c.has("pki/ca.crt")},
		{"it has the settings", c.has("cluster.yaml")},
		{"it has joined", c.stands(func(s standing) bool { return s.Joined })},
		{"it has begun its store", c.has("etcd/member")},
		{"it has a database", c.has("etcd/member/snap/db")},
		{"some time later", func() bool {
			return task.Sleep(c.Context(), time.Duration(r.IntN(3000))*time.Millisecond) == nil
		}},
	} {
		if !c.killWhen(step.come) {
			c.Fatalf("it was ready before %s", step.name)
		}
		next()
	}
	c.says("ready")
}

// killedWhileRemoving has this server remove another one, and kills one of the two meanwhile.
func (c *child) killedWhileRemoving(r *rand.Rand, gone *child) {
	c.Helper()
	var g sync.WaitGroup
	g.Go(func() { _, _ = up.RemoveMember(c.Context(), c.access(), gone.o.NodeName) })
	_ = task.Sleep(c.Context(), time.Duration(r.IntN(300))*time.Millisecond)
	victim := []*child{c, gone}[r.IntN(2)]
	victim.kill()
	g.Wait()
	if victim == c {
		c.run()
		c.says("ready")
	}
	wait.Until(c, func() error {
		if !strings.Contains(c.members(), gone.o.NodeName) {
			return nil
		}
		if victim == gone { // two of two are needed
			gone.run()
			defer func() {
				gone.kill()
			}()
		}
		ctx, cancel := context.WithTimeout(c.Context(), time.Minute)
		defer cancel()
		if _, err := up.RemoveMember(ctx, c.access(), gone.o.NodeName); err != nil {
			return err
		}
		return errors.New("not yet")
	})
	if victim == gone {
		gone.run()
	}
	if line := endedBy(gone); !strings.Contains(line, "was removed") {
		c.Errorf("%s ends with %q", gone.o.NodeName, line)
	}
}

// endedBy waits until the process has ended, and returns what it said last.
func endedBy(c *child) (last string) {
	over := time.After(wait.Patience)
	for {
		select {
		case line, ok := <-c.lines:
			if !ok {
				return last
			}
			if strings.HasPrefix(line, "ended") {
				last = line
			}
		case <-over:
			c.tell()
			return "nothing in time"
		}
	}
}
