package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/join"
	"github.com/kemudi/kemudi/internal/up"
	"github.com/kemudi/kemudi/test/wait"
)

// rounds is how often a test does what it does by chance; KEMUDI_ROUNDS says it.
func rounds(t *testing.T) int {
	t.Helper()
	given := os.Getenv("KEMUDI_ROUNDS")
	if given == "" {
		return 1
	}
	return must(strconv.Atoi(given))(t)
}

// fault is something that happens to a server.
type fault struct {
	name string
	// strike makes it happen, and returns how it is mended.
	strike func(t *testing.T, server string) (mend func())
}

// faults are those that any server of several can have, without a trace in the end.
func (s *servers) faults() []fault {
	return []fault{
		{"killed", func(t *testing.T, server string) func() { return s.kill(t, server) }},
		{"all killed", func(t *testing.T, _ string) func() { return s.kill(t, s.names...) }},
		{"frozen", func(t *testing.T, server string) func() { return s.freeze(t, server) }},
		{"frozen with another", func(t *testing.T, server string) func() { return s.freeze(t, server, s.others(server)[0]) }},
		{"cut off from the others", func(t *testing.T, server string) func() { return s.cut(t, server, peerCut("input"), peerCut("output")) }},
		{"deaf to the others", func(t *testing.T, server string) func() { return s.cut(t, server, peerCut("input")) }},
		{"mute to the others", func(t *testing.T, server string) func() { return s.cut(t, server, peerCut("output")) }},
		{"cut off from all", func(t *testing.T, server string) func() {
			if server == first { // clients are on its machine
				server = s.others(first)[0]
			}
			return s.cut(t, server, wholeCut...)
		}},
		{"an hour ahead", func(t *testing.T, server string) func() { return s.stepClock(t, server, time.Hour) }},
		{"an hour behind", func(t *testing.T, server string) func() { return s.stepClock(t, server, -time.Hour) }},
	}
}

// kill kills servers; they are mended by being started again, as people do.
func (s *servers) kill(t *testing.T, names ...string) (mend func()) {
	t.Helper()
	var pids []int
	for _, name := range names {
		pid := s.processOf(t, name)
		pids = append(pids, pid)
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatalf("kill %s: %v", name, err)
		}
	}
	for _, pid := range pids {
		wait.Until(t, func() error { return gone(pid) })
	}
	return func() { s.up(t) }
}

// freeze has servers stand still for a while.
func (s *servers) freeze(t *testing.T, names ...string) (mend func()) {
	t.Helper()
	var pids []int
	thaw := func() {
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	}
	t.Cleanup(thaw)
	for _, name := range names {
		pid := s.processOf(t, name)
		pids = append(pids, pid)
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatalf("stop %s: %v", name, err)
		}
	}
	return thaw
}

// peerCut keeps what servers tell each other about the store from coming in, or going out.
func peerCut(hook string) string {
	return "chain peers-" + hook + " { type filter hook " + hook + " priority -300; tcp dport 2380 drop; tcp sport 2380 drop; }"
}

// wholeCut keeps out all that comes from other machines.
var wholeCut = []string{
	"chain in { type filter hook input priority -300; iifname eth0 drop; }", "chain out { type filter hook output priority -300; oifname eth0 drop; }",
	"chain through { type filter hook forward priority -300; iifname eth0 drop; oifname eth0 drop; }",
}

// cut adds chains of rules to the network of a machine.
func (s *servers) cut(t *testing.T, name string, chains ...string) (mend func()) {
	t.Helper()
	s.nft(t, name, "table inet cut { "+strings.Join(chains, "; ")+"; }")
	return func() { s.nft(t, name, "delete table inet cut") }
}

// nft changes the rules of a machine.
func (s *servers) nft(t *testing.T, name, text string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "nsenter", "--net="+s.netns(name), "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("nft: %v\n%s", err, out)
	}
}

// netns is the file that names the network namespace of a machine.
func (s *servers) netns(name string) string {
	if name == first {
		return s.Netns
	}
	return "/run/netns/" + filepath.Base(s.RunDir) + "-" + name
}

// stepClock sets the clock of a server.
func (s *servers) stepClock(t *testing.T, name string, ahead time.Duration) (mend func()) {
	t.Helper()
	c, err := clockOf(s.processOf(t, name))
	if errors.Is(err, errors.ErrUnsupported) {
		t.Log(err)
		return func() {}
	} else if err != nil {
		t.Fatal(err)
	}
	if err := c.step(ahead); err != nil {
		t.Fatal(err)
	}
	// What it makes is of its own time.
	wait.Until(t, func() error {
		made, err := s.clients[name].CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "clock-"}}, metav1.CreateOptions{})
		if is := time.Until(made.CreationTimestamp.Time); err == nil && (is-ahead).Abs() > ahead.Abs()/2 {
			t.Errorf("%s: got an object that was made in %s, want %s", name, is, ahead)
		}
		return err
	})
	return func() {
		if err := c.right(); err != nil {
			t.Errorf("set the clock of %s right: %v", name, err)
		}
	}
}

// disk is one that only the store of one server is on.
type disk struct {
	server, dir string
}

// diskBytes is how large it is: room for three segments of the log, and what is left free.
const diskBytes = 512 << 20

// ownDisk gives a server a disk for its part of the store. It is to be called before the cluster is
// made.
func (s *servers) ownDisk(t *testing.T, server string) *disk {
	t.Helper()
	d := &disk{server, filepath.Join(s.DataDir, "machines", server, "etcd")}
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	image := filepath.Join(s.Dir, "disk")
	f := must(os.Create(image))(t)
	err := f.Truncate(diskBytes)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	for _, line := range [][]string{{"mkfs.ext4", "-q", "-m", "0", image}, {"mount", "-o", "loop", image, d.dir}} {
		if out, err := exec.CommandContext(t.Context(), line[0], line[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", line, err, out)
		}
	}
	t.Cleanup(func() {
		_ = d.flow()
		if o := s.do(context.Background(), "reset", "--kubeconfig", ""); o.code != 0 || !strings.Contains(o.stdout, "nothing is left") {
			t.Errorf("reset with a disk that is the administrator's: %s", o.all())
		}
		unmount(t, d.dir)
	})
	if err := errors.Join(os.Remove(filepath.Join(d.dir, "lost+found")), os.Chmod(d.dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	return d
}

// faults are those of a disk, whichever server is meant.
func (d *disk) faults(s *servers) []fault {
	return []fault{
		{"slow disk", func(t *testing.T, _ string) func() { return d.slow(t) }},
		{"full disk", func(t *testing.T, _ string) func() { return d.full(t, s) }},
	}
}

// slow has the disk take nothing most of the time.
func (d *disk) slow(t *testing.T) (mend func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		var err error
		for ctx.Err() == nil && err == nil {
			if err = exec.CommandContext(t.Context(), "fsfreeze", "--freeze", d.dir).Run(); err == nil {
				await(ctx, 400*time.Millisecond)
				err = d.flow()
			}
			await(ctx, 20*time.Millisecond)
		}
		ended <- err
	}()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("slow down the disk: %v", err)
		}
	}
}

// flow has it take again what is written.
func (d *disk) flow() error { return exec.Command("fsfreeze", "--unfreeze", d.dir).Run() }

// full leaves nothing of the disk. A server that ends for that is started again when there is room.
func (d *disk) full(t *testing.T, s *servers) (mend func()) {
	t.Helper()
	filler := filepath.Join(d.dir, "filler")
	leave(t, d.dir, filler, 1<<20)
	f := must(os.OpenFile(filler, os.O_APPEND|os.O_WRONLY, 0))(t)
	defer f.Close()
	for piece := make([]byte, 4<<10); ; {
		if _, err := f.Write(piece); errors.Is(err, syscall.ENOSPC) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		if err := os.Remove(filler); err != nil {
			t.Error(err)
		}
		pid, err := up.Running(s.RunDir + "-" + d.server)
		if err != nil {
			t.Error(err)
		}
		if pid == 0 {
			t.Logf("%s has ended", d.server)
			s.up(t)
		}
	}
}

// await waits for a time, or until ctx ends.
func await(ctx context.Context, long time.Duration) {
	select {
	case <-time.After(long):
	case <-ctx.Done():
	}
}

// leader is the server that leads the others in keeping the store, if somebody knows it.
func (s *servers) leader(t *testing.T) string {
	t.Helper()
	o := s.run(t.Context(), nil, s.bin, "member", "list", "--data-dir", s.DataDir, "-o", "json")
	var members []join.ServerState
	if err := json.Unmarshal([]byte(o.stdout), &members); err != nil {
		t.Logf("which server leads: %v\n%s", err, o.all())
		return ""
	}
	for _, m := range members {
		if m.Role == "leader" {
			return m.Name
		}
	}
	return ""
}

// victim is a server by chance, in half of all cases the one that leads.
func (s *servers) victim(t *testing.T, r *rand.Rand) string {
	t.Helper()
	server := s.names[r.IntN(len(s.names))]
	if r.IntN(2) == 0 {
		if leader := s.leader(t); leader != "" {
			server = leader
		}
	}
	return server
}

// allAnswer waits until each server writes.
func (s *servers) allAnswer(t *testing.T) {
	t.Helper()
	begin := time.Now()
	for _, name := range s.names {
		var last error
		wait.Until(t, func() error {
			_, err := s.clients[name].CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "heal-"}}, metav1.CreateOptions{})
			if err != nil {
				last = err
				return fmt.Errorf("%s does not write: %w", name, err)
			}
			return nil
		})
		if took := time.Since(begin).Round(time.Millisecond); took > time.Second {
			t.Logf("%s writes %s after what was wrong is mended; before: %v", name, took, last)
		}
	}
}
